//! Checks whether any worker is alive, and whether all workers have one version.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::MySqlPool;
use tidegate_compare::text::{error_chain, printable};
use tidegate_orders::{RedisStore, keys::process_of};

use crate::{
    SystemSettings,
    consumers::Consumer,
    finding::Findings,
    status::{no_worker, read_stream},
};

/// Reports how serious it is that no worker is alive, or that workers have different versions. Otherwise it reports
/// nothing, because the check of the group reports the consumers.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: Option<&MySqlPool>,
) {
    // Another check reports a stream that cannot be read.
    let Ok(stream) = read_stream(redis, settings).await else { return };
    if let Some(mixed) = mixed_versions(&stream.consumers) {
        findings.warning(mixed, "replace the workers of the older version; see docs/runbook/upgrade.md");
    }
    let within = settings.mysql.statement_timeout;
    match no_worker::check(settings, (redis, mysql), &stream, within).await {
        Ok(None) => {}
        Ok(Some(found)) => findings.take(found),
        Err(error) => findings.not_read(
            format!("the doctor failed to read whether any worker is alive: {}", error_chain(&error)),
            "run tidegate probe readyz on the machine of each worker",
        ),
    }
}

/// The versions of the living workers with the names of the workers, if there is more than one version.
fn mixed_versions(consumers: &[Consumer]) -> Option<String> {
    let mut versions: BTreeMap<Option<&str>, BTreeSet<&str>> = BTreeMap::new();
    for consumer in consumers.iter().filter(|consumer| consumer.alive) {
        versions.entry(consumer.version()).or_default().insert(process_of(&consumer.name));
    }
    let named = versions.iter().map(|(version, workers)| {
        let version = version.map_or("older, without a version in its heartbeat".to_owned(), printable);
        let workers: Vec<String> = workers.iter().map(|name| printable(name)).collect();
        format!("{} ({version})", workers.join(", "))
    });
    let named: Vec<String> = named.collect();
    (named.len() > 1)
        .then(|| format!("workers of {} versions share this stream: {}", named.len(), named.join("; ")))
}

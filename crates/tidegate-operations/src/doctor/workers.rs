//! Checks whether any worker is alive, and whether all workers have one version and one layout of user locks.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::MySqlPool;
use tidegate_compare::text::{error_chain, printable};
use tidegate_orders::{LockLayout, RedisStore, keys::process_of};

use crate::{
    SystemSettings,
    consumers::Consumer,
    finding::Findings,
    status::{no_worker, read_stream},
};

/// Reports how serious it is that no worker is alive, or that workers differ in their versions or their user locks.
/// Otherwise it reports nothing, because the check of the group reports the consumers.
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
    if let Some(mixed) = mixed_layouts(&stream.consumers, settings.fleet.lock_layout) {
        findings
            .warning(mixed, "give all workers and this program the same lock.layout; see docs/takeover.md");
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
    let named = workers_by(consumers, |consumer| {
        let version = consumer.version().map(printable);
        version.unwrap_or_else(|| "older, without a version in its heartbeat".to_owned())
    });
    (named.len() > 1)
        .then(|| format!("workers of {} versions share this stream: {}", named.len(), listed(named)))
}

/// The layouts of user locks with the names of the living workers that use them, if there is more than one layout. The
/// layout of this program counts, too, because a replay locks users.
fn mixed_layouts(consumers: &[Consumer], own: LockLayout) -> Option<String> {
    let layout = |consumer: &Consumer| consumer.lock_layout().map(printable).unwrap_or_default();
    let named = workers_by(consumers, layout);
    let others = named.keys().any(|layout| layout != own.word());
    match named.len() {
        0 => None,
        1 if others => Some(format!(
            "the user locks of this program have another layout (lock.layout = {:?}) than those of the workers: {}",
            own.word(),
            listed(named)
        )),
        1 => None,
        layouts => Some(format!("user locks have {layouts} layouts (lock.layout): {}", listed(named))),
    }
}

/// The names of the living workers, by a text about each worker.
fn workers_by(consumers: &[Consumer], of: impl Fn(&Consumer) -> String) -> BTreeMap<String, BTreeSet<&str>> {
    let mut by_text: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for consumer in consumers.iter().filter(|consumer| consumer.alive) {
        by_text.entry(of(consumer)).or_default().insert(process_of(&consumer.name));
    }
    by_text
}

fn listed(named: BTreeMap<String, BTreeSet<&str>>) -> String {
    let lines = named.into_iter().map(|(text, workers)| {
        let workers: Vec<String> = workers.into_iter().map(printable).collect();
        format!("{} ({text})", workers.join(", "))
    });
    lines.collect::<Vec<_>>().join("; ")
}

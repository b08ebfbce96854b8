//! Checks whether order results reach their readers.

use std::{collections::BTreeMap, time::Duration};
use tidegate_orders::RedisStore;

use fred::{interfaces::StreamsInterface, types::Value};
use sqlx::MySqlPool;
use tidegate_compare::text::counted;
use tidegate_stream::{KeyKind, StreamNames, StreamStatus, age_ms, inspect};

use crate::{SystemSettings, connect, finding::Findings};

/// The age of an unread result from which on its reader is reported as stopped or too slow.
const UNREAD: Duration = Duration::from_secs(600);
/// The consumer groups that are checked at most.
const MOST_GROUPS: usize = 10;

/// Checks the stream of results, its readers, and the results that Redis did not take.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: &MySqlPool,
) {
    let key = &settings.stream.results;
    let names = |group: &str| StreamNames { stream: key.clone(), dead: key.clone(), group: group.to_owned() };
    match inspect(redis, &names("")).await {
        Ok(StreamStatus { kind: KeyKind::Other(kind), .. }) => findings.error(
            format!("{key} is a {kind}, not a stream: workers cannot publish the results of orders"),
            "rename this key, or set stream.results. MySQL keeps the results until workers publish them",
        ),
        Ok(_) => {
            let groups: Vec<BTreeMap<String, Value>> =
                redis.pool().xinfo_groups(key).await.unwrap_or_default();
            for group in groups.iter().take(MOST_GROUPS).filter_map(|group| group.get("name")?.as_string()) {
                let Ok(status) = inspect(redis, &names(&group)).await else { continue };
                report_reader(findings, (key, &group), &status);
            }
        }
        Err(error) => findings.warning(
            format!("Failed to read the results of orders in {key}: {error}"),
            "allow Tidegate's Redis user TYPE, XLEN, XRANGE, XINFO and XPENDING on this key",
        ),
    }
    // The check of the tables reports a missing table.
    if let Ok(results @ 1..) = connect::publisher(settings, redis, mysql).unpublished().await {
        findings.warning(
            format!("Redis has not accepted {} from workers yet", counted(results as u64, "order result")),
            "workers publish these results as soon as Redis accepts them: see docs/runbook/results-are-not-published.md",
        );
    }
}

fn report_reader(findings: &mut Findings, (key, group): (&str, &str), status: &StreamStatus) {
    let unread = status.group.as_ref().and_then(|group| group.oldest_undelivered);
    let age = unread.map(|id| Duration::from_millis(age_ms(status.now_ms, id)));
    if let Some(age) = age.filter(|age| *age > UNREAD) {
        findings.warning(
            format!("the group {group} has not read results from {key} for {} min", age.as_secs() / 60),
            "start the program that reads results: workers delete old results (results.keep_ms, results.keep_bytes); see \
             docs/runbook/results-are-not-published.md#results-are-not-read",
        );
    }
}

//! Checks which entries wait in Redis, and for how long: a sound server may hold orders that no worker writes.

use tidegate_compare::text::{counted, error_chain, printable};
use tidegate_orders::RedisStore;
use tidegate_stream::{EntryId, GroupStatus, SetAsideNote, SetAsideNotes, StreamStatus, age_ms};

use crate::{
    SystemSettings,
    consumers::{Consumer, Consumers},
    dead_letters,
    finding::Findings,
};

/// The age in milliseconds from which on an entry does not wait for its turn, but for an operator.
const OLD_MS: u64 = 10_000;
/// The time in seconds from which on entries that are set aside wait for something that does not end soon without help.
const LONG_S: f64 = 30.0;
/// The pending entries that are read, oldest first; entries that crash workers are among them.
const LOOKED_AT: u16 = 1_000;
/// The consumers that are named one by one.
const NAMED: usize = 5;

/// Checks the consumer group and the dead letters.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    status: &StreamStatus,
) {
    if let Some(group) = &status.group {
        check_ages(findings, group, status.now_ms);
        check_consumers(settings, findings, redis, group).await;
        check_crashes(settings, findings, redis).await;
    }
    if status.dead > 0 {
        check_dead(settings, findings, redis, status.dead).await;
    }
}

fn check_ages(findings: &mut Findings, group: &GroupStatus, now_ms: u64) {
    let ages = [
        (group.oldest_undelivered, "undelivered", "docs/runbook/nothing-is-written.md#undelivered-grows"),
        (group.oldest_pending, "pending", "docs/runbook/pending-grows.md"),
    ];
    for (oldest, state, page) in ages {
        let age_ms = oldest.map_or(0, |id| age_ms(now_ms, id));
        if age_ms > OLD_MS {
            findings.warning(
                format!("the oldest {state} entry of the stream is {} s old", age_ms / 1000),
                format!("check that workers run, and read their logs; see {page}"),
            );
        }
    }
}

async fn check_consumers(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    group: &GroupStatus,
) {
    if group.consumers.is_empty() {
        return findings.ok("the consumer group has no consumers");
    }
    let pending = counted(group.pending, "entry");
    findings.ok(format!("{}, {pending} pending", counted(group.consumers.len() as u64, "consumer")));
    match Consumers::of(redis, group.consumers.clone()).await {
        Ok(consumers) => {
            report_gone(findings, &consumers);
            check_set_aside(settings, findings, redis, &consumers).await;
        }
        Err(error) => findings.warning(
            format!("Failed to read the heartbeats of the workers: {}", error_chain(&error)),
            format!(
                "allow Tidegate's Redis user MGET on {}",
                redis.keys().fleet().heartbeat("<name>").as_str_lossy()
            ),
        ),
    }
}

fn report_gone(findings: &mut Findings, consumers: &Consumers) {
    let gone = consumers.all.iter().filter(|consumer| !consumer.alive && consumer.pending > 0);
    let gone: Vec<&Consumer> = gone.collect();
    if gone.is_empty() {
        return;
    }
    let names: Vec<String> = gone.iter().take(NAMED).map(|consumer| printable(&consumer.name)).collect();
    let more = if gone.len() > NAMED { " ..." } else { "" };
    findings.warning(
        format!(
            "{} without a living process, with {} still pending: {}{more}",
            counted(gone.len() as u64, "consumer"),
            counted(gone.iter().map(|consumer| consumer.pending).sum::<u64>(), "entry"),
            names.join(", ")
        ),
        "if no worker runs, start one: a worker claims these entries after worker.claim_idle_ms milliseconds; see \
         docs/runbook/worker-is-dead.md",
    );
}

async fn check_set_aside(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    consumers: &Consumers,
) {
    let names = settings.stream_names();
    match SetAsideNotes::new(redis, &names).read(consumers.processes()).await {
        Ok(notice) => report_set_aside(findings, &notice),
        Err(error) => findings.warning(
            format!("Failed to read the entries that workers have set aside: {error}"),
            to_read(&names.set_aside(), &error.to_string()),
        ),
    }
}

fn report_set_aside(findings: &mut Findings, notice: &SetAsideNote) {
    let longest = notice.causes.iter().max_by(|one, other| one.lasting_s.total_cmp(&other.lasting_s));
    let Some(longest) = longest.filter(|cause| cause.lasting_s > LONG_S) else { return };
    findings.warning(
        format!(
            "{} set aside for a retry (locks, rows or keys are in use); the longest: {} wait for {} {} since {:.0} s",
            counted(notice.entries as u64, "entry"),
            longest.entries,
            printable(&longest.kind),
            longest.key,
            longest.lasting_s
        ),
        "run tidegate status to see the causes; see docs/runbook/entries-are-set-aside.md",
    );
}

async fn check_crashes(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore) {
    let inspector = redis.inspector();
    let oldest = match inspector.group().pending(EntryId::MIN, LOOKED_AT).await {
        Ok(oldest) => oldest,
        Err(error) => {
            return findings.warning(
                format!("Failed to read the pending entries list: {error}"),
                format!("allow Tidegate's Redis user XPENDING on {}", settings.stream.name),
            );
        }
    };
    let crashes = match inspector.group().crashes(&oldest).await {
        Ok(crashes) => crashes,
        Err(error) => {
            return findings.warning(
                format!("Failed to read the crash counts of entries: {error}"),
                to_read(&inspector.names().crashes(), &error.to_string()),
            );
        }
    };
    let died = crashes.iter().filter(|crashes| **crashes > 0).count();
    if died > 0 {
        let most = crashes.iter().max().copied().unwrap_or_default();
        let of = if oldest.len() == usize::from(LOOKED_AT) { " of the oldest 1,000" } else { "" };
        findings.warning(
            format!(
                "{}{of} in progress when a worker process died; the highest count of one entry: {}",
                counted(died as u64, "pending entry"),
                counted(most, "crash")
            ),
            "run tidegate pending list --crashes 1 to list the entries; see docs/runbook/dead-letters.md#workers-die",
        );
    }
}

/// Returns the advice for a hash that could not be read. Both hashes are notes of Tidegate, which workers write again.
fn to_read(hash: &str, error: &str) -> String {
    if error.contains("WRONGTYPE") {
        return format!(
            "the key {hash} is not a hash, so another program wrote it: check its content, then DEL {hash}"
        );
    }
    format!("allow Tidegate's Redis user HMGET on {hash}")
}

async fn check_dead(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore, letters: u64) {
    let reasons = match dead_letters::oldest_reasons(redis).await {
        Ok(reasons) => reasons,
        Err(error) => format!("Failed to read the reasons of dead letters: {error}"),
    };
    findings.warning(
        format!("{} in the stream {}: {reasons}", counted(letters, "dead letter"), settings.stream.dead),
        "run tidegate dead list to list the dead letters; see docs/runbook/dead-letters.md",
    );
}

//! What waits in Redis, and for how long: a sound server may hold orders that nobody writes.

use tidegate_compare::text::{counted, error_chain, printable};
use tidegate_orders::RedisStore;
use tidegate_stream::{EntryId, GroupStatus, SetAsideNote, SetAsideNotes, StreamStatus, age_ms};

use crate::{
    SystemSettings,
    consumers::{Consumer, Consumers},
    dead_letters,
    finding::Findings,
};

/// Older than this, an entry does not wait for its turn but for help.
const OLD_MS: u64 = 10_000;
/// What is set aside for longer than this waits for something that does not end by itself soon.
const LONG_S: f64 = 30.0;
/// Pending entries that are looked at, the oldest: those that workers die of are among them.
const LOOKED_AT: u16 = 1_000;
/// Consumers that are named.
const NAMED: usize = 5;

/// Looks at the group, and at the dead letters.
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
        (group.oldest_undelivered, "undelivered", "docs/runbook/undelivered-grows.md"),
        (group.oldest_pending, "pending", "docs/runbook/pending-grows.md"),
    ];
    for (oldest, state, page) in ages {
        let age_ms = oldest.map_or(0, |id| age_ms(now_ms, id));
        if age_ms > OLD_MS {
            findings.warning(
                format!("the oldest {state} entry is {} s old", age_ms / 1000),
                format!("look at the workers and their logs; see {page}"),
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
        return findings.ok("the group has no consumers");
    }
    let pending = counted(group.pending, "entry");
    findings.ok(format!("{}, {pending} pending", counted(group.consumers.len() as u64, "consumer")));
    match Consumers::of(redis, group.consumers.clone()).await {
        Ok(consumers) => {
            report_gone(findings, &consumers);
            check_set_aside(settings, findings, redis, &consumers).await;
        }
        Err(error) => findings.warning(
            format!("nobody can say which workers live: {}", error_chain(&error)),
            format!("allow this user MGET on {}", redis.keys().fleet().heartbeat("<name>").as_str_lossy()),
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
            "{} without a living process, with {} in progress: {}{more}",
            counted(gone.len() as u64, "consumer"),
            counted(gone.iter().map(|consumer| consumer.pending).sum::<u64>(), "entry"),
            names.join(", ")
        ),
        "living workers take them over after worker.claim_idle_ms; if none does, start one; see \
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
            format!("nobody can say what workers have set aside: {error}"),
            to_read(&names.set_aside(), &error.to_string()),
        ),
    }
}

fn report_set_aside(findings: &mut Findings, notice: &SetAsideNote) {
    let longest = notice.causes.iter().max_by(|one, other| one.lasting_s.total_cmp(&other.lasting_s));
    let Some(longest) = longest.filter(|cause| cause.lasting_s > LONG_S) else { return };
    findings.warning(
        format!(
            "{} set aside, because what they need is held by others; the longest wait: {} for {} {}, since {:.0} s",
            counted(notice.entries as u64, "entry"),
            longest.entries,
            printable(&longest.kind),
            longest.key,
            longest.lasting_s
        ),
        "tidegate status; see docs/runbook/entries-are-set-aside.md",
    );
}

async fn check_crashes(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore) {
    let inspector = redis.inspector();
    let oldest = match inspector.group().pending(EntryId::MIN, LOOKED_AT).await {
        Ok(oldest) => oldest,
        Err(error) => {
            return findings.warning(
                format!("the pending list could not be read: {error}"),
                format!("allow this user XPENDING on {}", settings.stream.name),
            );
        }
    };
    let crashes = match inspector.group().crashes(&oldest).await {
        Ok(crashes) => crashes,
        Err(error) => {
            return findings.warning(
                format!("nobody can say which entries workers died of: {error}"),
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
                "{}{of} in progress when worker processes died; the most: {}",
                counted(died as u64, "pending entry"),
                counted(most, "crash")
            ),
            "tidegate pending list --crashes 1; see docs/runbook/workers-die-of-an-entry.md",
        );
    }
}

/// What to do about a hash that could not be read. Both of ours are notes: workers write them anew.
fn to_read(hash: &str, error: &str) -> String {
    if error.contains("WRONGTYPE") {
        return format!("{hash} is no hash, so somebody else wrote it: look what it is, then DEL {hash}");
    }
    format!("allow this user HMGET on {hash}")
}

async fn check_dead(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore, letters: u64) {
    let reasons = match dead_letters::oldest_reasons(redis).await {
        Ok(reasons) => reasons,
        Err(error) => format!("their reasons could not be read: {error}"),
    };
    findings.warning(
        format!("{} in {}: {reasons}", counted(letters, "dead letter"), settings.stream.dead),
        "tidegate dead list; see docs/runbook/dead-letters.md",
    );
}

//! What waits in Redis, and for how long: a sound server may hold orders that nobody writes.

use fred::clients::Pool;
use tidegate_orders::Keys;
use tidegate_stream::{EntryId, GroupStatus, StreamStatus, Survey, age_ms};

use super::finding::Findings;
use crate::{
    commands::dead,
    config::Settings,
    output::{counted, printable, told},
    roster::{Member, Roster},
};

/// Older than this, an entry does not wait for its turn but for help.
const OLD_MS: u64 = 10_000;
/// An entry that was delivered so often is handed from worker to worker, and none can write it.
const MANY_DELIVERIES: u64 = 10;
/// Pending entries that are looked at, the oldest: those that cannot be written are among them.
const LOOKED_AT: u16 = 1_000;
/// Consumers that are named.
const NAMED: usize = 5;

/// Looks at the group, and at the dead letters.
pub async fn check(settings: &Settings, findings: &mut Findings, redis: &Pool, status: &StreamStatus) {
    if let Some(group) = &status.group {
        check_ages(findings, group, status.now_ms);
        check_consumers(settings, findings, redis, group).await;
        check_deliveries(settings, findings, redis).await;
    }
    if status.dead > 0 {
        check_dead(settings, findings, redis, status.dead).await;
    }
}

fn check_ages(findings: &mut Findings, group: &GroupStatus, now_ms: u64) {
    for (oldest, state) in [(group.oldest_undelivered, "undelivered"), (group.oldest_pending, "pending")] {
        let age_ms = oldest.map_or(0, |id| age_ms(now_ms, id));
        if age_ms > OLD_MS {
            findings.warning(
                format!("the oldest {state} entry is {} s old", age_ms / 1000),
                "look at the workers and their logs; RUNBOOK: `Undelivered grows`, `Pending grows`",
            );
        }
    }
}

async fn check_consumers(settings: &Settings, findings: &mut Findings, redis: &Pool, group: &GroupStatus) {
    if group.consumers.is_empty() {
        return findings.warning("the group has no consumers", "start a worker: tidegate worker");
    }
    let pending = counted(group.pending, "entry");
    findings.ok(format!("{}, {pending} pending", counted(group.consumers.len() as u64, "consumer")));
    match Roster::of(redis, &Keys::new(settings.keys.clone()), group.consumers.clone()).await {
        Ok(roster) => report_gone(findings, &roster),
        Err(error) => findings.warning(
            format!("nobody can say which workers live: {}", told(&error)),
            format!("allow this user MGET on {}", settings.keys.heartbeat),
        ),
    }
}

fn report_gone(findings: &mut Findings, roster: &Roster) {
    let gone = roster.members.iter().filter(|member| !member.alive && member.pending > 0);
    let gone: Vec<&Member> = gone.collect();
    if gone.is_empty() {
        return;
    }
    let names: Vec<String> = gone.iter().take(NAMED).map(|member| printable(&member.name)).collect();
    let more = if gone.len() > NAMED { " ..." } else { "" };
    findings.warning(
        format!(
            "{} without a living process, with {} in hand: {}{more}",
            counted(gone.len() as u64, "consumer"),
            counted(gone.iter().map(|member| member.pending).sum::<u64>(), "entry"),
            names.join(", ")
        ),
        "living workers take them over after worker.claim_idle_ms; if none does, start one; RUNBOOK: `A worker or a \
         pod is dead`",
    );
}

async fn check_deliveries(settings: &Settings, findings: &mut Findings, redis: &Pool) {
    let survey = Survey::new(redis.clone(), settings.stream_names());
    let oldest = match survey.pending_entries((EntryId::MIN, EntryId::MAX), LOOKED_AT, None).await {
        Ok(oldest) => oldest,
        Err(error) => {
            return findings.warning(
                format!("the pending list could not be read: {error}"),
                format!("allow this user XPENDING on {}", settings.stream.name),
            );
        }
    };
    let often = oldest.iter().filter(|pending| pending.deliveries >= MANY_DELIVERIES).count();
    if often > 0 {
        let most = oldest.iter().map(|pending| pending.deliveries).max().unwrap_or_default();
        let of = if oldest.len() == usize::from(LOOKED_AT) { " of the oldest 1,000" } else { "" };
        findings.warning(
            format!(
                "{}{of} delivered {MANY_DELIVERIES} times or more, and not written; the most: {most}",
                counted(often as u64, "pending entry")
            ),
            format!("tidegate pending list --deliveries {MANY_DELIVERIES}; RUNBOOK: `Pending grows`"),
        );
    }
}

async fn check_dead(settings: &Settings, findings: &mut Findings, redis: &Pool, letters: u64) {
    let reasons = match dead::oldest_reasons(settings, redis).await {
        Ok(reasons) => reasons,
        Err(error) => format!("their reasons could not be read: {error}"),
    };
    findings.warning(
        format!("{} in {}: {reasons}", counted(letters, "dead letter"), settings.stream.dead),
        "tidegate dead list; RUNBOOK: `Dead letters appear`",
    );
}

//! Since when each worker process has its oldest batch in progress, written down for those who must wait for what was read before
//! some moment: entries that a worker has read may be in no stream any more, once Redis has lost its data.

use std::{collections::BTreeMap, time::Duration};

use fred::{
    interfaces::KeysInterface,
    prelude::FredResult,
    types::{Expiration, Key, Value},
};
use serde::{Deserialize, Serialize};

use crate::gate::{RedisStore, scan_keys};

/// A note that nobody renews is of no process that lives.
const KEPT_S: i64 = 10;

/// What a worker process publishes of its work in progress; moments are Unix milliseconds by the clock of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WorkInProgress {
    /// When it said so.
    pub at_ms: u64,
    /// All that it has in progress was read then or later. None: it has nothing in progress.
    pub since_ms: Option<u64>,
}

impl WorkInProgress {
    /// At a moment of Redis' clock, of a process whose oldest turn that may hold entries has lasted so long.
    #[must_use]
    pub fn at(at_ms: u64, oldest: Option<Duration>) -> Self {
        // One more: a millisecond that was cut off must not make a batch look younger.
        let age_ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        Self { at_ms, since_ms: oldest.map(|age| at_ms.saturating_sub(age_ms(age))) }
    }

    /// Whether all that it has in progress, and will have, is read after this moment.
    #[must_use]
    pub fn is_after(&self, moment_ms: u64) -> bool {
        self.at_ms > moment_ms && self.since_ms.is_none_or(|since_ms| since_ms > moment_ms)
    }
}

/// Writes down what the process `name` says; it ends by itself after some seconds.
///
/// # Errors
/// When Redis does not answer or refuses.
pub async fn write(redis: &RedisStore, name: &str, work: WorkInProgress) -> FredResult<()> {
    let json = serde_json::to_string(&work).expect("numbers are JSON");
    redis.pool().set(redis.keys().fleet().work_in_progress(name), json, Some(Expiration::EX(KEPT_S)), None, false).await
}

/// The process `name` has nothing in progress any more, and will not.
///
/// # Errors
/// As [`write()`]; the note ends by itself then.
pub async fn end(redis: &RedisStore, name: &str) -> FredResult<()> {
    redis.pool().del(redis.keys().fleet().work_in_progress(name)).await
}

/// All worker processes that live, by name, and what each publishes of its work in progress; None: it is of a version that says nothing. One
/// that Redis has lost with its data appears again within a heartbeat. Looks at all keys.
///
/// # Errors
/// When Redis does not answer, or does not allow SCAN.
pub async fn read_all(redis: &RedisStore) -> FredResult<BTreeMap<String, Option<WorkInProgress>>> {
    let pattern = redis.keys().fleet().heartbeats();
    let mut names: Vec<String> = Vec::new();
    for key in scan_keys(redis.pool(), &pattern.glob()).await? {
        let name = pattern.name(&key).unwrap_or_default();
        // What stands behind the heartbeat's key may be before or behind the end of its template.
        let of_work = key.strip_suffix(super::keys::IN_PROGRESS).and_then(|heartbeat| pattern.name(heartbeat));
        names.push(of_work.unwrap_or(name).to_owned());
    }
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    // Both of one moment: the note of a process that was killed may have ended since its key was found.
    let keys = redis.keys().fleet();
    let both: Vec<Key> = names.iter().flat_map(|name| [keys.work_in_progress(name), keys.heartbeat(name)]).collect();
    let both: Vec<Value> = redis.pool().mget(both).await?;
    let of_each = names.into_iter().zip(both.chunks_exact(2));
    Ok(of_each.filter_map(|(name, pair)| Some((name, of_process(&pair[0], &pair[1])?))).collect())
}

/// Whether any worker process has given a sign of life, also one that has read nothing yet. Looks at all keys.
///
/// # Errors
/// As [`read_all`].
pub async fn has_sign_of_life(redis: &RedisStore) -> FredResult<bool> {
    Ok(!scan_keys(redis.pool(), &redis.keys().fleet().heartbeats().glob()).await?.is_empty())
}

/// What a process publishes of its work in progress, by its note and its heartbeat. None: it lives no more.
fn of_process(note: &Value, heartbeat: &Value) -> Option<Option<WorkInProgress>> {
    match note.as_bytes() {
        Some(note) => Some(serde_json::from_slice(note).ok()),
        None => (!heartbeat.is_null()).then_some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_note_and_heartbeat_are_gone_is_not_one_that_says_nothing() {
        let note = serde_json::to_string(&WorkInProgress { at_ms: 7, since_ms: None }).unwrap();
        let (note, beats) = (Value::from(note), Value::from("pid 1"));
        assert_eq!(of_process(&note, &Value::Null), Some(Some(WorkInProgress { at_ms: 7, since_ms: None })));
        assert_eq!(of_process(&Value::Null, &beats), Some(None), "it is of an older version");
        assert_eq!(of_process(&Value::Null, &Value::Null), None);
    }

    #[test]
    fn hands_are_after_a_moment_if_what_they_hold_was_read_later() {
        let ms = Duration::from_millis;
        assert!(WorkInProgress::at(1_000, None).is_after(999));
        assert!(!WorkInProgress::at(1_000, None).is_after(1_000), "it was said before");
        assert!(WorkInProgress::at(1_000, Some(ms(99))).is_after(899));
        assert!(!WorkInProgress::at(1_000, Some(ms(99))).is_after(900), "rounded to the safe side");
    }
}

//! Publishes since when each worker process has its oldest batch in progress. Other programs need this to wait until
//! all entries are done that were read before some moment. Entries that a worker has read may be in no stream any more,
//! once Redis has lost its data.

use std::{collections::BTreeMap, time::Duration};

use fred::{
    interfaces::KeysInterface,
    prelude::FredResult,
    types::{Expiration, Key, Value},
};
use serde::{Deserialize, Serialize};

use crate::scripts::{RedisStore, scan_keys};

/// The words in a worker's heartbeat before the version of its program, which ends before the next comma. A heartbeat of
/// an older version does not have these words.
pub const HEARTBEAT_VERSION: &str = ", version ";

/// The words in a worker's heartbeat before the layout of its user locks, which ends before the next comma. A heartbeat of
/// an older version does not have these words, and its worker uses [`LockLayout::Tidegate`](crate::LockLayout).
pub const HEARTBEAT_LOCKS: &str = ", locks ";

/// The seconds after which a note expires: a note that is not renewed belongs to a process that no longer runs.
const KEPT_S: i64 = 10;

/// The age of the oldest batch that a worker process is handling, as the process publishes it in Redis. All times are
/// Unix milliseconds by the clock of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WorkInProgress {
    /// The time at which the process published its work in progress.
    pub at_ms: u64,
    /// A time that is earlier than all reads of the entries that the process is still handling. `None` if the process
    /// is handling nothing.
    pub since_ms: Option<u64>,
}

impl WorkInProgress {
    /// Creates the values to publish at the given time of Redis' clock. `oldest` is the age of the oldest batch that
    /// may be in progress.
    #[must_use]
    pub fn at(at_ms: u64, oldest: Option<Duration>) -> Self {
        // Add one, because a fraction of a millisecond that was cut off must not make a batch look younger.
        let age_ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        Self { at_ms, since_ms: oldest.map(|age| at_ms.saturating_sub(age_ms(age))) }
    }

    /// Whether the given moment is earlier than the reads of all entries that the process is still handling, and
    /// earlier than all its future reads.
    #[must_use]
    pub fn is_after(&self, moment_ms: u64) -> bool {
        self.at_ms > moment_ms && self.since_ms.is_none_or(|since_ms| since_ms > moment_ms)
    }
}

/// Writes to Redis the age of the oldest batch that the process `name` is handling. The key expires after some seconds.
///
/// # Errors
/// Fails if Redis does not answer or refuses the call.
pub async fn write(redis: &RedisStore, name: &str, work: WorkInProgress) -> FredResult<()> {
    let json = serde_json::to_string(&work).expect("numbers are JSON");
    redis
        .pool()
        .set(redis.keys().fleet().work_in_progress(name), json, Some(Expiration::EX(KEPT_S)), None, false)
        .await
}

/// Deletes the key with the age of the oldest batch of the process `name`. The process is handling nothing and reads no
/// more entries.
///
/// # Errors
/// Fails like [`write()`]; the note then expires.
pub async fn end(redis: &RedisStore, name: &str) -> FredResult<()> {
    redis.pool().del(redis.keys().fleet().work_in_progress(name)).await
}

/// Reads the names of all running worker processes, each with the age of its oldest batch in progress. `None` for a
/// process whose version publishes no age. If Redis loses the heartbeat of a process, the process is found again after
/// its next heartbeat. Scans all keys.
///
/// # Errors
/// Fails if Redis does not answer, or does not allow SCAN.
pub async fn read_all(redis: &RedisStore) -> FredResult<BTreeMap<String, Option<WorkInProgress>>> {
    let pattern = redis.keys().fleet().heartbeats();
    let mut names: Vec<String> = Vec::new();
    for key in scan_keys(redis.pool(), &pattern.glob()).await? {
        let name = pattern.name(&key).unwrap_or_default();
        // The suffix of the heartbeat's key is before or after the end of its template.
        let of_work =
            key.strip_suffix(super::keys::IN_PROGRESS).and_then(|heartbeat| pattern.name(heartbeat));
        names.push(of_work.unwrap_or(name).to_owned());
    }
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    // Both are read at one moment: the note of a process that was killed may have expired since its key was found.
    let keys = redis.keys().fleet();
    let both: Vec<Key> =
        names.iter().flat_map(|name| [keys.work_in_progress(name), keys.heartbeat(name)]).collect();
    let both: Vec<Value> = redis.pool().mget(both).await?;
    let of_each = names.into_iter().zip(both.chunks_exact(2));
    Ok(of_each.filter_map(|(name, pair)| Some((name, of_process(&pair[0], &pair[1])?))).collect())
}

/// Whether any worker process has a heartbeat, including a process that has read no entries yet. Scans all keys.
///
/// # Errors
/// Fails like [`read_all`].
pub async fn has_sign_of_life(redis: &RedisStore) -> FredResult<bool> {
    Ok(!scan_keys(redis.pool(), &redis.keys().fleet().heartbeats().glob()).await?.is_empty())
}

/// Reads the work in progress of a process from its note and its heartbeat. `None` if the process no longer runs.
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

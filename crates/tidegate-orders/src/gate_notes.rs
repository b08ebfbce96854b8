//! Notes of the gates: the list of partitions that each gate works with.
//!
//! Each gate writes its note to each partition. A command that changes the list waits until no gate works with the old
//! list.

use std::collections::BTreeMap;

use fred::{
    interfaces::KeysInterface,
    prelude::FredResult,
    types::{Expiration, Key},
};

use crate::{
    keys::Pattern,
    scripts::{RedisStore, scan_keys},
};

/// How long Redis keeps a note, in seconds. A gate that lives renews its note in time.
const KEPT_S: i64 = 10;

/// Writes to Redis which list of partitions the gate `name` works with. A gate is an HTTP server that takes orders. The
/// key expires after 10 seconds, unless the gate writes it again.
///
/// # Errors
/// If Redis does not answer or refuses.
pub async fn write(redis: &RedisStore, name: &str, tags: &[String]) -> FredResult<()> {
    let key = redis.keys().partition_list().gate(name);
    redis.pool().set(key, tags.join(","), Some(Expiration::EX(KEPT_S)), None, false).await
}

/// Deletes the key which says which list of partitions the gate (HTTP server) `name` works with, because the gate
/// stops.
///
/// # Errors
/// As [`write()`]. The note then expires by itself.
pub async fn end(redis: &RedisStore, name: &str) -> FredResult<()> {
    // PEXPIRE instead of DEL: so a gate needs no permission for DEL.
    redis.pool().pexpire(redis.keys().partition_list().gate(name), 0, None).await
}

/// Reads for each running gate (HTTP server) the tags (names) of the partitions that the gate works with. Scans all
/// keys.
///
/// # Errors
/// If Redis does not answer, or does not allow SCAN.
pub async fn read_all(redis: &RedisStore) -> FredResult<BTreeMap<String, Vec<String>>> {
    let before = redis.keys().partition_list().gate("");
    let before = before.as_str_lossy();
    let pattern = Pattern::beginning(&before);
    let found: Vec<String> = scan_keys(redis.pool(), &pattern.glob()).await?;
    if found.is_empty() {
        return Ok(BTreeMap::new());
    }
    let notes: Vec<Option<String>> =
        redis.pool().mget(found.iter().map(Key::from).collect::<Vec<_>>()).await?;
    let list = |note: String| note.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    let named = found.iter().zip(notes);
    Ok(named.filter_map(|(key, note)| Some((pattern.name(key)?.to_owned(), list(note?)))).collect())
}

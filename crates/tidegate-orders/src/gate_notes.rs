//! Which list of partitions each gate over HTTP works with, written down by the gates in each partition for those who change the list:
//! they wait until no gate works with the list before.

use std::collections::BTreeMap;

use fred::{
    interfaces::KeysInterface,
    prelude::FredResult,
    types::{Expiration, Key},
};

use crate::{
    gate::{RedisStore, scan_keys},
    keys::Pattern,
};

/// A note that nobody renews is of no gate that lives.
const KEPT_S: i64 = 10;

/// Writes down that the gate `name` works with this list, as Redis keeps it; the note ends by itself after some seconds.
///
/// # Errors
/// When Redis does not answer or refuses.
pub async fn write(redis: &RedisStore, name: &str, tags: &[String]) -> FredResult<()> {
    let key = redis.keys().partition_list().gate(name);
    redis.pool().set(key, tags.join(","), Some(Expiration::EX(KEPT_S)), None, false).await
}

/// The gate `name` works with no list from now on.
///
/// # Errors
/// As [`write()`]; the note ends by itself then.
pub async fn end(redis: &RedisStore, name: &str) -> FredResult<()> {
    // A gate needs no right to delete.
    redis.pool().pexpire(redis.keys().partition_list().gate(name), 0, None).await
}

/// All gates that live and work with a list, by name, with that list. Looks at all keys.
///
/// # Errors
/// When Redis does not answer, or does not allow SCAN.
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

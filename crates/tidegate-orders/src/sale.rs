//! Reads many sales at once: their vouchers and their stocks in Redis.

use std::collections::BTreeSet;

use fred::{
    error::{Error, ErrorKind},
    interfaces::{ClientLike, KeysInterface, ServerInterface},
    prelude::FredResult,
    types::{ClusterHash, CustomCommand, Key, Value},
};

use crate::{
    keys::{Pattern, naming},
    order::VoucherId,
    scripts::RedisStore,
};

/// The number of keys that Redis scans in one step. It serves other clients between steps.
const KEYS_A_STEP: u64 = 1000;

/// Reads the stocks of many vouchers from Redis in one round trip, in the order of `vouchers`. The stock of a voucher
/// with limits is in a key with another name than the stock of a voucher without limits.
///
/// # Errors
/// Fails if Redis does not answer.
pub async fn read_stocks(redis: &RedisStore, vouchers: &[VoucherId]) -> FredResult<Vec<Option<i64>>> {
    if vouchers.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = vouchers
        .iter()
        .flat_map(|voucher| [redis.keys().stock(*voucher), redis.keys().limited(*voucher)])
        .collect();
    let stocks: Vec<Value> = redis.pool().mget(keys).await?;
    Ok(stocks.chunks(2).map(|names| names.iter().find_map(Value::as_i64)).collect())
}

/// Reads the stock of one voucher from Redis. If a key has another type than a string, the error names this key.
///
/// # Errors
/// Fails if Redis does not answer, or if the key has another type or holds no number.
pub async fn read_stock(redis: &RedisStore, voucher: VoucherId) -> FredResult<Option<i64>> {
    let (mut key, mut stock) = (redis.keys().stock(voucher), None);
    for name in [redis.keys().stock(voucher), redis.keys().limited(voucher)] {
        stock = redis.pool().get::<Option<String>, _>(&name).await.map_err(|error| naming(&name, error))?;
        if stock.is_some() {
            key = name;
            break;
        }
    }
    let no_number = |text: &str| {
        let key = key.as_str_lossy();
        Error::new(ErrorKind::Parse, format!("{key} holds {text:?}, which is not a number"))
    };
    stock.map(|text| text.parse().map_err(|_| no_number(&text))).transpose()
}

/// Counts all keys in Redis, for an estimate of how long a scan takes. Each `find` function of this module scans all
/// keys, and [`find_loaded`] scans all keys twice.
///
/// # Errors
/// Fails if Redis does not answer.
pub async fn count_keys(redis: &RedisStore) -> FredResult<u64> {
    redis.pool().next().dbsize().await
}

/// Finds all vouchers that have a stock in Redis, with limits or without. The scripts admit orders only for these
/// vouchers. Scans all keys twice, and calls `looked` with the number of keys in each step. A voucher that is loaded
/// during the scan may be missing.
///
/// # Errors
/// Fails if Redis does not answer, or does not allow SCAN.
pub async fn find_loaded(redis: &RedisStore, mut looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    let mut found = find(redis, redis.keys().stocks(), &mut looked).await?;
    found.extend(find(redis, redis.keys().limited_stocks(), looked).await?);
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Finds all vouchers whose sale times or sale state are in Redis. Scans all keys, like [`find_loaded`].
///
/// # Errors
/// Fails like [`find_loaded`].
pub async fn find_known(redis: &RedisStore, looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    find(redis, redis.keys().vouchers(), looked).await
}

/// Finds all vouchers that have a journal (notes about orders) in Redis, so orders of these vouchers were placed,
/// whatever MySQL contains. Scans all keys, like [`find_loaded`].
///
/// # Errors
/// Fails like [`find_loaded`].
pub async fn find_journaled(redis: &RedisStore, looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    find(redis, redis.keys().journals(), looked).await
}

/// Finds all vouchers for which Redis has a set of buyers. Scans all keys, like [`find_loaded`].
///
/// # Errors
/// Fails like [`find_loaded`].
pub async fn find_bought(redis: &RedisStore, looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    find(redis, redis.keys().all_buyers(), looked).await
}

/// Finds the first `limit` keys that end with the id of the given voucher and do not match the configured templates.
/// Such keys come from a producer with other templates. Scans all keys.
///
/// # Errors
/// Fails like [`find_loaded`].
pub async fn find_named_after(
    redis: &RedisStore,
    voucher: VoucherId,
    limit: usize,
) -> FredResult<Vec<String>> {
    let scan = CustomCommand::new_static("SCAN", ClusterHash::Random, false);
    let (glob, mut cursor, mut found) = (format!("*{voucher}"), "0".to_owned(), BTreeSet::new());
    loop {
        let args: Vec<Value> = vec![
            cursor.into(),
            "MATCH".into(),
            glob.as_str().into(),
            "COUNT".into(),
            KEYS_A_STEP.to_string().into(),
        ];
        let (next, page): (String, Vec<Value>) = redis.pool().next().custom(scan.clone(), args).await?;
        // Voucher 7 is not part of 17.
        let is_whole = |key: &String| {
            let before = key.strip_suffix(&voucher.to_string());
            let is_number =
                before.is_some_and(|before| !before.ends_with(|last: char| last.is_ascii_digit()));
            // The digest of a client's idempotency key may end like any voucher.
            is_number && !redis.keys().is_idempotency(key)
        };
        found.extend(page.iter().filter_map(Value::as_string).filter(is_whole));
        if next == "0" || found.len() >= limit {
            return Ok(found.into_iter().take(limit).collect());
        }
        cursor = next;
    }
}

/// Finds only vouchers that belong to the partition of these keys: keys of other partitions only show where those
/// vouchers were once.
async fn find(
    redis: &RedisStore,
    pattern: Pattern<'_>,
    mut looked: impl FnMut(u64),
) -> FredResult<Vec<VoucherId>> {
    let scan = CustomCommand::new_static("SCAN", ClusterHash::Random, false);
    let (glob, mut cursor) = (pattern.glob(), "0".to_owned());
    // A set, because SCAN may return a key twice.
    let mut found = BTreeSet::new();
    loop {
        let args: Vec<Value> = vec![
            cursor.into(),
            "MATCH".into(),
            glob.as_str().into(),
            "COUNT".into(),
            KEYS_A_STEP.to_string().into(),
        ];
        let (next, names): (String, Vec<Value>) = redis.pool().next().custom(scan.clone(), args).await?;
        let vouchers = names.iter().filter_map(|name| pattern.voucher(&name.as_str()?));
        found.extend(vouchers.filter(|voucher| redis.keys().partition().owns(*voucher)));
        looked(KEYS_A_STEP);
        if next == "0" {
            return Ok(found.into_iter().collect());
        }
        cursor = next;
    }
}

//! Many sales at once: which there are, and their stocks.

use std::collections::BTreeSet;

use fred::{
    error::{Error, ErrorKind},
    interfaces::{ClientLike, KeysInterface, ServerInterface},
    prelude::FredResult,
    types::{ClusterHash, CustomCommand, Key, Value},
};

use crate::{
    gate::RedisStore,
    keys::{Pattern, naming},
    order::VoucherId,
};

/// Keys that Redis looks at in one step. It serves others between steps.
const KEYS_A_STEP: u64 = 1000;

/// Reads the stocks of many vouchers in one round trip, in that order, under the one name or the other: with limits or without.
///
/// # Errors
/// When Redis does not answer.
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

/// The stock of one voucher; an error names the key that holds something else than a string.
///
/// # Errors
/// When Redis does not answer, or the key is of another type or holds no number.
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
        Error::new(ErrorKind::Parse, format!("{key} holds {text:?}, which is no number"))
    };
    stock.map(|text| text.parse().map_err(|_| no_number(&text))).transpose()
}

/// How many keys Redis holds, of whatever kind. Each `find` here looks at all of them, [`find_loaded`] twice.
///
/// # Errors
/// When Redis does not answer.
pub async fn count_keys(redis: &RedisStore) -> FredResult<u64> {
    redis.pool().next().dbsize().await
}

/// All vouchers that have a stock in Redis, with limits or without: the gate admits orders for no others. Looks at all keys
/// twice, and calls `looked` with the number of keys of each step. A voucher that is loaded meanwhile may be missing.
///
/// # Errors
/// When Redis does not answer, or does not allow SCAN.
pub async fn find_loaded(redis: &RedisStore, mut looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    let mut found = find(redis, redis.keys().stocks(), &mut looked).await?;
    found.extend(find(redis, redis.keys().limited_stocks(), looked).await?);
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// All vouchers of which Redis holds a window or a state. As [`find_loaded`].
///
/// # Errors
/// As [`find_loaded`].
pub async fn find_known(redis: &RedisStore, looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    find(redis, redis.keys().vouchers(), looked).await
}

/// All vouchers that have a journal in Redis: orders were admitted for them, whatever MySQL knows. As [`find_loaded`].
///
/// # Errors
/// As [`find_loaded`].
pub async fn find_journaled(redis: &RedisStore, looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    find(redis, redis.keys().journals(), looked).await
}

/// All vouchers that have buyers in Redis. As [`find_loaded`].
///
/// # Errors
/// As [`find_loaded`].
pub async fn find_bought(redis: &RedisStore, looked: impl FnMut(u64)) -> FredResult<Vec<VoucherId>> {
    find(redis, redis.keys().all_buyers(), looked).await
}

/// Keys that end with the number of this voucher, whatever they are called, the first `limit` of them: what a producer with
/// other templates has, and nothing of ours. Looks at all keys.
///
/// # Errors
/// As [`find_loaded`].
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
        // 7 is no part of 17.
        let is_whole = |key: &String| {
            let before = key.strip_suffix(&voucher.to_string());
            let is_number =
                before.is_some_and(|before| !before.ends_with(|last: char| last.is_ascii_digit()));
            // The digest of a caller's key may end like any voucher.
            is_number && !redis.keys().is_idempotency(key)
        };
        found.extend(page.iter().filter_map(Value::as_string).filter(is_whole));
        if next == "0" || found.len() >= limit {
            return Ok(found.into_iter().take(limit).collect());
        }
        cursor = next;
    }
}

/// Only vouchers that belong to the partition of these keys: what is left of others says where they were once.
async fn find(
    redis: &RedisStore,
    pattern: Pattern<'_>,
    mut looked: impl FnMut(u64),
) -> FredResult<Vec<VoucherId>> {
    let scan = CustomCommand::new_static("SCAN", ClusterHash::Random, false);
    let (glob, mut cursor) = (pattern.glob(), "0".to_owned());
    // A set, because SCAN may show a key twice.
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

//! What Redis holds of a voucher's sale. Reads only.

use fred::{
    clients::Pool,
    interfaces::{HashesInterface, KeysInterface, SetsInterface},
    prelude::FredResult,
    types::{Key, Value},
};
use serde::Serialize;

use crate::{keys::Keys, order::VoucherId};

/// The Redis side of a voucher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sale {
    /// Units left; None where no stock is loaded.
    pub stock: Option<i64>,
    /// Users who were admitted.
    pub buyers: u64,
    /// Orders in the journal, admitted or given back.
    pub journal: u64,
    /// The sale begins, Unix time in milliseconds; None = no bound.
    pub begin_ms: Option<i64>,
    /// The sale ends, Unix time in milliseconds; None = no bound.
    pub end_ms: Option<i64>,
    /// `paused`, or None.
    pub state: Option<String>,
}

impl Sale {
    /// Whether the gate may still admit to it: a stock is loaded and the sale has not ended.
    #[must_use]
    pub fn is_open(&self, now_ms: i64) -> bool {
        self.stock.is_some() && self.end_ms.is_none_or(|end_ms| now_ms < end_ms)
    }
}

/// Reads the Redis side of a voucher.
///
/// # Errors
/// When Redis does not answer, or a key holds something of another type.
pub async fn read_sale(pool: &Pool, keys: &Keys, voucher: VoucherId) -> FredResult<Sale> {
    let window: Vec<Option<String>> =
        pool.hmget(keys.voucher(voucher), vec!["begin_ms", "end_ms", "state"]).await?;
    let [begin_ms, end_ms, state] = <[_; 3]>::try_from(window).unwrap_or_default();
    let millis = |text: Option<String>| text.and_then(|text| text.parse().ok());
    Ok(Sale {
        stock: pool.get(keys.stock(voucher)).await?,
        buyers: pool.scard(keys.buyers(voucher)).await?,
        journal: pool.hlen(keys.journal(voucher)).await?,
        begin_ms: millis(begin_ms),
        end_ms: millis(end_ms),
        state,
    })
}

/// Reads the stocks of many vouchers in one round trip, in that order.
///
/// # Errors
/// When Redis does not answer.
pub async fn read_stocks(pool: &Pool, keys: &Keys, vouchers: &[VoucherId]) -> FredResult<Vec<Option<i64>>> {
    if vouchers.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = vouchers.iter().map(|voucher| keys.stock(*voucher)).collect();
    let stocks: Vec<Value> = pool.mget(keys).await?;
    Ok(stocks.iter().map(Value::as_i64).collect())
}

/// Which of the worker processes of these names have a heartbeat, in that order, in one round trip.
///
/// # Errors
/// When Redis does not answer.
pub async fn read_heartbeats(pool: &Pool, keys: &Keys, names: &[String]) -> FredResult<Vec<bool>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = names.iter().map(|name| keys.heartbeat(name)).collect();
    let beats: Vec<Value> = pool.mget(keys).await?;
    Ok(beats.iter().map(|beat| !beat.is_null()).collect())
}

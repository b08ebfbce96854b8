//! The stocks of many sales at once.

use fred::{
    clients::Pool,
    interfaces::KeysInterface,
    prelude::FredResult,
    types::{Key, Value},
};

use crate::{keys::Keys, order::VoucherId};

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

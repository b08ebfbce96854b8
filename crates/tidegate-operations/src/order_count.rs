//! The number of orders of each day or hour, by the times in their ids, and the number of ids that were allocated.

use std::collections::BTreeMap;

use anyhow::Context;
use fred::interfaces::KeysInterface;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    Records, VoucherId,
    order_id::{EPOCH_SECONDS, day_text, ids_of},
};

use crate::Stores;

const SECONDS_OF_A_DAY: i64 = 86_400;

/// The time that one row of the report covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountBy {
    /// One row for each day in UTC.
    Day,
    /// One row for each hour in UTC.
    Hour,
}

impl CountBy {
    const fn seconds(self) -> i64 {
        match self {
            Self::Day => SECONDS_OF_A_DAY,
            Self::Hour => 3_600,
        }
    }
}

/// The request to count orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRequest {
    /// The time that one row covers.
    pub by: CountBy,
    /// The voucher whose orders are counted; None: all vouchers.
    pub voucher: Option<VoucherId>,
    /// The number of days to count, up to today; at least 1.
    pub days: u16,
}

/// The orders of a day or an hour, by the times in their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrdersOf {
    /// The start of the day or hour, in Unix milliseconds.
    pub from_ms: i64,
    /// The orders that have a row in MySQL.
    pub orders: i64,
    /// The units of these orders.
    pub units: i64,
    /// The number of these orders that still hold their units.
    pub live: i64,
    /// The orders that MySQL has refused.
    pub refused: i64,
    /// The order ids that the counter in Redis has allocated. None: ids are not counted by hours or vouchers, or the
    /// day has no counter.
    pub ids: Option<i64>,
    /// The allocated ids without an order or a refusal in MySQL. None: this is unknown, also if the counter is
    /// behind.
    pub without_order: Option<i64>,
    /// Whether there are more orders than allocated ids: a failover set the counter back, or producers make their own
    /// ids.
    pub is_counter_behind: bool,
}

/// The orders counted by day or hour.
#[derive(Clone, Debug, Serialize)]
pub struct OrderCountReport {
    /// The time that one row covers.
    pub by: CountBy,
    /// The voucher whose orders are counted; None: all vouchers.
    pub voucher: Option<VoucherId>,
    /// Each day or hour with an order or an id, oldest first.
    pub counts: Vec<OrdersOf>,
}

/// Counts the orders of these days. It reads their rows by id.
///
/// # Errors
/// If a store does not answer.
pub async fn count(stores: &Stores, request: CountRequest) -> anyhow::Result<OrderCountReport> {
    let (redis, mysql) = stores.both().await?;
    let CountRequest { by, voucher, days } = request;
    let today = Timestamp::now().as_second().div_euclid(SECONDS_OF_A_DAY);
    let days: Vec<i64> = (today + 1 - i64::from(days.max(1))..=today).collect();
    let mut counts: BTreeMap<i64, OrdersOf> = BTreeMap::new();
    let records = Records::new(mysql, redis.partition());
    let found = match days.first().and_then(|first| ids_of(*first)).zip(ids_of(today)) {
        Some((first, last)) => {
            let ids = *first.start()..=*last.end();
            records.counts().by_time(voucher, ids, (EPOCH_SECONDS, by.seconds())).await
        }
        None => Ok(Vec::new()),
    };
    for count in found.context("Failed to count orders in MySQL")? {
        let of = counts.entry(count.from_s).or_default();
        of.orders += count.orders;
        of.units += count.units;
        of.live += count.live;
        of.refused += count.refused;
    }
    if by == CountBy::Day && voucher.is_none() {
        let keys = redis.keys();
        for day in days {
            let given: Option<i64> = redis
                .pool()
                .get(keys.order_id(&day_text(day)))
                .await
                .context("Failed to read the counter of order ids")?;
            if let Some(given) = given {
                let of = counts.entry(day * SECONDS_OF_A_DAY).or_default();
                let without_order = given - of.orders - of.refused;
                of.ids = Some(given);
                of.without_order = Some(without_order).filter(|without| *without >= 0);
                of.is_counter_behind = without_order < 0;
            }
        }
    }
    let counts = counts.into_iter().map(|(second, of)| OrdersOf { from_ms: second * 1000, ..of }).collect();
    Ok(OrderCountReport { by, voucher, counts })
}

//! The number of orders of each day or hour, by the times in their ids, and the number of ids that were allocated.

use std::collections::BTreeMap;

use anyhow::Context;
use fred::interfaces::KeysInterface;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    Records, VoucherId,
    order_id::{EPOCH_SECONDS, day_text, ids_between},
};

use crate::Stores;

const SECONDS_OF_A_DAY: i64 = 86_400;

/// The length of time that one row of the report covers: a day or an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountBy {
    /// One row for each day.
    Day,
    /// One row for each hour.
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
    /// The length of time that one row of the report covers.
    pub by: CountBy,
    /// The voucher whose orders are counted; None: all vouchers.
    pub voucher: Option<VoucherId>,
    /// The number of days to count, including today; at least 1.
    pub days: u16,
    /// The offset from UTC at which days and hours begin, in seconds, positive east of Greenwich.
    pub offset_s: i32,
}

/// The number of orders in one day or one hour, by the times in the order ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrdersOf {
    /// The start of the day or the hour, in Unix milliseconds.
    pub from_ms: i64,
    /// The number of orders that have a row in MySQL.
    pub orders: i64,
    /// The number of units of the orders that have a row in MySQL.
    pub units: i64,
    /// The number of orders that are not cancelled or refunded, and so still hold their units.
    pub live: i64,
    /// The number of orders that MySQL refused.
    pub refused: i64,
    /// The number of order ids that Redis has allocated on this day. None: Redis has no counter for this day, because
    /// it counts by days in UTC, or the request asks for hours or for one voucher.
    pub ids: Option<i64>,
    /// The number of allocated ids for which MySQL has neither an order nor a refusal. None: this number is unknown,
    /// for example because the counter in Redis is too low.
    pub without_order: Option<i64>,
    /// Whether the counter of allocated ids is lower than the number of orders, because a failover reset the counter,
    /// or because producers allocate their own ids.
    pub is_counter_behind: bool,
}

/// The number of orders in each day or hour.
#[derive(Clone, Debug, Serialize)]
pub struct OrderCountReport {
    /// The length of time that one row of the report covers.
    pub by: CountBy,
    /// The voucher whose orders are counted; None: all vouchers.
    pub voucher: Option<VoucherId>,
    /// The offset from UTC at which days and hours begin, in seconds, positive east of Greenwich.
    pub offset_s: i32,
    /// The counts of each day or hour that has an order or an order id, oldest first.
    pub counts: Vec<OrdersOf>,
}

/// Counts the orders of the requested days. The time in the id of an order says on which day it was placed.
///
/// # Errors
/// If a store does not answer.
pub async fn count(stores: &Stores, request: CountRequest) -> anyhow::Result<OrderCountReport> {
    let (redis, mysql) = stores.both().await?;
    let CountRequest { by, voucher, days, offset_s } = request;
    let offset = i64::from(offset_s);
    let before = (Timestamp::now().as_second() + offset).div_euclid(SECONDS_OF_A_DAY) + 1;
    let first = before - i64::from(days.max(1));
    let mut counts: BTreeMap<i64, OrdersOf> = BTreeMap::new();
    let records = Records::new(mysql, redis.keys().partition());
    let found = match ids_between(first * SECONDS_OF_A_DAY - offset, before * SECONDS_OF_A_DAY - offset) {
        Some(ids) => records.counts().by_time(voucher, ids, (EPOCH_SECONDS + offset, by.seconds())).await,
        None => Ok(Vec::new()),
    };
    for count in found.context("Failed to count orders in MySQL")? {
        let of = counts.entry(count.from_s - offset).or_default();
        of.orders += count.orders;
        of.units += count.units;
        of.live += count.live;
        of.refused += count.refused;
    }
    // Redis counts ids by day in UTC.
    if by == CountBy::Day && voucher.is_none() && offset_s == 0 {
        let keys = redis.keys();
        for day in first..before {
            let given: Option<i64> = redis
                .pool()
                .get(keys.order_id(&day_text(day)))
                .await
                .context("Failed to read the counter of order ids in Redis")?;
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
    Ok(OrderCountReport { by, voucher, offset_s, counts })
}

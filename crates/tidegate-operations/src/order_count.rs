//! How many orders there are of each day or hour, by their ids, and how many ids were given out.

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

/// The length of a row of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountBy {
    /// A day of UTC.
    Day,
    /// An hour of it.
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

/// What is to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRequest {
    /// By what.
    pub by: CountBy,
    /// Orders of this voucher only.
    pub voucher: Option<VoucherId>,
    /// So many days, the last of which is today; at least 1.
    pub days: u16,
}

/// The orders of a day or an hour, by the time that their ids name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrdersOf {
    /// When it begins, in Unix milliseconds.
    pub from_ms: i64,
    /// Orders that MySQL has.
    pub orders: i64,
    /// Units of these.
    pub units: i64,
    /// Those of them that hold their units still.
    pub live: i64,
    /// Orders that MySQL has refused.
    pub refused: i64,
    /// Order ids that the counter in Redis has given out. None: it is not counted by hours or vouchers, or has no counter for the day.
    pub ids: Option<i64>,
    /// Of these, the ones that MySQL knows nothing of. None: nobody can tell, as also where the counter is behind.
    pub without_order: Option<i64>,
    /// There are more orders than ids that were given out: a failover set the counter back, or producers make ids of their own.
    pub is_counter_behind: bool,
}

/// Orders by day or hour.
#[derive(Clone, Debug, Serialize)]
pub struct OrderCountReport {
    /// By what.
    pub by: CountBy,
    /// Of this voucher only.
    pub voucher: Option<VoucherId>,
    /// Each day or hour with an order or an id, the oldest first.
    pub counts: Vec<OrdersOf>,
}

/// Counts. Reads the rows of these days, by their ids.
///
/// # Errors
/// When a store does not answer.
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

//! A voucher as both stores have it, and the differences between them.

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    DeadLetters, Records, RedisStore, VoucherId,
    records::vouchers::{self, VoucherRow, VoucherUnits},
    scripts::VoucherState,
};
use tidegate_stream::EntryId;

use crate::{settings::SystemSettings, status::units_to_deduct};

/// The dead letters that are read, at once and in all.
const LETTERS_A_PAGE: u16 = 500;
const MOST_LETTERS: usize = 10_000;

/// A voucher with its data in Redis and its data in MySQL.
#[derive(Debug, Serialize)]
pub struct VoucherSides {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The voucher in Redis; None: Redis has no key of the voucher.
    pub redis: Option<VoucherInRedis>,
    /// The voucher in MySQL; None: MySQL has no row of the voucher.
    pub mysql: Option<VoucherInMySql>,
    /// The number of dead letters that exist because MySQL does not know the voucher. They are counted only if MySQL
    /// has no row of the voucher.
    pub dead: DeadLetterCounts,
    /// The key of the voucher's stock in Redis.
    #[serde(skip)]
    pub stock_key: String,
}

/// The number of dead letters of a voucher, and the number of units in these letters.
#[derive(Debug, Default, Serialize)]
pub struct DeadLetterCounts {
    /// The number of dead letters.
    pub letters: u64,
    /// The number of units in the orders of the dead letters.
    pub units: i64,
    /// Whether there are more dead letters than were counted.
    pub at_least: bool,
}

/// A voucher as Redis stores it.
#[derive(Debug, Serialize)]
pub struct VoucherInRedis {
    /// The number of units left in Redis; None: Redis has no stock of the voucher.
    pub stock: Option<i64>,
    /// The number of users who bought the voucher.
    pub buyers: u64,
    /// The number of orders in the voucher's journal, the Redis hash with a note for each admitted or released order.
    pub journaled: u64,
    /// The time when the sale begins; None: Redis stores no such time.
    pub begin: Option<Timestamp>,
    /// The time when the sale ends; None: the sale never ends.
    pub end: Option<Timestamp>,
    /// Whether an operator paused the sale.
    pub paused: bool,
    /// The time when the sale was ended permanently; None: the sale was not ended, or the voucher's keys are
    /// removed.
    pub delisted: Option<Timestamp>,
}

/// A voucher as MySQL stores it.
#[derive(Debug, Serialize)]
pub struct VoucherInMySql {
    /// The number of units left in the voucher's row.
    pub stock: i64,
    /// The number of units at the start of the sale; None: this number is unknown.
    pub initial_stock: Option<i64>,
    /// The time limit for the payment of an order, in seconds. 0: orders never expire. None: the time limit of the
    /// configuration applies.
    pub pay_within_s: Option<i64>,
    /// The number of the voucher's orders, including cancelled orders.
    pub orders: i64,
    /// The number of unsold units, and of units in orders of each status.
    pub units: VoucherUnits,
    /// The time when the sale begins.
    pub begin: Option<Timestamp>,
    /// The time when the sale ends; None: the sale never ends.
    pub end: Option<Timestamp>,
    /// The time when the sale was ended permanently; None: the sale was not ended.
    pub delisted: Option<Timestamp>,
}

/// A difference between the voucher's data in Redis and in MySQL, or another problem of the voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoucherMismatch {
    /// Neither store knows the voucher.
    Unknown,
    /// MySQL has the row of the voucher, without orders, and Redis does not sell it.
    NotLoaded {
        /// The units left in MySQL.
        stock: i64,
    },
    /// The sale of the voucher has ended forever.
    Delisted {
        /// Whether keys of the voucher are still in Redis.
        has_keys: bool,
        /// Whether the delisting has not reached Redis, so that Redis may still sell the voucher.
        is_unfinished: bool,
    },
    /// Redis does not sell the voucher any more, and its sale has ended.
    SaleOver {
        /// The voucher's orders in MySQL.
        orders: i64,
    },
    /// Redis does not sell the voucher any more, but its sale has not ended.
    StockLost {
        /// The voucher's orders in MySQL.
        orders: i64,
    },
    /// Redis sells the voucher, and MySQL has no row of it.
    NoRow {
        /// The units left in Redis.
        left: i64,
        /// Whether the orders were admitted by Tidegate's scripts, which took their units.
        is_taken: bool,
    },
    /// Redis offers units that MySQL does not have.
    MoreInRedis {
        /// The number of units that Redis offers in excess.
        units: i64,
    },
    /// Units were taken in Redis whose orders are not in MySQL.
    LessInRedis {
        /// The number of units whose orders are missing in MySQL.
        units: i64,
    },
    /// Units are in orders whose slot and status contradict each other.
    Contradictory {
        /// The number of units in contradictory orders.
        units: i64,
    },
    /// The loaded units are not the sum of unsold units and units in orders, because another program changed rows or
    /// the stock. A negative number means that there are more units than were loaded.
    Unaccounted {
        /// The number of units that are unaccounted for.
        units: i64,
    },
    /// The stores have different ends of the sale.
    OtherEnd,
    /// An operator has paused the sale.
    Paused,
}

impl VoucherSides {
    /// Returns whether neither Redis nor MySQL has the voucher.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.redis.is_none() && self.mysql.is_none()
    }

    /// Returns the number of units that Redis has sold, but that are in no order in MySQL. The orders of these units
    /// are not written yet, are dead letters, or are lost. A negative number means that Redis offers more units than
    /// MySQL has.
    #[must_use]
    pub fn in_flight(&self) -> Option<i64> {
        Some(units_to_deduct(self.mysql.as_ref()?.units.unsold?, self.redis.as_ref()?.stock?))
    }

    /// Returns the differences between Redis and MySQL at this time.
    #[must_use]
    pub fn differences(&self, now: Timestamp) -> Vec<VoucherMismatch> {
        let (redis, mysql) = (self.redis.as_ref(), self.mysql.as_ref());
        let ends = redis.and_then(|redis| redis.end).zip(mysql.and_then(|mysql| mysql.end));
        // MySQL stores whole seconds.
        let other_end = ends.is_some_and(|(redis, mysql)| (redis.as_second() - mysql.as_second()).abs() > 1);
        let paused = redis.is_some_and(|redis| redis.paused);
        let units = mysql.map(|mysql| mysql.units).unwrap_or_default();
        let (contradictory, unaccounted) = (units.contradictory, units.unaccounted.unwrap_or_default());
        let differences = [
            self.delisted(),
            self.stock_difference(now),
            (contradictory != 0).then_some(VoucherMismatch::Contradictory { units: contradictory }),
            (unaccounted != 0).then_some(VoucherMismatch::Unaccounted { units: unaccounted }),
            other_end.then_some(VoucherMismatch::OtherEnd),
            paused.then_some(VoucherMismatch::Paused),
        ];
        differences.into_iter().flatten().collect()
    }

    fn delisted(&self) -> Option<VoucherMismatch> {
        self.mysql.as_ref()?.delisted?;
        let is_unfinished = self.redis.as_ref().is_some_and(|redis| redis.delisted.is_none());
        Some(VoucherMismatch::Delisted { has_keys: self.redis.is_some(), is_unfinished })
    }

    fn stock_difference(&self, now: Timestamp) -> Option<VoucherMismatch> {
        if self.redis.is_none() && self.delisted().is_some() {
            return None;
        }
        match (self.redis.as_ref().and_then(|redis| redis.stock), &self.mysql) {
            (None, None) => Some(VoucherMismatch::Unknown),
            (None, Some(VoucherInMySql { stock, orders: 0, .. })) => {
                Some(VoucherMismatch::NotLoaded { stock: *stock })
            }
            (None, Some(VoucherInMySql { orders, end, .. })) if end.is_some_and(|end| end <= now) => {
                Some(VoucherMismatch::SaleOver { orders: *orders })
            }
            (None, Some(VoucherInMySql { orders, .. })) => {
                Some(VoucherMismatch::StockLost { orders: *orders })
            }
            (Some(left), None) => {
                let is_taken = self.redis.as_ref().is_some_and(|redis| redis.buyers + redis.journaled > 0);
                Some(VoucherMismatch::NoRow { left, is_taken })
            }
            (Some(redis), Some(mysql)) if redis > mysql.stock => {
                Some(VoucherMismatch::MoreInRedis { units: redis - mysql.stock })
            }
            (Some(redis), Some(mysql)) if redis < mysql.stock => {
                Some(VoucherMismatch::LessInRedis { units: mysql.stock - redis })
            }
            (Some(_), Some(_)) => None,
        }
    }
}

/// Reads the voucher from Redis and MySQL.
///
/// # Errors
/// If a store does not answer.
pub async fn read(
    settings: &SystemSettings,
    (redis, mysql): (&RedisStore, &MySqlPool),
    voucher: VoucherId,
) -> anyhow::Result<VoucherSides> {
    let keys = redis.keys();
    let state = redis.sales().read_voucher(voucher).await.context("Failed to read the voucher in Redis")?;
    let row = vouchers::find(mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
    let records = Records::new(mysql, settings.partition());
    let orders =
        records.counts().of_voucher(voucher).await.context("Failed to count the orders of the voucher")?;
    let units = vouchers::units(mysql, voucher).await.context("Failed to count the units of the voucher")?;
    let dead = match row {
        Some(_) => DeadLetterCounts::default(),
        None => {
            let letters = DeadLetters::new(redis.clone());
            dead_letters(&letters, voucher).await?
        }
    };
    Ok(VoucherSides {
        voucher,
        redis: redis_side(&state),
        mysql: row.map(|row| mysql_side(&row, orders, units.unwrap_or_default())),
        dead,
        stock_key: keys.stock(voucher).as_str_lossy().into_owned(),
    })
}

/// Counts the voucher's letters among the oldest dead letters.
async fn dead_letters(letters: &DeadLetters, voucher: VoucherId) -> anyhow::Result<DeadLetterCounts> {
    let (mut after, mut looked_at, mut found) = (EntryId::MIN, 0, DeadLetterCounts::default());
    loop {
        let page = letters.page((after, EntryId::MAX), LETTERS_A_PAGE).await;
        let page = page.context("Failed to read the dead letters")?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.id;
        looked_at += page.len();
        for order in page.iter().filter_map(|letter| letters.order_of(letter).ok()) {
            if order.voucher == voucher {
                found.letters += 1;
                found.units += order.quantity.get();
            }
        }
        if looked_at >= MOST_LETTERS {
            found.at_least = true;
            return Ok(found);
        }
    }
}

fn redis_side(state: &VoucherState) -> Option<VoucherInRedis> {
    let side = VoucherInRedis {
        stock: state.stock,
        buyers: state.buyers,
        journaled: state.journaled,
        begin: state.window.begin,
        end: state.window.end,
        paused: state.pause.is_paused(),
        delisted: state.delisted_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
    };
    let is_empty = side.stock.is_none()
        && side.buyers + side.journaled == 0
        && side.begin.or(side.end).is_none()
        && !side.paused;
    (!is_empty).then_some(side)
}

fn mysql_side(row: &VoucherRow, orders: i64, units: VoucherUnits) -> VoucherInMySql {
    let moment = |ms: Option<i64>| ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    VoucherInMySql {
        stock: row.stock,
        initial_stock: row.initial_stock,
        pay_within_s: row.pay_within_s,
        orders,
        units,
        begin: moment(row.begin_ms),
        end: moment(row.end_ms),
        delisted: moment(row.delisted_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(redis: Option<(i64, u64)>, mysql: Option<(i64, i64)>) -> VoucherSides {
        let (begin, end) = (None, Some(Timestamp::from_second(2_000).unwrap()));
        VoucherSides {
            voucher: VoucherId::try_from(7).unwrap(),
            redis: redis.map(|(stock, buyers)| VoucherInRedis {
                stock: Some(stock),
                buyers,
                journaled: buyers,
                begin,
                end,
                paused: false,
                delisted: None,
            }),
            mysql: mysql.map(|(stock, orders)| VoucherInMySql {
                stock,
                initial_stock: None,
                pay_within_s: None,
                orders,
                units: VoucherUnits::default(),
                begin,
                end,
                delisted: None,
            }),
            dead: DeadLetterCounts::default(),
            stock_key: String::new(),
        }
    }

    #[test]
    fn each_difference_of_the_stocks_has_its_meaning() {
        for (redis, mysql, at, expected) in [
            (None, None, 1_000, Some(VoucherMismatch::Unknown)),
            (None, Some((5, 0)), 1_000, Some(VoucherMismatch::NotLoaded { stock: 5 })),
            (None, Some((5, 1)), 1_000, Some(VoucherMismatch::StockLost { orders: 1 })),
            (None, Some((5, 1)), 2_000, Some(VoucherMismatch::SaleOver { orders: 1 })),
            (Some((5, 0)), None, 1_000, Some(VoucherMismatch::NoRow { left: 5, is_taken: false })),
            (Some((5, 1)), None, 1_000, Some(VoucherMismatch::NoRow { left: 5, is_taken: true })),
            (Some((5, 1)), Some((4, 1)), 1_000, Some(VoucherMismatch::MoreInRedis { units: 1 })),
            (Some((4, 1)), Some((5, 1)), 1_000, Some(VoucherMismatch::LessInRedis { units: 1 })),
            (Some((5, 1)), Some((5, 1)), 1_000, None),
        ] {
            let found = sides(redis, mysql).differences(Timestamp::from_second(at).unwrap());
            assert_eq!(found, Vec::from_iter(expected), "{redis:?} {mysql:?}");
        }
    }

    #[test]
    fn ends_are_compared_as_mysql_keeps_them_and_a_pause_is_named() {
        let (mut both, now) = (sides(Some((5, 1)), Some((5, 1))), Timestamp::from_second(1_000).unwrap());
        let redis = both.redis.as_mut().unwrap();
        redis.end = Some(Timestamp::from_millisecond(2_000_900).unwrap());
        redis.paused = true;
        assert_eq!(both.differences(now), [VoucherMismatch::Paused]);
        both.redis.as_mut().unwrap().end = Some(Timestamp::from_second(2_002).unwrap());
        assert_eq!(both.differences(now), [VoucherMismatch::OtherEnd, VoucherMismatch::Paused]);
    }

    #[test]
    fn units_that_contradict_or_are_missing_are_named() {
        let (mut both, now) = (sides(Some((5, 1)), Some((5, 1))), Timestamp::from_second(1_000).unwrap());
        let units = &mut both.mysql.as_mut().unwrap().units;
        *units = VoucherUnits {
            unsold: Some(7),
            contradictory: 3,
            unaccounted: Some(-2),
            ..VoucherUnits::default()
        };
        let expected =
            [VoucherMismatch::Contradictory { units: 3 }, VoucherMismatch::Unaccounted { units: -2 }];
        assert_eq!((&both.differences(now)[..], both.in_flight()), (&expected[..], Some(2)));
    }
}

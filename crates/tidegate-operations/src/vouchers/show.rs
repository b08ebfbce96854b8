//! What both sides hold of a voucher, and where they differ.

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    DeadLetters, Records, RedisStore, VoucherId,
    gate::VoucherState,
    records::vouchers::{self, VoucherRow, VoucherUnits},
};
use tidegate_stream::EntryId;

use crate::{settings::SystemSettings, status::units_to_deduct};

/// Dead letters that are looked at, at once and in all.
const LETTERS_A_PAGE: u16 = 500;
const MOST_LETTERS: usize = 10_000;

/// What both sides hold of a voucher.
#[derive(Debug, Serialize)]
pub struct VoucherSides {
    /// The voucher.
    pub voucher: VoucherId,
    /// None where no key of it exists.
    pub redis: Option<VoucherInRedis>,
    /// None where it has no row.
    pub mysql: Option<VoucherInMySql>,
    /// Letters that say that MySQL does not know it; looked for only where it does not.
    pub dead: DeadLetterCounts,
    /// The key of its stock in Redis.
    #[serde(skip)]
    pub stock_key: String,
}

/// Dead letters of a voucher.
#[derive(Debug, Default, Serialize)]
pub struct DeadLetterCounts {
    /// How many.
    pub letters: u64,
    /// Units in their orders.
    pub units: i64,
    /// Not all letters were looked at.
    pub at_least: bool,
}

/// What Redis holds.
#[derive(Debug, Serialize)]
pub struct VoucherInRedis {
    /// Units left; None: no key of that.
    pub stock: Option<i64>,
    /// Who bought it.
    pub buyers: u64,
    /// Orders with a journal entry, admitted or released.
    pub journaled: u64,
    /// The sale begins.
    pub begin: Option<Timestamp>,
    /// The sale ends.
    pub end: Option<Timestamp>,
    /// Nobody can buy it, by order of an operator.
    pub paused: bool,
    /// Its sale is over for good since then, and its keys are still there.
    pub delisted: Option<Timestamp>,
}

/// What MySQL holds.
#[derive(Debug, Serialize)]
pub struct VoucherInMySql {
    /// Units left.
    pub stock: i64,
    /// Units at the start, where it is known.
    pub initial_stock: Option<i64>,
    /// Seconds in which an order has to be paid; 0: it never expires. None: as the configuration says.
    pub pay_within_s: Option<i64>,
    /// Cancelled ones included.
    pub orders: i64,
    /// Where its units are.
    pub units: VoucherUnits,
    /// The sale begins.
    pub begin: Option<Timestamp>,
    /// The sale ends.
    pub end: Option<Timestamp>,
    /// Its sale is over for good since then.
    pub delisted: Option<Timestamp>,
}

/// Where the sides differ, or what an operator would not expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoucherMismatch {
    /// Neither side sells it.
    Unknown,
    /// MySQL has its row, without orders, and Redis does not sell it.
    NotLoaded {
        /// Units in MySQL.
        stock: i64,
    },
    /// Its sale is over for good.
    Delisted {
        /// Its keys are still in Redis.
        has_keys: bool,
        /// Redis knows nothing of it yet, and may sell it.
        is_unfinished: bool,
    },
    /// Redis does not sell it any more, and its sale has ended.
    SaleOver {
        /// Its orders in MySQL.
        orders: i64,
    },
    /// Redis does not sell it any more, but its sale has not ended.
    StockLost {
        /// Its orders in MySQL.
        orders: i64,
    },
    /// Redis sells it, and MySQL has no row.
    NoRow {
        /// Units left in Redis.
        left: i64,
        /// Whether the orders went through the gate, which took their units.
        is_taken: bool,
    },
    /// Redis offers what MySQL does not have.
    MoreInRedis {
        /// How many units.
        units: i64,
    },
    /// Units were taken in Redis whose orders are not in MySQL.
    LessInRedis {
        /// How many units.
        units: i64,
    },
    /// Units are in orders whose slot and status contradict each other.
    Contradictory {
        /// How many units.
        units: i64,
    },
    /// What was loaded is not what is unsold or in orders: somebody changed rows or the stock by hand. Below 0: there is more
    /// than was loaded.
    Unaccounted {
        /// How many units.
        units: i64,
    },
    /// They disagree on the end of the sale.
    OtherEnd,
    /// The sale is paused.
    Paused,
}

impl VoucherSides {
    /// Neither side knows the voucher.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.redis.is_none() && self.mysql.is_none()
    }

    /// Units that were taken in Redis and are in no order in MySQL: on their way, dead or lost. Below 0: Redis offers more than
    /// MySQL has.
    #[must_use]
    pub fn in_flight(&self) -> Option<i64> {
        Some(units_to_deduct(self.mysql.as_ref()?.units.unsold?, self.redis.as_ref()?.stock?))
    }

    /// Where the sides differ at this moment.
    #[must_use]
    pub fn differences(&self, now: Timestamp) -> Vec<VoucherMismatch> {
        let (redis, mysql) = (self.redis.as_ref(), self.mysql.as_ref());
        let ends = redis.and_then(|redis| redis.end).zip(mysql.and_then(|mysql| mysql.end));
        // MySQL keeps whole seconds.
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

/// Reads both sides.
///
/// # Errors
/// When a store does not answer.
pub async fn read(
    settings: &SystemSettings,
    (redis, mysql): (&RedisStore, &MySqlPool),
    voucher: VoucherId,
) -> anyhow::Result<VoucherSides> {
    let keys = redis.keys();
    let state = redis.sales().read_voucher(voucher).await.context("Failed to read the voucher in Redis")?;
    let row = vouchers::find(mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
    let records = Records::new(mysql, settings.partition());
    let orders = records.counts().of_voucher(voucher).await.context("Failed to count its orders")?;
    let units = vouchers::units(mysql, voucher).await.context("Failed to count its units")?;
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

/// Looks at the oldest letters.
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

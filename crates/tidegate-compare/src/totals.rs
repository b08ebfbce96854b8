//! The totals of a voucher: what its stocks are, and what they should be. Pure.

use crate::{
    difference::{Difference, DifferenceCause, RepairMethod},
    reconciled::DifferenceKind,
};
use serde::Serialize;
use tidegate_orders::{
    VoucherId,
    gate::JournalSnapshot,
    records::{
        StockSum,
        journal::{Purged, Sum},
    },
};

/// Orders of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrdersAndUnits {
    /// How many.
    pub orders: u64,
    /// Units in them.
    pub units: i64,
}

impl OrdersAndUnits {
    /// One more.
    pub fn add(&mut self, units: i64) {
        self.orders += 1;
        self.units += units;
    }
}

/// What both sides hold of a voucher, in units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherTotals {
    /// The voucher.
    pub voucher: VoucherId,
    /// Its stock and journal in Redis.
    #[serde(flatten)]
    pub redis: RedisTotals,
    /// Its stock and rows in MySQL.
    #[serde(flatten)]
    pub mysql: MysqlTotals,
    /// Its orders and events in flight, and its dead letters.
    #[serde(flatten)]
    pub open: OpenTotals,
    /// A `voucher add` or `voucher take` is not finished, or one was made during the comparison.
    pub is_change_open: bool,
    /// Its sale is on by MySQL, with orders and units left, and Redis holds no stock of it.
    pub is_forgotten: bool,
}

/// What Redis holds of a voucher. Amounts are units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisTotals {
    /// Its journal holds every movement of its stock.
    pub is_complete: bool,
    /// Units left by Redis; None: no stock is loaded.
    #[serde(rename = "redis_stock")]
    pub stock: Option<i64>,
    /// Units that the stock in Redis has more than its journal says, below 0 fewer. None: the journal is not complete, or its sum
    /// is not known ([`RedisTotals::is_unsure`]).
    #[serde(rename = "redis_drift")]
    pub drift: Option<i64>,
    /// The journal moved in a way that its sum could not be told, in every comparison.
    pub is_unsure: bool,
    /// What was loaded, added, taken and repaired, by a complete journal.
    pub loaded: Option<i64>,
    /// Notes of orders in a complete journal that nobody can read.
    pub unreadable_notes: u64,
    /// What was compacted out of its journal; None: nothing.
    pub purged: Option<Purged>,
    /// Bytes that Redis takes for it, about; None: Redis holds nothing of it, or did not say.
    #[serde(rename = "redis_bytes")]
    pub bytes: Option<u64>,
    /// Why Redis could not be read: a key holds something else than it should. Nothing else is said of the voucher then.
    pub unreadable: Option<String>,
}

/// What MySQL holds of a voucher. Amounts are units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MysqlTotals {
    /// Units left by MySQL; None: it does not know the voucher.
    #[serde(rename = "mysql_stock")]
    pub stock: Option<i64>,
    /// Units that were loaded, by MySQL; None: nobody knows.
    #[serde(rename = "initial_stock")]
    pub initial: Option<i64>,
    /// Units of its live rows, of the same moment as the two before; with those of rows whose slot and status contradict each
    /// other, as far as the stock lacks them.
    pub live_units: i64,
    /// The part of these in rows whose slot and status contradict each other.
    #[serde(skip)]
    pub contradictory_units: i64,
    /// Units of live rows that are older than its journal, which holds nothing of them.
    pub earlier_units: i64,
    /// Its live rows.
    pub live_orders: u64,
    /// Units that the stock in MySQL has more than what was loaded less its live rows; None: nobody knows what was loaded.
    #[serde(rename = "mysql_drift")]
    pub drift: Option<i64>,
    /// Used orders that are older than what was compacted ([`RedisTotals::purged`]) and that the journal does not hold. None: nothing was
    /// compacted, or it was while they were counted.
    pub used: Option<OrdersAndUnits>,
}

/// Orders and events of a voucher that are in flight, and dead letters that wait for an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpenTotals {
    /// Orders that wait to be written.
    pub in_flight_orders: u64,
    /// Events that wait to be recorded.
    pub in_flight_events: u64,
    /// Units of these orders, still to be deducted in MySQL.
    pub in_flight_units: i64,
    /// Orders among the dead letters that no row or refusal of MySQL has ended.
    pub dead_orders: u64,
    /// Units of these, still to be deducted in MySQL or released.
    pub dead_units: i64,
}

impl VoucherTotals {
    /// Of a voucher of which nothing was read yet.
    #[must_use]
    pub fn new(voucher: VoucherId) -> Self {
        Self {
            voucher,
            redis: RedisTotals::default(),
            mysql: MysqlTotals::default(),
            open: OpenTotals::default(),
            is_change_open: false,
            is_forgotten: false,
        }
    }

    pub(crate) fn set_redis(&mut self, snapshot: &JournalSnapshot, sum: Option<(Sum, i64)>) {
        (self.redis.is_complete, self.redis.stock) = (snapshot.is_complete, snapshot.stock);
        self.redis.purged = snapshot.purged.filter(|_| snapshot.is_complete);
        self.redis.drift = sum.and_then(|(sum, _)| match sum {
            Sum::Holds => Some(0),
            Sum::Mismatch(units) => Some(units),
            Sum::Unsure => None,
        });
        self.redis.is_unsure = sum.is_some_and(|(sum, _)| sum == Sum::Unsure);
        self.redis.loaded = sum.filter(|(sum, _)| *sum != Sum::Unsure).map(|(_, loaded)| loaded);
    }

    pub(crate) fn set_mysql(&mut self, row: &StockSum) {
        let StockSum { stock, initial, live_units, live_orders, earlier_units, contradictory_units } = *row;
        self.mysql.earlier_units = earlier_units;
        (self.mysql.stock, self.mysql.initial) = (stock, initial);
        let missing = stock.zip(initial).map_or(0, |(stock, initial)| initial - live_units - stock);
        self.mysql.contradictory_units = missing.clamp(0, contradictory_units.max(0));
        (self.mysql.live_units, self.mysql.live_orders) =
            (live_units + self.mysql.contradictory_units, live_orders);
        self.mysql.drift =
            stock.zip(initial).map(|(stock, initial)| stock - (initial - self.mysql.live_units));
    }

    /// Units that MySQL had when the journal began, as far as that is known.
    #[must_use]
    pub fn initial_of_journal(&self) -> Option<i64> {
        self.mysql.initial.map(|initial| initial - self.mysql.earlier_units)
    }

    /// Units of used orders that MySQL lacks of those that were compacted, below 0: has more. None: as many orders and units.
    fn compacted_mismatch(&self) -> Option<i64> {
        let (purged, used) = (self.redis.purged?, self.mysql.used?);
        let is_same = (purged.used_orders, purged.used_units) == (used.orders, used.units);
        (!is_same).then_some(purged.used_units - used.units)
    }

    /// What is different about the stocks. The stock in MySQL may differ from what its rows say, if the stock in Redis follows
    /// it: that is what a repair leaves.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        let mismatch = |kind, units, cause, repair| Difference {
            kind,
            voucher: self.voucher,
            order: None,
            user: None,
            units,
            cause,
            repair,
            counter: None,
            status: None,
            entry: None,
            note: None,
        };
        let mut found = Vec::new();
        if self.is_forgotten {
            let left = self.mysql.stock.unwrap_or(0);
            return vec![mismatch(
                DifferenceKind::SaleForgotten,
                left,
                DifferenceCause::RedisWentBack,
                RepairMethod::Rebuild,
            )];
        }
        if let Some(units) = self.redis.drift.filter(|units| *units != 0) {
            // Where there is no stock, there is none to move; what cannot be read may have moved it.
            let is_known = self.redis.stock.is_some() && self.redis.unreadable_notes == 0;
            let repair = if is_known { RepairMethod::MoveStock } else { RepairMethod::Rebuild };
            found.push(mismatch(DifferenceKind::RedisStockMismatch, units, DifferenceCause::ChangedByHand, repair));
        }
        if let Some(units) = self.compacted_mismatch() {
            found.push(mismatch(DifferenceKind::CompactedMismatch, units, DifferenceCause::Unknown, RepairMethod::ByHand));
        }
        if self.is_change_open || self.redis.unreadable.is_some() {
            return found;
        }
        let mysql_drift = self.mysql.drift.unwrap_or(0);
        let behind =
            self.initial_of_journal().zip(self.redis.loaded).map(|(initial, loaded)| initial - loaded);
        let follows = behind.is_some_and(|behind| behind + mysql_drift == 0);
        // Where nobody knows what MySQL had at first, more must not be for sale than it has.
        let stock = self.mysql.stock.filter(|_| self.mysql.initial.is_none());
        let has = stock.map(|stock| stock + self.mysql.live_units - self.mysql.earlier_units);
        let lacks = has.zip(self.redis.loaded).map(|(has, loaded)| has - loaded).filter(|units| *units < 0);
        if let Some(units) = lacks.or(behind.filter(|units| *units != 0 && !follows)) {
            found.push(mismatch(DifferenceKind::LoadedMismatch, units, DifferenceCause::Unknown, RepairMethod::MoveStock));
        }
        if mysql_drift != 0 && !follows {
            let repair = if self.redis.is_complete && mysql_drift < 0 { RepairMethod::MoveStock } else { RepairMethod::ByHand };
            found.push(mismatch(
                DifferenceKind::MysqlStockMismatch,
                mysql_drift,
                DifferenceCause::ChangedByHand,
                repair,
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> VoucherTotals {
        with(VoucherTotals::new(7.try_into().unwrap()), |it| {
            it.redis = RedisTotals {
                is_complete: true,
                stock: Some(60),
                drift: Some(0),
                loaded: Some(100),
                ..RedisTotals::default()
            };
            it.mysql = MysqlTotals {
                stock: Some(70),
                initial: Some(100),
                live_units: 30,
                drift: Some(0),
                ..MysqlTotals::default()
            };
        })
    }

    fn with(mut totals: VoucherTotals, change: impl FnOnce(&mut VoucherTotals)) -> VoucherTotals {
        change(&mut totals);
        totals
    }

    fn kinds(totals: &VoucherTotals) -> Vec<(DifferenceKind, i64)> {
        totals.differences().into_iter().map(|it| (it.kind, it.units)).collect()
    }

    #[test]
    fn each_stock_that_is_apart_is_said_with_its_units() {
        use DifferenceKind::{LoadedMismatch, MysqlStockMismatch, RedisStockMismatch};
        assert_eq!(kinds(&totals()), []);
        assert_eq!(kinds(&with(totals(), |it| it.redis.drift = Some(7))), [(RedisStockMismatch, 7)]);
        assert_eq!(kinds(&with(totals(), |it| it.redis.loaded = Some(95))), [(LoadedMismatch, 5)]);
        assert_eq!(kinds(&with(totals(), |it| it.mysql.drift = Some(-3))), [(MysqlStockMismatch, -3)]);
        let unknown = with(totals(), |it| {
            it.mysql.initial = None;
            it.mysql.drift = None;
        });
        assert_eq!(kinds(&unknown), []);
        assert_eq!(kinds(&with(unknown.clone(), |it| it.mysql.stock = Some(60))), [(LoadedMismatch, -10)]);
        assert_eq!(kinds(&with(unknown, |it| it.mysql.stock = Some(80))), [], "it may not all be for sale");
        let gone = with(totals(), |it| {
            it.redis.stock = None;
            it.redis.drift = Some(-60);
        });
        assert_eq!(gone.differences()[0].repair, RepairMethod::Rebuild);
        let unread = with(totals(), |it| {
            it.redis.drift = Some(-3);
            it.redis.unreadable_notes = 1;
        });
        assert_eq!(unread.differences()[0].repair, RepairMethod::Rebuild);
    }

    #[test]
    fn what_was_sold_before_the_journal_began_was_not_loaded_into_it() {
        let earlier = with(totals(), |it| {
            it.redis.loaded = Some(80);
            it.mysql.earlier_units = 20;
        });
        assert_eq!(kinds(&earlier), []);
        let more = with(earlier, |it| it.redis.loaded = Some(90));
        assert_eq!(kinds(&more), [(DifferenceKind::LoadedMismatch, -10)]);
    }

    #[test]
    fn units_that_contradictory_rows_may_have_kept_are_not_missing() {
        let row = |stock| StockSum {
            stock: Some(stock),
            initial: Some(100),
            live_units: 28,
            live_orders: 28,
            earlier_units: 0,
            contradictory_units: 2,
        };
        for (stock, drift) in [(70, 0), (71, 0), (72, 0), (69, -1), (73, 1)] {
            let mut its = with(totals(), |it| it.redis.loaded = Some(100));
            its.set_mysql(&row(stock));
            assert_eq!(its.mysql.drift, Some(drift), "{stock}");
        }
    }

    #[test]
    fn as_many_used_orders_are_in_mysql_as_were_compacted() {
        let purged = Some(Purged { used_orders: 3, used_units: 4, ..Purged::default() });
        let used = |orders, units| Some(OrdersAndUnits { orders, units });
        let with = |used| {
            kinds(&with(totals(), |it| {
                it.redis.purged = purged;
                it.mysql.used = used;
            }))
        };
        assert_eq!((with(used(3, 4)), with(None)), (Vec::new(), Vec::new()));
        assert_eq!(with(used(2, 3)), [(DifferenceKind::CompactedMismatch, 1)]);
        assert_eq!(with(used(4, 4)), [(DifferenceKind::CompactedMismatch, 0)]);
    }

    #[test]
    fn what_a_repair_leaves_is_no_difference() {
        assert_eq!(
            kinds(&with(totals(), |it| {
                it.mysql.drift = Some(-3);
                it.redis.loaded = Some(97);
            })),
            []
        );
    }

    #[test]
    fn while_a_stock_is_being_changed_only_the_sum_of_the_journal_is_said() {
        let changing = with(totals(), |it| {
            it.is_change_open = true;
            it.redis.loaded = Some(95);
        });
        assert_eq!(kinds(&changing), []);
        let by_hand = with(changing, |it| it.redis.drift = Some(-1));
        assert_eq!(kinds(&by_hand), [(DifferenceKind::RedisStockMismatch, -1)]);
    }
}

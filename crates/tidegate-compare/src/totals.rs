//! The totals of a voucher: its stocks, and the values that they should have. Pure.

use crate::{
    difference::{Difference, DifferenceCause, RepairMethod},
    reconciled::DifferenceKind,
    windows::WindowMismatch,
};
use serde::Serialize;
use tidegate_orders::{
    VoucherId,
    records::{
        StockSum,
        journal::{Purged, Sum},
    },
    scripts::JournalSnapshot,
};

/// A number of orders, and the number of their units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrdersAndUnits {
    /// The number of counted orders.
    pub orders: u64,
    /// The units of the counted orders.
    pub units: i64,
}

impl OrdersAndUnits {
    /// Adds one order with its units.
    pub fn add(&mut self, units: i64) {
        self.orders += 1;
        self.units += units;
    }
}

/// The sums of a voucher's units and orders in Redis and MySQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherTotals {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The voucher's stock in Redis, and the sums of its journal (the Redis hash of orders).
    #[serde(flatten)]
    pub redis: RedisTotals,
    /// The voucher's stock and rows in MySQL.
    #[serde(flatten)]
    pub mysql: MysqlTotals,
    /// The voucher's orders and events that workers still have to handle, and its dead letters.
    #[serde(flatten)]
    pub open: OpenTotals,
    /// Whether `voucher add` or `voucher take` has not completed a change of the stock, or changed the stock during the
    /// comparison.
    pub is_change_open: bool,
    /// Whether Redis has no stock of the voucher, although in MySQL the sale is on and has orders and units left.
    pub is_forgotten: bool,
    /// The windows of the sale in both stores. None: they agree, or Redis sells the voucher without a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowMismatch>,
}

/// The sums of a voucher's units in Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisTotals {
    /// Whether the voucher's journal (a Redis hash) has a note for every change of the stock in Redis.
    pub is_complete: bool,
    /// The units left in Redis; None: no stock is loaded.
    #[serde(rename = "redis_stock")]
    pub stock: Option<i64>,
    /// The number of notes in the voucher's journal (the Redis hash of orders) when the stock was read.
    #[serde(skip)]
    pub journaled: u64,
    /// The stock in Redis minus the sum of the voucher's journal (the Redis hash of orders). None: the journal is not
    /// complete, or its sum is unknown ([`RedisTotals::is_unsure`]).
    #[serde(rename = "redis_drift")]
    pub drift: Option<i64>,
    /// Whether the sum of the journal (the Redis hash of orders) is unknown, because the journal changed during each
    /// read.
    pub is_unsure: bool,
    /// The units that were ever loaded, added, taken or repaired for the sale, by the journal (the Redis hash of
    /// orders). Known only if the journal is complete.
    pub loaded: Option<i64>,
    /// The number of order notes in a complete journal (the Redis hash of orders) that cannot be read.
    pub unreadable_notes: u64,
    /// The sums of finished orders whose notes were removed from the voucher's journal (the Redis hash of orders).
    /// None: no note was removed.
    pub purged: Option<Purged>,
    /// The approximate bytes that Redis uses for the voucher. None: Redis has no data of the voucher, or did not
    /// answer.
    #[serde(rename = "redis_bytes")]
    pub bytes: Option<u64>,
    /// The reason why the voucher in Redis could not be read: a key has a wrong type or content. If this is set, all
    /// other fields are empty.
    pub unreadable: Option<String>,
}

/// The sums of a voucher's units and orders in MySQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MysqlTotals {
    /// The units left in MySQL. None: MySQL does not know the voucher.
    #[serde(rename = "mysql_stock")]
    pub stock: Option<i64>,
    /// The units that were ever loaded for the sale, according to MySQL. None: this number is unknown.
    #[serde(rename = "initial_stock")]
    pub initial: Option<i64>,
    /// The units of the voucher's rows that are not cancelled, read together with `stock` and `initial`. A row whose
    /// columns `slot` and `status` contradict each other counts if the stock lacks its units.
    pub live_units: i64,
    /// The units of rows whose columns `slot` and `status` contradict each other, as far as `live_units` includes these
    /// units.
    #[serde(skip)]
    pub contradictory_units: i64,
    /// The units of uncancelled rows that are older than the voucher's journal (the Redis hash of orders). The journal
    /// lacks these orders.
    pub earlier_units: i64,
    /// The number of the voucher's rows that are not cancelled or refunded.
    pub live_orders: u64,
    /// The stock in MySQL minus the correct stock: the loaded units minus the units of rows that are not cancelled.
    /// None: the loaded units are unknown.
    #[serde(rename = "mysql_drift")]
    pub drift: Option<i64>,
    /// The used orders that have no note in the journal (the Redis hash of orders), because their notes were removed
    /// ([`RedisTotals::purged`]). None: no note was removed, or notes were removed during the count.
    pub used: Option<OrdersAndUnits>,
}

/// The orders and events of a voucher that workers still have to handle, and its dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpenTotals {
    /// The number of orders that workers still have to write.
    pub in_flight_orders: u64,
    /// The number of events that workers still have to record.
    pub in_flight_events: u64,
    /// The units of orders that workers still have to write, so that MySQL has not deducted them yet.
    pub in_flight_units: i64,
    /// The number of dead letters whose orders MySQL has neither written nor refused.
    pub dead_orders: u64,
    /// The units of orders in dead letters, which are still to be deducted in MySQL or returned to the stock in Redis.
    pub dead_units: i64,
}

impl VoucherTotals {
    /// Creates empty totals of a voucher that has not been read yet.
    #[must_use]
    pub fn new(voucher: VoucherId) -> Self {
        Self {
            voucher,
            redis: RedisTotals::default(),
            mysql: MysqlTotals::default(),
            open: OpenTotals::default(),
            is_change_open: false,
            is_forgotten: false,
            window: None,
        }
    }

    pub(crate) fn set_redis(&mut self, snapshot: &JournalSnapshot, sum: Option<(Sum, i64)>) {
        (self.redis.is_complete, self.redis.stock) = (snapshot.is_complete, snapshot.stock);
        self.redis.journaled = snapshot.journaled;
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

    /// The units that MySQL had when the voucher's journal (the Redis hash of orders) began. None: these units are
    /// unknown.
    #[must_use]
    pub fn initial_of_journal(&self) -> Option<i64> {
        self.mysql.initial.map(|initial| initial - self.mysql.earlier_units)
    }

    /// The units by which the compacted used orders exceed MySQL's, below 0 if MySQL has more. None: orders and units
    /// are the same.
    fn compacted_mismatch(&self) -> Option<i64> {
        let (purged, used) = (self.redis.purged?, self.mysql.used?);
        let is_same = (purged.used_orders, purged.used_units) == (used.orders, used.units);
        (!is_same).then_some(purged.used_units - used.units)
    }

    /// Finds the differences between the voucher's stocks and their right values. A difference in MySQL does not count
    /// if the stock in Redis has the same difference, because a repair leaves the stocks in this way.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        use DifferenceCause::{ChangedByHand, RedisWentBack, Unknown};
        use DifferenceKind::{
            CompactedMismatch, LoadedMismatch, MysqlStockMismatch, RedisStockMismatch, SaleForgotten, Window,
        };
        use RepairMethod::{ByHand, MoveStock, Rebuild};

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
            return vec![mismatch(SaleForgotten, left, RedisWentBack, Rebuild)];
        }
        if self.window.is_some() {
            found.push(mismatch(Window, 0, ChangedByHand, ByHand));
        }
        if let Some(units) = self.redis.drift.filter(|units| *units != 0) {
            // Without a stock there is none to move, and unreadable notes may have moved it.
            let is_known = self.redis.stock.is_some() && self.redis.unreadable_notes == 0;
            let repair = if is_known { MoveStock } else { Rebuild };
            found.push(mismatch(RedisStockMismatch, units, ChangedByHand, repair));
        }
        if let Some(units) = self.compacted_mismatch() {
            found.push(mismatch(CompactedMismatch, units, Unknown, ByHand));
        }
        if self.is_change_open || self.redis.unreadable.is_some() {
            return found;
        }
        let mysql_drift = self.mysql.drift.unwrap_or(0);
        let behind =
            self.initial_of_journal().zip(self.redis.loaded).map(|(initial, loaded)| initial - loaded);
        let follows = behind.is_some_and(|behind| behind + mysql_drift == 0);
        // If the loaded units are unknown, there must not be more on sale than MySQL has.
        let stock = self.mysql.stock.filter(|_| self.mysql.initial.is_none());
        let has = stock.map(|stock| stock + self.mysql.live_units - self.mysql.earlier_units);
        let lacks = has.zip(self.redis.loaded).map(|(has, loaded)| has - loaded).filter(|units| *units < 0);
        if let Some(units) = lacks.or(behind.filter(|units| *units != 0 && !follows)) {
            found.push(mismatch(LoadedMismatch, units, Unknown, MoveStock));
        }
        if mysql_drift != 0 && !follows {
            let repair = if self.redis.is_complete && mysql_drift < 0 { MoveStock } else { ByHand };
            found.push(mismatch(MysqlStockMismatch, mysql_drift, ChangedByHand, repair));
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

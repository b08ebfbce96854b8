//! The report of an audit: its counts, and whether everything is right.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_orders::VoucherId;
use tidegate_stream::EntryId;

use crate::{
    counts::{Misnamed, Offenders, StateCounts, Unreadable},
    limit_counters::{CounterDifference, NotCompared},
};

/// The results of an audit.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// The results for each voucher that either side names, in ascending order.
    pub vouchers: Vec<VoucherAudit>,
    /// The orders of all vouchers in MySQL, by status.
    pub states: StateCounts,
    /// Entries of the stream that are events of orders: paid, cancelled and so on.
    pub events: u64,
    /// Entries of the stream that are neither orders nor events, so they belong to no voucher.
    pub unreadable: Unreadable,
    /// The unreadable entries that would be orders if their fields had the configured names.
    pub misnamed: Misnamed,
    /// Limit counters that differ from the uses of orders, and limits that orders exceed.
    pub counters: Vec<CounterDifference>,
    /// Counters that could not be checked. This is no failure.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

impl AuditReport {
    /// Adds the results for other vouchers. The unreadable entries of the stream are counted already.
    pub(super) fn add(&mut self, others: Self) {
        self.vouchers.extend(others.vouchers);
        self.vouchers.sort_by_key(|audit| audit.voucher);
        self.events += others.events;
        self.counters.extend(others.counters);
        self.counters_not_compared.extend(others.counters_not_compared);
    }
}

/// The position of lost orders in time and in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LostSpan {
    /// The admission of the first lost order with a known time, in Unix milliseconds.
    pub from_ms: u64,
    /// The admission of the last lost order with a known time, in Unix milliseconds.
    pub to_ms: u64,
    /// The number of lost orders that the stream still holds: `tidegate replay` can write these.
    pub in_stream: u64,
    /// The first and the last entry of these orders.
    pub entries: Option<(EntryId, EntryId)>,
}

/// The results of an audit for one voucher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherAudit {
    /// The voucher of these results.
    pub voucher: VoucherId,
    /// The places of the voucher's orders.
    #[serde(flatten)]
    pub orders: AdmittedOrders,
    /// The rows of the voucher in MySQL.
    #[serde(flatten)]
    pub rows: RowCounts,
    /// The faults of the voucher's orders.
    #[serde(flatten)]
    pub offences: Violations,
    /// The stocks of the voucher.
    #[serde(flatten)]
    pub stocks: Stocks,
}

/// The admitted order ids: those in the journal, the stream or the dead stream. If no order is lost, mismatched or not
/// released, `admitted = written + released + dead + in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdmittedOrders {
    /// The number of all admitted order ids.
    pub admitted: u64,
    /// Admitted orders with a row in MySQL that is live, or was cancelled since and not released.
    pub written: u64,
    /// Admitted orders that were released: cancelled in MySQL, or never written there.
    pub released: u64,
    /// Admitted orders that are dead letters.
    pub dead: u64,
    /// Units of the dead orders. Redis holds them until the orders are written or released.
    pub dead_units: i64,
    /// Admitted orders that are not delivered or not settled yet.
    pub in_flight: u64,
    /// Units of the orders in flight.
    pub in_flight_units: i64,
    /// Events of the voucher's orders that were not settled when the audit began.
    pub in_flight_events: u64,
}

/// The counts of a voucher's rows in MySQL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// The counts of the rows, by status.
    pub states: StateCounts,
    /// The number of live rows.
    pub live_orders: u64,
    /// The units of live rows.
    pub live_units: i64,
    /// The number of cancelled rows.
    pub cancelled_orders: u64,
    /// The rows that Redis does not know: older than its data, or written by another producer.
    pub unknown_orders: u64,
    /// The unknown rows that name their entry of the stream.
    pub forgotten_orders: u64,
}

/// The faults of a voucher's orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Violations {
    /// Dead letters that are cancelled in MySQL and not released: `tidegate dead cancel` was killed between the two
    /// steps.
    pub half_cancelled: Offenders,
    /// Orders that are cancelled in MySQL, neither in flight nor dead, and still admitted by the journal. This is no
    /// failure: a service that cancels without `lua/release.lua` leaves such orders, too.
    pub kept: Offenders,
    /// Admitted orders that are nowhere.
    #[serde(flatten)]
    pub lost: LostOrders,
    /// Admitted and settled orders whose row belongs to another user or voucher, or has another quantity.
    pub mismatched: Offenders,
    /// Settled orders that MySQL refused and Redis still holds.
    pub not_released: Offenders,
    /// Released orders with a live row: their units were sold twice.
    pub doubled_back: Offenders,
    /// Keys in Redis with a wrong type or content, each with the error of Redis. Their contents are missing in this
    /// report.
    pub wrong_keys: Offenders,
    /// Slots with more than one live order, as `user/slot`; possible only without the unique key.
    pub shared_slots: Offenders,
    /// Rows whose slot and status contradict each other.
    #[serde(flatten)]
    pub contradictory: ContradictoryRows,
    /// Orders with events that were acknowledged and that MySQL has not recorded.
    pub lost_events: Offenders,
    /// Differences of orders and users that only a comparison lists: no order and no unit is lost or sold twice.
    pub other_differences: u64,
    /// Whether Redis has lost the sale, so that no user can buy. The sale is on and has units left in MySQL, and
    /// orders of it came through Redis. But Redis holds neither a stock nor an admitted order of it.
    pub is_forgotten: bool,
}

/// Orders that Redis admitted, and that are neither in MySQL nor in flight nor dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostOrders {
    /// The admitted orders that are nowhere.
    #[serde(rename = "lost")]
    pub orders: Offenders,
    /// The time of their admissions, and the entries that can be run again; None if neither is known.
    #[serde(rename = "lost_span")]
    pub span: Option<LostSpan>,
}

/// Rows whose slot and status contradict each other, and their units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContradictoryRows {
    /// Rows whose slot and status contradict each other (see [`tidegate_orders::row_state`]): neither live nor
    /// cancelled.
    #[serde(rename = "contradictory")]
    pub orders: Offenders,
    /// The units of these rows. The rows do not show whether the units went back to the stock.
    #[serde(rename = "contradictory_units")]
    pub units: i64,
}

/// The stocks of a voucher, in units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stocks {
    /// The units left in MySQL; `None` if MySQL does not know the voucher.
    pub stock: Option<i64>,
    /// The loaded units; `None` for vouchers that were taken over from another program.
    pub initial_stock: Option<i64>,
    /// The units left in Redis.
    pub redis_stock: Option<i64>,
    /// The units that Redis should offer: MySQL's stock without the units of in-flight and dead orders, which will be
    /// taken from it or released. `None` if MySQL does not know the voucher.
    pub redis_stock_due: Option<i64>,
    /// The units that Redis offers and that MySQL will certainly not have, whatever is in flight meanwhile; 0 if there
    /// are none. `None` if this is unknown: the sale is over, there is no stock or no journal, or the stock was just
    /// adjusted.
    pub oversell_risk_at_least: Option<i64>,
    /// The units that Redis offers beyond the sum of its journal, below 0 fewer: an operator wrote the stock manually,
    /// or Redis lost data. 0: they agree. `None` if the journal is not complete, or the sum is unknown.
    pub journal_mismatch: Option<i64>,
    /// The units of MySQL's stock above the loaded units less the live rows, in one snapshot.
    #[serde(skip)]
    pub mysql_drift: Option<i64>,
    /// Whether both stocks were unchanged after the comparison. Also false if this was not checked.
    #[serde(skip)]
    pub is_at_rest: bool,
}

impl Violations {
    /// Adds a lost order to the span: the time of its admission, and its entry if the stream holds it.
    pub(super) fn add_lost(&mut self, at_ms: Option<u64>, entry: Option<EntryId>) {
        let Some(at_ms) = at_ms.filter(|at_ms| *at_ms > 0) else { return };
        let span = self.lost.span.get_or_insert(LostSpan {
            from_ms: at_ms,
            to_ms: at_ms,
            in_stream: 0,
            entries: None,
        });
        (span.from_ms, span.to_ms) = (span.from_ms.min(at_ms), span.to_ms.max(at_ms));
        if let Some(entry) = entry {
            span.in_stream += 1;
            let (first, last) = span.entries.unwrap_or((entry, entry));
            span.entries = Some((first.min(entry), last.max(entry)));
        }
    }
}

impl VoucherAudit {
    /// Whether every admitted order is written or released, and there is no fault.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let wrong = [
            &self.offences.half_cancelled,
            &self.offences.lost.orders,
            &self.offences.mismatched,
            &self.offences.not_released,
            &self.offences.lost_events,
            &self.offences.doubled_back,
            &self.offences.wrong_keys,
            &self.offences.shared_slots,
            &self.offences.contradictory.orders,
        ];
        self.orders.admitted == self.orders.written + self.orders.released
            && wrong.iter().all(|offenders| offenders.total == 0)
    }

    /// Whether neither side knows the voucher. The id is most likely a typing error, and a verdict that all is well
    /// would be wrong.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.stocks.stock.is_none()
            && self.orders.admitted + self.rows.live_orders + self.rows.cancelled_orders == 0
    }

    /// The units that Redis offers beyond what MySQL will have when all orders in flight are written and all dead
    /// orders are requeued; negative if Redis offers fewer. Exact only at a quiet time: see
    /// [`Stocks::oversell_risk_at_least`].
    #[must_use]
    pub fn oversell_risk(&self) -> Option<i64> {
        Some(self.stocks.redis_stock?.saturating_sub(self.stocks.redis_stock_due?))
    }

    /// The oversell risk that is certain, not 0, and not a failure already. No order is in flight or waits for a
    /// decision, and both stocks were unchanged afterwards, so nothing moved while they were read.
    #[must_use]
    pub fn settled_oversell_risk(&self) -> Option<i64> {
        self.possible_oversell_risk().filter(|_| self.stocks.is_at_rest)
    }

    /// The oversell risk of one comparison. Its numbers may come from different times.
    pub(super) fn possible_oversell_risk(&self) -> Option<i64> {
        let is_failure = self.stocks.oversell_risk_at_least.is_some_and(|risk| risk > 0);
        let is_settled =
            self.orders.in_flight + self.orders.dead + self.orders.in_flight_events == 0 && !is_failure;
        self.oversell_risk().filter(|risk| is_settled && *risk != 0)
    }
}

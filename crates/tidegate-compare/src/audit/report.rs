//! The report of an audit: its counts, and the failures that it found.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_orders::VoucherId;
use tidegate_stream::EntryId;

use crate::{
    counts::{Misnamed, Offenders, StateCounts, Unreadable},
    limit_counters::{CounterDifference, NotCompared},
    windows::WindowMismatch,
};

/// The results of checking all orders, stocks and limits in Redis and MySQL.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// The audit results of each voucher that Redis or MySQL knows, in ascending order of the ids.
    pub vouchers: Vec<VoucherAudit>,
    /// The number of orders of all vouchers in MySQL, by status.
    pub states: StateCounts,
    /// The number of stream entries that are order events, such as a payment or a cancellation.
    pub events: u64,
    /// The counts of stream entries that are neither orders nor events. Such entries belong to no voucher.
    pub unreadable: Unreadable,
    /// The unreadable entries that would be orders if their fields had the configured names.
    pub misnamed: Misnamed,
    /// The limit counters with a wrong value, and the limits that orders exceed.
    pub counters: Vec<CounterDifference>,
    /// The limit counters that the audit could not check. They are no failure of the audit.
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

/// The first and the last order that was lost after Redis admitted it, by admission time and by stream entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LostSpan {
    /// The admission time of the first lost order with a known time, in Unix milliseconds.
    pub from_ms: u64,
    /// The admission time of the last lost order with a known time, in Unix milliseconds.
    pub to_ms: u64,
    /// The number of lost orders whose entries are still in the stream, so that the command `tidegate replay` can write
    /// them.
    pub in_stream: u64,
    /// The first and the last stream entry of lost orders.
    pub entries: Option<(EntryId, EntryId)>,
}

/// The results of an audit (a complete check) for one voucher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherAudit {
    /// The id of the audited voucher.
    pub voucher: VoucherId,
    /// The number of the voucher's admitted orders by what became of them: written to MySQL, released (units returned
    /// to the stock), dead letter, or not handled yet.
    #[serde(flatten)]
    pub orders: AdmittedOrders,
    /// The counts of the voucher's rows in MySQL.
    #[serde(flatten)]
    pub rows: RowCounts,
    /// The errors of the voucher: orders, keys and rows that break a rule.
    #[serde(flatten)]
    pub offences: Violations,
    /// The stocks of the voucher in Redis and MySQL.
    #[serde(flatten)]
    pub stocks: Stocks,
    /// The windows of the sale in both stores. None: they agree, or Redis sells the voucher without a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowMismatch>,
}

/// The number of admitted order ids, by what became of them. If no order is lost, mismatched or not released, `admitted
/// = written + released + dead + in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdmittedOrders {
    /// The number of all order ids that Redis admitted, by the journal (the Redis hash of orders), the stream and the
    /// dead letters.
    pub admitted: u64,
    /// The number of admitted orders that have a row in MySQL, and whose units Redis has not returned to the stock.
    pub written: u64,
    /// The number of admitted orders whose units Redis has returned to the stock. MySQL has a cancelled row or no row
    /// for such an order.
    pub released: u64,
    /// The number of admitted orders that are dead letters.
    pub dead: u64,
    /// The units of admitted orders that are dead letters. The stock in Redis lacks these units until an operator
    /// handles the dead letters.
    pub dead_units: i64,
    /// The number of admitted orders that no worker has handled completely yet.
    pub in_flight: u64,
    /// The units of admitted orders that no worker has handled completely yet.
    pub in_flight_units: i64,
    /// The number of order events of the voucher that workers had not recorded when the audit began.
    pub in_flight_events: u64,
}

/// The number of a voucher's order rows in MySQL, by several criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// The number of the voucher's rows, by status.
    pub states: StateCounts,
    /// The number of the voucher's rows that are not cancelled or refunded.
    pub live_orders: u64,
    /// The units of the voucher's rows that are not cancelled or refunded.
    pub live_units: i64,
    /// The number of the voucher's cancelled rows.
    pub cancelled_orders: u64,
    /// The number of rows whose orders Redis does not know, because the rows are older than the data in Redis, or
    /// because another producer wrote them.
    pub unknown_orders: u64,
    /// The number of rows whose orders Redis has lost: each row names a stream entry, but Redis does not know the
    /// order.
    pub forgotten_orders: u64,
}

/// The errors that an audit found for a voucher: orders, keys and rows that break a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Violations {
    /// The dead letters whose order is cancelled in MySQL, but whose units Redis has not returned to the stock. The
    /// command `tidegate dead cancel` was killed between these two steps.
    pub half_cancelled: Offenders,
    /// The orders that are cancelled in MySQL, but still admitted in the journal (the Redis hash of orders). The audit
    /// does not fail, because a service that cancels without `lua/release.lua` also leaves such orders.
    pub kept: Offenders,
    /// The admitted orders that were lost: MySQL has no row, no worker still handles them, and they are no dead
    /// letters.
    #[serde(flatten)]
    pub lost: LostOrders,
    /// The admitted orders whose row in MySQL has another user, voucher or quantity.
    pub mismatched: Offenders,
    /// The orders that MySQL refused, but whose units Redis has not returned to the stock.
    pub not_released: Offenders,
    /// The orders whose units Redis has returned to the stock, although their row in MySQL is not cancelled. These
    /// units can be sold twice.
    pub doubled_back: Offenders,
    /// The keys in Redis with a wrong type or content, each with the error of Redis. The audit could not check their
    /// contents.
    pub wrong_keys: Offenders,
    /// The pairs of user and slot (number of a user's order), as `user/slot`, with more than one uncancelled order. The
    /// unique key in MySQL prevents such pairs.
    pub shared_slots: Offenders,
    /// The rows whose columns `slot` and `status` contradict each other.
    #[serde(flatten)]
    pub contradictory: ContradictoryRows,
    /// The orders with lost events: acknowledged in the stream, but not recorded in MySQL.
    pub lost_events: Offenders,
    /// The number of harmless differences between both stores, which only a comparison lists. They neither lose nor
    /// double an order or a unit.
    pub other_differences: u64,
    /// Whether Redis has lost the sale of the voucher, so that no user can buy. According to MySQL, the sale is on and
    /// has units and orders. But Redis has neither a stock nor an admitted order.
    pub is_forgotten: bool,
}

/// The orders that Redis admitted and that were lost: MySQL has no row, no worker still handles them, and they are no
/// dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostOrders {
    /// The ids of the lost orders.
    #[serde(rename = "lost")]
    pub orders: Offenders,
    /// The admission times of the lost orders, and their entries that are still in the stream. None: neither is known.
    #[serde(rename = "lost_span")]
    pub span: Option<LostSpan>,
}

/// The order rows whose columns `slot` and `status` contradict each other, and their units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContradictoryRows {
    /// The orders that count neither as live nor as cancelled, because the columns `slot` and `status` contradict each
    /// other (see [`tidegate_orders::row_state`]).
    #[serde(rename = "contradictory")]
    pub orders: Offenders,
    /// The units of the contradictory rows. It is unknown whether these units are back in the stock.
    #[serde(rename = "contradictory_units")]
    pub units: i64,
}

/// The stocks of a voucher in Redis and MySQL, in units, and their errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stocks {
    /// The units left in MySQL. `None`: MySQL does not know the voucher.
    pub stock: Option<i64>,
    /// The units that were ever loaded for the sale. `None`: another program loaded the voucher, so that MySQL does not
    /// know this number.
    pub initial_stock: Option<i64>,
    /// The units left in Redis. `None`: Redis has no stock of the voucher.
    pub redis_stock: Option<i64>,
    /// The right stock in Redis: the stock in MySQL minus the units of unfinished orders and dead letters, which MySQL
    /// will still deduct. `None`: MySQL does not know the voucher.
    pub redis_stock_due: Option<i64>,
    /// The units in Redis that MySQL will certainly not have after all unfinished orders. 0: no such units. `None`:
    /// unknown, because the sale is over, the stock or the journal is missing, or the stock was just changed.
    pub oversell_risk_at_least: Option<i64>,
    /// The stock in Redis minus the sum of the voucher's journal (the Redis hash of orders). Not 0: an operator changed
    /// the stock manually, or Redis lost data. `None`: the journal is not complete, or its sum is unknown.
    pub journal_mismatch: Option<i64>,
    /// The stock in MySQL minus the correct stock: the loaded units, minus the units of rows that are not cancelled.
    /// Both were read in one snapshot. `None`: the loaded units are unknown.
    #[serde(skip)]
    pub mysql_drift: Option<i64>,
    /// Whether both stocks were the same before and after the comparison. False if the stocks were read only once.
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
    /// Whether each admitted order of the voucher is written to MySQL or released (units returned to the stock), and no
    /// order, key or row breaks a rule.
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

    /// Whether neither Redis nor MySQL knows the voucher. In this case, the id is probably a typing error, so the audit
    /// must not pass.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.stocks.stock.is_none()
            && self.orders.admitted + self.rows.live_orders + self.rows.cancelled_orders == 0
    }

    /// The units in Redis that MySQL will not have after all unfinished orders and dead letters are written. Negative:
    /// Redis has fewer units than MySQL. The number is exact only while no orders arrive: see
    /// [`Stocks::oversell_risk_at_least`].
    #[must_use]
    pub fn oversell_risk(&self) -> Option<i64> {
        Some(self.stocks.redis_stock?.saturating_sub(self.stocks.redis_stock_due?))
    }

    /// The units that Redis offers, but that MySQL will not have. None: this number is 0, uncertain, or already
    /// reported as a failure. The number is certain if both stocks stayed the same, no order is unfinished, and no
    /// order is a dead letter.
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

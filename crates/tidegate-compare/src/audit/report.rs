//! What an audit found, counted, and whether it holds.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_orders::VoucherId;
use tidegate_stream::EntryId;

use crate::{
    counts::{Misnamed, Offenders, StateCounts, Unreadable},
    limit_counters::{CounterDifference, NotCompared},
};

/// What an audit found.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// One for each voucher that either side names, ascending.
    pub vouchers: Vec<VoucherAudit>,
    /// The orders of all vouchers in MySQL, by what has become of them.
    pub states: StateCounts,
    /// Entries of the stream that say what happened to orders: paid, cancelled and so on.
    pub events: u64,
    /// Entries of the stream that are neither, and so belong to no voucher.
    pub unreadable: Unreadable,
    /// Of these, the ones that are orders if their fields have other names than are configured.
    pub misnamed: Misnamed,
    /// What is counted for limits and is not what orders hold, and limits of which orders hold more than they allow.
    pub counters: Vec<CounterDifference>,
    /// Counters of which nobody knows whether they are right. No failure.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

impl AuditReport {
    /// Adds what was found of other vouchers. What the stream holds of none is known already.
    pub(super) fn add(&mut self, others: Self) {
        self.vouchers.extend(others.vouchers);
        self.vouchers.sort_by_key(|audit| audit.voucher);
        self.events += others.events;
        self.counters.extend(others.counters);
        self.counters_not_compared.extend(others.counters_not_compared);
    }
}

/// Where lost orders stood in time and in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LostSpan {
    /// When the first of those of which it is known was admitted, Unix time in milliseconds.
    pub from_ms: u64,
    /// When the last of them was.
    pub to_ms: u64,
    /// How many of them the stream still holds: `tidegate replay` can write these.
    pub in_stream: u64,
    /// From the first to the last of these.
    pub entries: Option<(EntryId, EntryId)>,
}

/// One voucher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherAudit {
    /// The voucher.
    pub voucher: VoucherId,
    /// Where its orders are.
    #[serde(flatten)]
    pub orders: OrdersByPlace,
    /// What MySQL holds of it.
    #[serde(flatten)]
    pub rows: RowCounts,
    /// What is wrong with its orders.
    #[serde(flatten)]
    pub offences: Offences,
    /// Its stocks.
    #[serde(flatten)]
    pub stocks: Stocks,
}

/// Order ids that Redis admitted: in the journal, the stream or the dead stream. `admitted = written + released + dead + in_flight`
/// when nothing is lost, mismatched or not released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrdersByPlace {
    /// All of them.
    pub admitted: u64,
    /// Admitted, and a row in MySQL, live, or cancelled since and not released.
    pub written: u64,
    /// Admitted, and released; cancelled in MySQL, or never written there.
    pub released: u64,
    /// Admitted, and buried.
    pub dead: u64,
    /// Units of the buried orders, which Redis holds until they are written or released.
    pub dead_units: i64,
    /// Admitted, and not delivered or not settled yet.
    pub in_flight: u64,
    /// Units of the orders in flight.
    pub in_flight_units: i64,
    /// Events of its orders that were not done when the audit began.
    pub in_flight_events: u64,
}

/// Rows of MySQL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// By what has become of them.
    pub states: StateCounts,
    /// Those that are live.
    pub live_orders: u64,
    /// Units in them.
    pub live_units: i64,
    /// Those that are cancelled.
    pub cancelled_orders: u64,
    /// Those that Redis does not know: older than its data, or of another producer.
    pub unknown_orders: u64,
    /// Of these, the ones that name the entry of the stream that they came from.
    pub forgotten_orders: u64,
}

/// What is wrong with the orders of a voucher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offences {
    /// Buried, cancelled in MySQL and not released: `tidegate dead cancel` was killed between the two.
    pub half_cancelled: Offenders,
    /// Cancelled in MySQL, neither in flight nor dead, and admitted still by the journal. No failure: a service that
    /// cancels without `lua/release.lua` leaves them, too.
    pub kept: Offenders,
    /// Admitted, and nowhere.
    #[serde(flatten)]
    pub lost: LostOrders,
    /// Admitted, settled, and the row with their id is of another user, voucher or quantity.
    pub mismatched: Offenders,
    /// Refused by MySQL, settled, and still held by Redis.
    pub not_released: Offenders,
    /// Released although they have a live row: their units were sold twice.
    pub doubled_back: Offenders,
    /// Keys of Redis that hold something else than they should, with what Redis says of each. What they hold is missing here.
    pub wrong_keys: Offenders,
    /// Slots with more than one live order, as `user/slot`; possible only without the unique key.
    pub shared_slots: Offenders,
    /// Rows whose slot and status contradict each other.
    #[serde(flatten)]
    pub contradictory: ContradictoryRows,
    /// Orders with events that were acknowledged and that MySQL has not recorded.
    pub lost_events: Offenders,
    /// Differences of its orders and users that only a comparison names: no order and no unit is lost or sold twice.
    pub other_differences: u64,
    /// Its sale is on and has units left by MySQL, orders of it came through Redis, and Redis holds no stock and no admitted
    /// order of it: nobody can buy it.
    pub is_forgotten: bool,
}

/// Orders that Redis admitted, and that are neither in MySQL nor in flight nor dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostOrders {
    /// Admitted, and nowhere.
    #[serde(rename = "lost")]
    pub orders: Offenders,
    /// When they were admitted, and which of them can be run again; None where nothing is known of it.
    #[serde(rename = "lost_span")]
    pub span: Option<LostSpan>,
}

/// Rows whose slot and status contradict each other, and their units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContradictoryRows {
    /// Rows whose slot and status contradict each other (see [`tidegate_orders::row_state`]): neither live nor cancelled.
    #[serde(rename = "contradictory")]
    pub orders: Offenders,
    /// Units in them: whether they went back to the stock, the rows do not tell.
    #[serde(rename = "contradictory_units")]
    pub units: i64,
}

/// The stocks of a voucher, in units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stocks {
    /// Left by MySQL; `None` when it does not know the voucher.
    pub stock: Option<i64>,
    /// Loaded; `None` for vouchers that were taken over.
    pub initial_stock: Option<i64>,
    /// Left by Redis.
    pub redis_stock: Option<i64>,
    /// What Redis should offer: what MySQL has left, without those of the orders in flight and of the dead ones, which
    /// will be taken from it or released. `None` when MySQL does not know the voucher.
    pub redis_stock_due: Option<i64>,
    /// What Redis offers and MySQL will not have, at least, whatever is on its way meanwhile; 0 where none are seen.
    /// `None` where nobody can tell: the sale is over, there is no stock or no journal, or it was restocked just now.
    pub oversell_risk_at_least: Option<i64>,
    /// What Redis offers beyond the sum of its journal, below 0 fewer: somebody wrote the stock by hand, or Redis lost
    /// something. 0: it holds. `None` where the journal is not complete, or nobody could tell.
    pub journal_mismatch: Option<i64>,
    /// Units that MySQL has more than what was loaded less its live rows, of one moment.
    #[serde(skip)]
    pub mysql_drift: Option<i64>,
    /// Both stocks were the same again afterwards. False as well where nobody had to know.
    #[serde(skip)]
    pub is_at_rest: bool,
}

impl Offences {
    /// Takes a lost order into the span: when it was admitted, and its entry if the stream holds it.
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
    /// All that was admitted is written or released, and nothing is wrong.
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

    /// Neither side has anything of it: most likely a typo, and no reason for a verdict that all is well.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.stocks.stock.is_none()
            && self.orders.admitted + self.rows.live_orders + self.rows.cancelled_orders == 0
    }

    /// Units that Redis offers beyond what MySQL will have when everything in flight is written and everything
    /// dead is requeued; negative when Redis offers fewer. Exact at a quiet moment only: see [`Stocks::oversell_risk_at_least`].
    #[must_use]
    pub fn oversell_risk(&self) -> Option<i64> {
        Some(self.stocks.redis_stock?.saturating_sub(self.stocks.redis_stock_due?))
    }

    /// The oversell risk that is certain and no failure already; not 0. Nothing is on its way or waits for a decision, and both
    /// stocks were the same again afterwards, so nothing moved while they were read.
    #[must_use]
    pub fn settled_oversell_risk(&self) -> Option<i64> {
        self.possible_oversell_risk().filter(|_| self.stocks.is_at_rest)
    }

    /// What one comparison says of it: the numbers may be of different moments.
    pub(super) fn possible_oversell_risk(&self) -> Option<i64> {
        let is_failure = self.stocks.oversell_risk_at_least.is_some_and(|risk| risk > 0);
        let is_settled =
            self.orders.in_flight + self.orders.dead + self.orders.in_flight_events == 0 && !is_failure;
        self.oversell_risk().filter(|risk| is_settled && *risk != 0)
    }
}

//! What an audit found, counted, and whether it holds.

use std::{collections::BTreeSet, fmt::Display, iter::Sum};

use serde::Serialize;

use tidegate_compare::limit_counters::{CounterDifference, LimitCounterReport, NotCompared};
use tidegate_stream::EntryId;

use tidegate_orders::{VoucherId, row_state::RowStatus};

/// How many offending ids are listed.
const LISTED: usize = 20;

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

/// Entries whose fields seem to have other names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misnamed {
    /// How many.
    pub entries: u64,
    /// Why the first of them is no order, with the names that would make it one.
    pub error: Option<String>,
}

impl AuditReport {
    /// Whether a second look is needed before a surplus is told.
    pub(super) fn has_possible_surplus(&self) -> bool {
        self.vouchers.iter().any(|own| own.possible_surplus().is_some())
    }

    /// Marks the vouchers that an earlier look found the same.
    pub(super) fn compare_with(&mut self, earlier: &Self) {
        for own in &mut self.vouchers {
            own.is_at_rest = earlier.vouchers.iter().any(|before| before == own);
        }
    }

    pub(super) fn set_limits(&mut self, limits: LimitCounterReport) {
        self.counters = limits.differences;
        self.counters_not_compared = limits.not_compared;
        for (voucher, said) in limits.unreadable {
            for own in self.vouchers.iter_mut().filter(|own| own.voucher == voucher) {
                own.wrong_keys.add_new(said.clone());
            }
        }
    }

    /// Everything that is wrong, a sentence each; it holds when there is nothing.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.vouchers.iter().flat_map(VoucherAudit::failures).collect();
        failures.extend(self.counters.iter().take(LISTED).map(CounterDifference::sentence));
        let more = self.counters.len().saturating_sub(LISTED);
        if more > 0 {
            failures.push(format!("{more} more counters of limits are not what orders hold"));
        }
        let Offenders { total, .. } = self.unreadable.lost;
        if total > 0 {
            let what = either(total, "entry was acknowledged and is", "entries were acknowledged and are");
            failures.push(format!(
                "{total} unreadable {what} not in the dead stream: {}; see docs/runbook/unreadable-entry.md",
                self.unreadable.lost
            ));
        }
        failures
    }
}

/// Ids that should not be: how many, and the first 20 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offenders {
    /// How many.
    pub total: u64,
    /// The first of them.
    pub first: Vec<String>,
}

impl Offenders {
    pub(super) fn add(&mut self, id: impl Display) {
        self.total += 1;
        if self.first.len() < LISTED {
            self.first.push(id.to_string());
        }
    }
}

impl Offenders {
    /// Adds what is not among the first of them yet.
    pub(super) fn add_new(&mut self, id: String) {
        if !self.first.contains(&id) {
            self.add(id);
        }
    }
}

impl Display for Offenders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.total.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Orders in MySQL, by what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateCounts {
    /// Not paid yet.
    pub unpaid: u64,
    /// Paid.
    pub paid: u64,
    /// Used.
    pub used: u64,
    /// A payment is being given back, also one that came after the cancellation.
    pub refunding: u64,
    /// Cancelled, expired, or never to be written.
    pub cancelled: u64,
    /// The payment was given back.
    pub refunded: u64,
    /// Slot and status contradict each other, or the status is none of the tutorial's.
    pub contradictory: u64,
}

impl StateCounts {
    /// One more.
    pub(super) fn add(&mut self, state: RowStatus) {
        *match state {
            RowStatus::Unpaid => &mut self.unpaid,
            RowStatus::Paid => &mut self.paid,
            RowStatus::Used => &mut self.used,
            RowStatus::Refunding => &mut self.refunding,
            RowStatus::Cancelled => &mut self.cancelled,
            RowStatus::Refunded => &mut self.refunded,
            RowStatus::Contradictory => &mut self.contradictory,
        } += 1;
    }

    /// In the order of the drawing: unpaid, paid, used, refunding, cancelled, refunded, contradictory.
    #[must_use]
    pub fn all(&self) -> [u64; 7] {
        let Self { unpaid, paid, used, refunding, cancelled, refunded, contradictory } = *self;
        [unpaid, paid, used, refunding, cancelled, refunded, contradictory]
    }
}

impl Sum for StateCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, it| Self {
            unpaid: sum.unpaid + it.unpaid,
            paid: sum.paid + it.paid,
            used: sum.used + it.used,
            refunding: sum.refunding + it.refunding,
            cancelled: sum.cancelled + it.cancelled,
            refunded: sum.refunded + it.refunded,
            contradictory: sum.contradictory + it.contradictory,
        })
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

/// Entries without a readable order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// All of them.
    pub total: u64,
    /// Buried, as they should be.
    pub dead: u64,
    /// Not delivered or not settled yet.
    pub in_flight: u64,
    /// Too few fields for an order, and neither dead nor in flight: of a tutorial's `XADD stream.orders * init 1`, from before
    /// the group. No failure.
    pub no_orders: u64,
    /// None of these: acknowledged and gone.
    pub lost: Offenders,
}

/// One voucher. `admitted = written + released + dead + in_flight` when nothing is lost or mismatched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherAudit {
    /// The voucher.
    pub voucher: VoucherId,
    /// Order ids that Redis admitted: in the journal, the stream or the dead stream.
    pub admitted: u64,
    /// Admitted, and a row in MySQL, live, or cancelled since and not given back.
    pub written: u64,
    /// Admitted, and given back; cancelled in MySQL, or never written there.
    pub released: u64,
    /// Admitted, and buried.
    pub dead: u64,
    /// Of these, the ones that are cancelled in MySQL and not given back: `tidegate dead cancel` was killed between the two.
    pub half_cancelled: Offenders,
    /// Cancelled in MySQL, neither in flight nor dead, and admitted still by the journal. No failure: a service that
    /// cancels without `lua/release.lua` leaves them, too.
    pub kept: Offenders,
    /// Admitted, and not delivered or not settled yet.
    pub in_flight: u64,
    /// Admitted, and nowhere.
    pub lost: Offenders,
    /// When they were admitted, and which of them can be run again; None where nothing is known of it.
    pub lost_span: Option<LostSpan>,
    /// Admitted, settled, and the row with their id is of another user, voucher or quantity.
    pub mismatched: Offenders,
    /// Given back although they have a live row: their units were sold twice.
    pub doubled_back: Offenders,
    /// Keys of Redis that hold something else than they should, with what Redis says of each. What they hold is missing here.
    pub wrong_keys: Offenders,
    /// Slots with more than one live order, as `user/slot`; possible only without the unique key.
    pub shared_slots: Offenders,
    /// Rows whose slot and status contradict each other (see [`tidegate_orders::row_state`]): neither live nor cancelled.
    pub contradictory: Offenders,
    /// Units in them: whether they went back to the stock, the rows do not tell.
    pub contradictory_units: i64,
    /// Rows in MySQL, by what has become of them.
    pub states: StateCounts,
    /// Rows in MySQL that are live.
    pub live_orders: u64,
    /// Units in them.
    pub live_units: i64,
    /// Rows in MySQL that are cancelled.
    pub cancelled_orders: u64,
    /// Rows in MySQL that Redis does not know: older than its data, or of another producer.
    pub unknown_orders: u64,
    /// Of these, the ones that name the entry of the stream that they came from.
    pub forgotten_orders: u64,
    /// Its sale is on and has units left by MySQL, orders of it came through Redis, and Redis holds no stock and no admitted
    /// order of it: nobody can buy it.
    pub is_forgotten: bool,
    /// Units left by MySQL; `None` when it does not know the voucher.
    pub stock: Option<i64>,
    /// Units that were loaded; `None` for vouchers that were taken over.
    pub initial_stock: Option<i64>,
    /// Units left by Redis.
    pub redis_stock: Option<i64>,
    /// Units of the orders in flight.
    pub in_flight_units: i64,
    /// Events of its orders that were not done when the audit began, or came while it went on.
    pub in_flight_events: u64,
    /// Two looks, one after the other, found all of this the same. False as well where one look was enough.
    #[serde(skip)]
    pub is_at_rest: bool,
    /// Units of the buried orders, which Redis holds until they are written or given back.
    pub dead_units: i64,
    /// Units that Redis should offer: what MySQL has left, without those of the orders in flight and of the dead ones, which
    /// will be taken from it or given back. `None` when MySQL does not know the voucher.
    pub redis_stock_due: Option<i64>,
    /// Units that Redis offers and MySQL will not have, at least, whatever is on its way meanwhile; 0 where none are seen.
    /// `None` where nobody can tell: the sale is over, there is no stock or no journal, or it was restocked just now.
    pub surplus_at_least: Option<i64>,
    /// Units that Redis offers beyond the sum of its journal, below 0 fewer: somebody wrote the stock by hand, or Redis lost
    /// something. 0: it holds. `None` where the journal is not complete, or nobody could tell in three looks.
    pub journal_apart: Option<i64>,
}

impl VoucherAudit {
    pub(super) fn new(voucher: VoucherId) -> Self {
        Self {
            voucher,
            admitted: 0,
            written: 0,
            released: 0,
            dead: 0,
            half_cancelled: Offenders::default(),
            kept: Offenders::default(),
            in_flight: 0,
            lost: Offenders::default(),
            lost_span: None,
            mismatched: Offenders::default(),
            doubled_back: Offenders::default(),
            wrong_keys: Offenders::default(),
            shared_slots: Offenders::default(),
            contradictory: Offenders::default(),
            contradictory_units: 0,
            states: StateCounts::default(),
            live_orders: 0,
            live_units: 0,
            cancelled_orders: 0,
            unknown_orders: 0,
            forgotten_orders: 0,
            is_forgotten: false,
            stock: None,
            initial_stock: None,
            redis_stock: None,
            in_flight_units: 0,
            in_flight_events: 0,
            is_at_rest: false,
            dead_units: 0,
            redis_stock_due: None,
            surplus_at_least: None,
            journal_apart: None,
        }
    }

    /// Takes a lost order into the span, by its entries, the oldest first, or what the journal says of them.
    pub(super) fn add_lost(&mut self, entries: impl Iterator<Item = (EntryId, bool)> + Clone) {
        let Some(at_ms) = entries.clone().map(|(entry, _)| entry.ms).find(|ms| *ms > 0) else { return };
        let entry = entries.filter(|(_, is_there)| *is_there).map(|(entry, _)| entry).next();
        let span = self.lost_span.get_or_insert(LostSpan {
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

    /// All that was admitted is written or given back, and nothing is wrong.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let wrong = [
            &self.half_cancelled,
            &self.lost,
            &self.mismatched,
            &self.doubled_back,
            &self.wrong_keys,
            &self.shared_slots,
            &self.contradictory,
        ];
        self.admitted == self.written + self.released && wrong.iter().all(|offenders| offenders.total == 0)
    }

    /// Neither side has anything of it: most likely a typo, and no reason for a verdict that all is well.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.stock.is_none() && self.admitted + self.live_orders + self.cancelled_orders == 0
    }

    /// Units that Redis offers beyond what MySQL will have when everything in flight is written and everything
    /// dead is requeued; negative when Redis offers fewer. Exact at a quiet moment only: see [`Self::surplus_at_least`].
    #[must_use]
    pub fn redis_surplus(&self) -> Option<i64> {
        Some(self.redis_stock? - self.redis_stock_due?)
    }

    /// The surplus that is certain and no failure already; not 0. Nothing is on its way or waits for a decision, and two looks
    /// found the voucher the same, so nothing moved while its numbers were read.
    #[must_use]
    pub fn settled_surplus(&self) -> Option<i64> {
        self.possible_surplus().filter(|_| self.is_at_rest)
    }

    /// What one look says of it: the numbers may be of different moments.
    pub(super) fn possible_surplus(&self) -> Option<i64> {
        let is_failure = self.surplus_at_least.is_some_and(|surplus| surplus > 0);
        let is_settled = self.in_flight + self.dead + self.in_flight_events == 0 && !is_failure;
        self.redis_surplus().filter(|surplus| is_settled && *surplus != 0)
    }

    /// Everything that is wrong with this voucher, a sentence each.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let offences = [
            (&self.lost, "admitted order is lost", "admitted orders are lost"),
            (
                &self.mismatched,
                "order differs from what was admitted under its id",
                "orders differ from what was admitted under their ids",
            ),
            (
                &self.doubled_back,
                "live order was given back to Redis as well",
                "live orders were given back to Redis as well",
            ),
            (
                &self.shared_slots,
                "slot of a user (user/slot) has more than one live order",
                "slots of a user (user/slot) have more than one live order",
            ),
            (
                &self.contradictory,
                "order is neither live nor cancelled (status 4 or 6 with a slot, or no slot with another status)",
                "orders are neither live nor cancelled (status 4 or 6 with a slot, or no slot with another status)",
            ),
        ];
        let offences = offences.into_iter().filter(|(offenders, ..)| offenders.total > 0);
        let mut failures: Vec<String> = offences
            .map(|(offenders, one, many)| {
                let what = either(offenders.total, one, many);
                format!("voucher {}: {} {what}: {offenders}", self.voucher, offenders.total)
            })
            .collect();
        failures.extend(
            self.stock_failures().into_iter().map(|what| format!("voucher {}: {what}", self.voucher)),
        );
        failures.extend(
            self.wrong_keys
                .first
                .iter()
                .map(|what| format!("voucher {}: {what}; see docs/runbook/wrong-type.md", self.voucher)),
        );
        if let Some(surplus) = self.surplus_at_least.filter(|surplus| *surplus > 0) {
            let units = either(surplus.unsigned_abs(), "unit", "units");
            failures.push(format!(
                "voucher {}: Redis offers {surplus} {units} or more that MySQL does not have{}: who is admitted for them is \
                 refused later; see docs/runbook/redis-stock-is-wrong.md",
                self.voucher,
                self.uncertain_surplus(surplus)
            ));
        }
        failures.extend(self.journal_apart.filter(|apart| *apart != 0).map(|apart| {
            let units = either(apart.unsigned_abs(), "unit", "units");
            let more = if apart > 0 { "more" } else { "fewer" };
            format!(
                "voucher {}: Redis offers {} {units} {more} than its journal says: somebody changed the stock by hand, or Redis \
                 lost something; see docs/runbook/redis-stock-is-wrong.md",
                self.voucher,
                apart.unsigned_abs()
            )
        }));
        failures.extend(self.is_forgotten.then(|| {
            let orders = either(self.forgotten_orders, "order that came through Redis", "orders that came through Redis");
            format!(
                "voucher {}: Redis has forgotten it: its sale is on, MySQL has {} {} of it and {} {orders}, and Redis has \
                 no stock of it under the names that are configured; see docs/runbook/redis-lost-data.md",
                self.voucher,
                self.stock.unwrap_or_default(),
                either(self.stock.unwrap_or_default().unsigned_abs(), "unit", "units"),
                self.forgotten_orders,
            )
        }));
        failures
    }

    /// What the table shows beyond what is certain.
    fn uncertain_surplus(&self, certain: i64) -> String {
        let shown = self.redis_surplus().filter(|shown| *shown > certain);
        shown.map_or_else(String::new, |shown| {
            format!(
                " (that is certain; the surplus of {shown} in the table is right unless orders that its journal does not know, \
                 or orders on their way, account for the rest)"
            )
        })
    }

    fn stock_failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let Some(stock) = self.stock else { return failures };
        if stock < 0 {
            failures.push(format!("the stock in MySQL is {stock}"));
        }
        let Some(initial) = self.initial_stock else { return failures };
        if self.live_units > initial {
            failures.push(format!("oversold: {} of {initial} units are in live orders", self.live_units));
        }
        let left = initial - self.live_units;
        if !(left - self.contradictory_units..=left).contains(&stock) {
            failures.push(format!(
                "the stock in MySQL is {stock}, but {initial} loaded - {} in live orders = {}",
                self.live_units, left
            ));
        }
        failures
    }
}

/// The words for one, or for any other number.
fn either(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

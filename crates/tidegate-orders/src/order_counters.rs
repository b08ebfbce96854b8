//! Counts the orders that this process has handled, by their outcomes.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;
use tidegate_stream::Histogram;

use crate::{
    event::{EventKind, EventOutcome},
    evidence::LOST_IN_MYSQL,
    ledger::{Incoming, Refusal, Verdict},
    order_status::ID_TAKEN,
    partition::WRONG_PARTITION,
};

/// All reasons for which the entry of an order becomes a dead letter.
pub const REASONS_OF_DEATH: [&str; 11] = [
    "missing_field",
    "duplicate_field",
    "bad_value",
    "unsupported_event",
    "unknown_voucher",
    "past_limits",
    WRONG_PARTITION,
    ID_TAKEN,
    "rejected_by_database",
    "too_large",
    "killed_worker",
];

/// All kinds of causes for which the entry of an order can wait for a later try.
pub const KINDS_OF_CAUSES: [&str; 10] = [
    "user_lock",
    "voucher_row",
    "order_row",
    "earlier_entry",
    "contention",
    "node_behind",
    LOST_IN_MYSQL,
    "release",
    "dead_stream",
    "killed_worker",
];

/// The outcomes of events that have a counter. All rejections count as one outcome.
pub const EVENT_OUTCOMES: [&str; 4] = ["applied", "unchanged", "refund_due", "rejected"];

/// The numbers of events of each kind, by outcome.
type EventCounts = [[AtomicU64; EVENT_OUTCOMES.len()]; EventKind::ALL.len()];

/// Counters of orders by the decision on the order: written, refused or waiting. The counters grow with each batch.
#[derive(Debug)]
pub struct OrderCounters {
    created: AtomicU64,
    already_there: AtomicU64,
    user_has_order: AtomicU64,
    out_of_stock: AtomicU64,
    lock_refused: AtomicU64,
    contended: AtomicU64,
    limit_uses: AtomicU64,
    events: EventCounts,
    lockings: Histogram,
    writings: Histogram,
}

/// The numbers of orders by the decision on the order: written, refused or waiting, in total or in one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrderCounts {
    /// The number of orders that were written to MySQL.
    pub created: u64,
    /// The number of orders that were already in MySQL.
    pub already_there: u64,
    /// The number of orders that were refused because their user already has an order.
    pub user_has_order: u64,
    /// The number of orders that were refused because the stock in MySQL was too small.
    pub out_of_stock: u64,
    /// The number of times that an order had to wait because another worker had locked its user.
    pub lock_refused: u64,
    /// The number of times that an order had to wait because another transaction had locked the row of its voucher.
    pub contended: u64,
    /// The total number of limits that the written orders count against. An order that counts against two limits counts
    /// twice.
    pub limit_uses: u64,
}

impl Default for OrderCounters {
    fn default() -> Self {
        Self {
            created: AtomicU64::default(),
            already_there: AtomicU64::default(),
            user_has_order: AtomicU64::default(),
            out_of_stock: AtomicU64::default(),
            lock_refused: AtomicU64::default(),
            contended: AtomicU64::default(),
            limit_uses: AtomicU64::default(),
            events: EventCounts::default(),
            lockings: Histogram::of_times(),
            writings: Histogram::of_times(),
        }
    }
}

impl OrderCounts {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Created => self.created += 1,
            Verdict::AlreadyThere | Verdict::Cancelled => self.already_there += 1,
            Verdict::Contended(_) => self.contended += 1,
            // Refusals are counted when they are released. Lanes count the entries that they bury.
            Verdict::Refused(_)
            | Verdict::UnknownVoucher
            | Verdict::PastLimits(_)
            | Verdict::IdTaken
            | Verdict::Rejected(_) => {}
        }
    }

    /// The number of orders that were refused, for all reasons together.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.user_has_order + self.out_of_stock
    }

    pub(crate) fn count_refusal(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Refused(Refusal::UserHasOrder) => self.user_has_order += 1,
            Verdict::Refused(Refusal::OutOfStock) => self.out_of_stock += 1,
            _ => {}
        }
    }
}

impl OrderCounters {
    /// Counts an event that was recorded.
    pub(crate) fn event(&self, kind: EventKind, outcome: EventOutcome) {
        let outcome = match outcome {
            EventOutcome::Applied => 0,
            EventOutcome::Unchanged => 1,
            EventOutcome::RefundDue => 2,
            EventOutcome::Rejected(_) => 3,
        };
        self.events[kind as usize][outcome].fetch_add(1, Relaxed);
    }

    /// The numbers of recorded events, by kind and outcome.
    pub fn events(&self) -> impl Iterator<Item = (EventKind, &'static str, u64)> {
        EventKind::ALL.into_iter().flat_map(|kind| {
            let counts = EVENT_OUTCOMES.iter().zip(&self.events[kind as usize]);
            counts.map(move |(outcome, count)| (kind, *outcome, count.load(Relaxed)))
        })
    }

    pub(crate) fn add(&self, batch: OrderCounts) {
        let OrderCounts {
            created,
            already_there,
            user_has_order,
            out_of_stock,
            lock_refused,
            contended,
            limit_uses,
        } = batch;
        self.created.fetch_add(created, Relaxed);
        self.already_there.fetch_add(already_there, Relaxed);
        self.user_has_order.fetch_add(user_has_order, Relaxed);
        self.out_of_stock.fetch_add(out_of_stock, Relaxed);
        self.lock_refused.fetch_add(lock_refused, Relaxed);
        self.contended.fetch_add(contended, Relaxed);
        self.limit_uses.fetch_add(limit_uses, Relaxed);
    }

    pub(crate) fn locked_in(&self, time: Duration) {
        self.lockings.add_time(time);
    }

    /// Counts a batch that was written and committed. It is counted at once: if something fails after this, its orders
    /// come again and count as written before.
    pub(crate) fn written(&self, orders: &[Incoming], verdicts: &[Verdict], time: Duration) {
        let mut counts = OrderCounts::default();
        verdicts.iter().for_each(|verdict| counts.count(verdict));
        let created = orders.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Created);
        let uses = created.filter_map(|(incoming, _)| incoming.order.uses.as_ref());
        counts.limit_uses = uses.map(|uses| uses.iter().count() as u64).sum();
        self.add(counts);
        self.writings.add_time(time);
    }

    pub(crate) fn contended(&self, orders: usize) {
        self.contended.fetch_add(orders as u64, Relaxed);
    }

    pub(crate) fn lock_refused(&self, orders: usize) {
        self.lock_refused.fetch_add(orders as u64, Relaxed);
    }

    /// Reads the current values of the counters.
    #[must_use]
    pub fn counts(&self) -> OrderCounts {
        OrderCounts {
            created: self.created.load(Relaxed),
            already_there: self.already_there.load(Relaxed),
            user_has_order: self.user_has_order.load(Relaxed),
            out_of_stock: self.out_of_stock.load(Relaxed),
            lock_refused: self.lock_refused.load(Relaxed),
            contended: self.contended.load(Relaxed),
            limit_uses: self.limit_uses.load(Relaxed),
        }
    }

    /// Returns a histogram of the time that it takes to lock the users of a batch.
    #[must_use]
    pub fn lockings(&self) -> &Histogram {
        &self.lockings
    }

    /// Returns a histogram of the time that it takes to write the orders of a batch to MySQL.
    #[must_use]
    pub fn writings(&self) -> &Histogram {
        &self.writings
    }
}

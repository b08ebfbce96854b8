//! What became of the orders that this process has handled, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::ledger::{Refusal, Verdict};

/// Counts orders, by their verdict.
#[derive(Debug, Default)]
pub struct Tally {
    created: AtomicU64,
    already_there: AtomicU64,
    user_has_order: AtomicU64,
    out_of_stock: AtomicU64,
    lock_refused: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TallyCounts {
    /// Orders written.
    pub created: u64,
    /// Orders that were there already.
    pub already_there: u64,
    /// Orders refused because their user has one.
    pub user_has_order: u64,
    /// Orders refused because the stock does not cover them.
    pub out_of_stock: u64,
    /// Times that an order had to wait because another worker held its user's lock.
    pub lock_refused: u64,
}

impl Tally {
    pub(crate) fn verdict(&self, verdict: &Verdict) {
        let counter = match verdict {
            Verdict::Created => &self.created,
            Verdict::AlreadyThere => &self.already_there,
            Verdict::Refused(Refusal::UserHasOrder) => &self.user_has_order,
            Verdict::Refused(Refusal::OutOfStock) => &self.out_of_stock,
            // The lanes count these when they bury them or try them again.
            Verdict::UnknownVoucher | Verdict::IdTaken | Verdict::Rejected(_) | Verdict::Contended => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn lock_refused(&self, orders: usize) {
        self.lock_refused.fetch_add(orders as u64, Relaxed);
    }

    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> TallyCounts {
        TallyCounts {
            created: self.created.load(Relaxed),
            already_there: self.already_there.load(Relaxed),
            user_has_order: self.user_has_order.load(Relaxed),
            out_of_stock: self.out_of_stock.load(Relaxed),
            lock_refused: self.lock_refused.load(Relaxed),
        }
    }
}

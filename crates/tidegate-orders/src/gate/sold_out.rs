//! Vouchers that were sold out a moment ago. In a rush nearly all callers hear just that, and Redis need not be asked for each.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::order::{Quantity, VoucherId};

/// More vouchers than that at once are forgotten first where their time is over.
const MANY: usize = 1024;

/// Knows, for a while, which vouchers had fewer units left than somebody wanted. Shared by whoever admits and gives back in a
/// process: a unit that comes back through one of its gates ends that at once.
#[derive(Debug)]
pub struct SoldOut {
    lasts: Duration,
    vouchers: Mutex<HashMap<VoucherId, Refused>>,
    releases: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    at: Instant,
    quantity: Quantity,
}

/// The moment before Redis is asked: what comes back after it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(u64);

impl SoldOut {
    /// Knows it for so long; 0: never.
    #[must_use]
    pub fn new(lasts: Duration) -> Self {
        Self { lasts, vouchers: Mutex::default(), releases: AtomicU64::new(0) }
    }

    /// Whether so many units, or fewer, were refused a moment ago, and none came back since.
    #[must_use]
    pub fn knows(&self, voucher: VoucherId, quantity: Quantity) -> bool {
        self.vouchers()
            .get(&voucher)
            .is_some_and(|it| it.at.elapsed() < self.lasts && it.quantity <= quantity)
    }

    pub(super) fn asks(&self) -> Asked {
        Asked(self.releases.load(SeqCst))
    }

    /// Redis said so to somebody who began to ask then.
    pub(super) fn note(&self, voucher: VoucherId, quantity: Quantity, asked: Asked) {
        if self.lasts.is_zero() {
            return;
        }
        let mut vouchers = self.vouchers();
        // Units may have come back after Redis looked. Below the lock, so that none does in between.
        if self.asks().0 != asked.0 {
            return;
        }
        if vouchers.len() >= MANY {
            vouchers.retain(|_, it| it.at.elapsed() < self.lasts);
        }
        let is_said = |it: &Refused| it.at.elapsed() < self.lasts && it.quantity <= quantity;
        if !vouchers.get(&voucher).is_some_and(is_said) {
            vouchers.insert(voucher, Refused { at: Instant::now(), quantity });
        }
    }

    /// Units of these vouchers came back.
    pub(super) fn forget(&self, came_back: impl Iterator<Item = VoucherId>) {
        let mut vouchers = self.vouchers();
        self.releases.fetch_add(1, SeqCst);
        for voucher in came_back {
            vouchers.remove(&voucher);
        }
    }

    fn vouchers(&self) -> MutexGuard<'_, HashMap<VoucherId, Refused>> {
        self.vouchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    #[cfg(test)]
    const fn at_first() -> Self {
        Self(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voucher(id: i64) -> VoucherId {
        id.try_into().unwrap()
    }

    fn units(quantity: i64) -> Quantity {
        Quantity::try_from(quantity).unwrap()
    }

    #[test]
    fn it_is_known_for_as_many_units_and_more_until_one_comes_back() {
        let sold_out = SoldOut::new(Duration::from_secs(3600));
        sold_out.note(voucher(7), units(3), sold_out.asks());
        assert!(sold_out.knows(voucher(7), units(3)) && sold_out.knows(voucher(7), units(4)));
        assert!(!sold_out.knows(voucher(7), units(2)), "two may be left");
        assert!(!sold_out.knows(voucher(8), units(3)));
        sold_out.note(voucher(7), units(1), sold_out.asks());
        assert!(sold_out.knows(voucher(7), units(1)));
        sold_out.forget([voucher(7)].into_iter());
        assert!(!sold_out.knows(voucher(7), units(1)));
        // Redis may have looked before the units came back.
        sold_out.note(voucher(7), units(1), Asked::at_first());
        assert!(!sold_out.knows(voucher(7), units(1)));
    }

    #[test]
    fn it_is_not_known_for_longer_and_takes_no_memory_for_ever() {
        let sold_out = SoldOut::new(Duration::ZERO);
        sold_out.note(voucher(7), units(1), sold_out.asks());
        assert!(!sold_out.knows(voucher(7), units(1)));
        let sold_out = SoldOut::new(Duration::from_nanos(1));
        for id in 1..=3 * MANY as i64 {
            sold_out.note(voucher(id), units(1), sold_out.asks());
        }
        assert!(sold_out.vouchers().len() <= MANY, "{}", sold_out.vouchers().len());
    }
}

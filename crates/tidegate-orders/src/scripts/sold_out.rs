//! Remembers vouchers that were sold out a moment ago. In a rush, nearly all requests are refused for that reason, so
//! Redis need not be asked for each.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::order::{Quantity, VoucherId};

/// The longest time that a call takes. Units that returned longer ago than that do not matter to any call.
const LONGEST_CALL: Duration = Duration::from_secs(60);
/// How many vouchers are remembered before old ones are forgotten; afterwards, twice as many as stayed, if that is
/// more.
const FEW: usize = 1024;

/// A memory of the vouchers for which a recent request wanted more units than were left. All parts of a process share
/// this memory. If this process returns units of a voucher to the stock, the memory forgets the voucher at once.
#[derive(Debug)]
pub struct SoldOut {
    lasts: Duration,
    vouchers: Mutex<Vouchers>,
}

#[derive(Debug)]
struct Vouchers {
    by_id: HashMap<VoucherId, Known>,
    most: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    refused: Option<Refused>,
    /// The time at which a unit last returned.
    came_back: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    /// The time at which the request was sent: Redis may have read the stock at that time.
    asked_at: Instant,
    quantity: Quantity,
    /// The units that were left. `None`: they were not counted yet.
    left: Option<u64>,
}

impl SoldOut {
    /// Creates a memory that keeps each refusal for the time `lasts`, counted from the refused request. If `lasts` is
    /// 0, it keeps nothing.
    #[must_use]
    pub fn new(lasts: Duration) -> Self {
        Self { lasts, vouchers: Mutex::new(Vouchers { by_id: HashMap::new(), most: FEW }) }
    }

    /// The units that were left when a request for at most the given number of units was refused a short time ago. `None`
    /// if no such request was refused, if units of the voucher have returned since, or if the units that are left were
    /// not counted.
    #[must_use]
    pub fn left(&self, voucher: VoucherId, quantity: Quantity) -> Option<u64> {
        let refused = self.vouchers().by_id.get(&voucher)?.refused?;
        let is_known = self.is_still_true(&refused) && refused.quantity <= quantity;
        // Fewer units than one are none.
        let left = if refused.quantity == Quantity::ONE { Some(0) } else { refused.left };
        left.filter(|_| is_known)
    }

    /// Notes how many units of a voucher were left a moment after a request was refused. If units have returned since
    /// then, nothing is noted.
    pub fn note_left(&self, voucher: VoucherId, left: u64) {
        if let Some(refused) =
            self.vouchers().by_id.get_mut(&voucher).and_then(|known| known.refused.as_mut())
        {
            refused.left = Some(left);
        }
    }

    /// Notes that Redis refused this many units to a request that was sent at `asked_at`.
    pub(super) fn note(&self, voucher: VoucherId, quantity: Quantity, asked_at: Instant) {
        let refused = Refused { asked_at, quantity, left: None };
        if !self.is_still_true(&refused) {
            return;
        }
        let mut vouchers = self.vouchers();
        self.forget_some(&mut vouchers);
        let known = vouchers.by_id.entry(voucher).or_default();
        let came_back = known.came_back.is_some_and(|came_back| came_back >= asked_at);
        let says_more = known.refused.is_some_and(|was| self.is_still_true(&was) && was.quantity <= quantity);
        if !came_back && !says_more {
            known.refused = Some(refused);
        }
    }

    /// Notes that units of these vouchers returned.
    pub(super) fn forget(&self, came_back: impl Iterator<Item = VoucherId>) {
        let (now, mut vouchers) = (Instant::now(), self.vouchers());
        self.forget_some(&mut vouchers);
        for voucher in came_back {
            vouchers.by_id.insert(voucher, Known { refused: None, came_back: Some(now) });
        }
    }

    fn is_still_true(&self, refused: &Refused) -> bool {
        refused.asked_at.elapsed() < self.lasts
    }

    /// Forgets old vouchers, but only if there are twice as many as stayed last time.
    fn forget_some(&self, vouchers: &mut Vouchers) {
        if vouchers.by_id.len() < vouchers.most {
            return;
        }
        vouchers.by_id.retain(|_, known| {
            let matters = known.came_back.is_some_and(|came_back| came_back.elapsed() < LONGEST_CALL);
            matters || known.refused.is_some_and(|refused| self.is_still_true(&refused))
        });
        vouchers.most = FEW.max(2 * vouchers.by_id.len());
    }

    fn vouchers(&self) -> MutexGuard<'_, Vouchers> {
        self.vouchers.lock().unwrap_or_else(PoisonError::into_inner)
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
        let before = Instant::now();
        sold_out.note(voucher(7), units(3), before);
        assert_eq!(sold_out.left(voucher(7), units(3)), None, "nobody has looked");
        sold_out.note_left(voucher(7), 2);
        assert_eq!([3, 4].map(|quantity| sold_out.left(voucher(7), units(quantity))), [Some(2); 2]);
        assert_eq!(sold_out.left(voucher(7), units(2)), None, "two are left");
        assert_eq!(sold_out.left(voucher(8), units(3)), None);
        sold_out.note(voucher(7), units(1), before);
        sold_out.note(voucher(7), units(5), before);
        assert_eq!(sold_out.left(voucher(7), units(1)), Some(0), "the least that was refused counts");
        sold_out.forget([voucher(7)].into_iter());
        assert_eq!(sold_out.left(voucher(7), units(1)), None);
        // Redis may have read the stock before the units returned.
        sold_out.note(voucher(7), units(1), before);
        assert_eq!(sold_out.left(voucher(7), units(1)), None);
        // Units of other vouchers do not matter.
        sold_out.note(voucher(9), units(1), before);
        assert_eq!(sold_out.left(voucher(9), units(1)), Some(0));
    }

    #[test]
    fn it_is_known_from_the_asking_on_and_not_from_the_answer() {
        let sold_out = SoldOut::new(Duration::from_millis(100));
        let Some(long_ago) = Instant::now().checked_sub(Duration::from_millis(101)) else { return };
        sold_out.note(voucher(7), units(1), long_ago);
        assert_eq!(sold_out.left(voucher(7), units(1)), None, "the answer was under way for too long");
        let never = SoldOut::new(Duration::ZERO);
        never.note(voucher(7), units(1), Instant::now());
        assert_eq!(never.left(voucher(7), units(1)), None);
    }

    #[test]
    fn it_takes_no_memory_for_ever() {
        let sold_out = SoldOut::new(Duration::from_micros(1));
        for id in 1..=10 * FEW as i64 {
            sold_out.note(voucher(id), units(1), Instant::now());
        }
        assert!(sold_out.vouchers().by_id.len() <= 2 * FEW, "{}", sold_out.vouchers().by_id.len());
    }
}

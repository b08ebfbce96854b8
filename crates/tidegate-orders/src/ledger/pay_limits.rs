//! Within what time the orders of a voucher have to be paid, as far as this process knows. A batch that assumes it is not
//! looked up for it: the write checks `pay_within` in the row of the voucher, which it changes anyway.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use super::{Incoming, verdict::Known};
use crate::order::VoucherId;

/// What was read last of each voucher. One that is not here has NULL, as most have.
#[derive(Debug, Default)]
pub(super) struct PayLimits {
    default_s: i64,
    known: RwLock<HashMap<VoucherId, i64>>,
}

impl PayLimits {
    pub fn with_default(default: Duration) -> Self {
        Self { default_s: i64::try_from(default.as_secs()).unwrap_or(i64::MAX / 1000), ..Self::default() }
    }

    /// Seconds for the orders of vouchers that say nothing of it; 0: for ever.
    pub fn default_s(&self) -> i64 {
        self.default_s
    }

    /// Adds what is assumed of the vouchers of these orders.
    pub fn assume(&self, part: &[&Incoming], known: &mut Known) {
        let limits = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if limits.is_empty() {
            return;
        }
        let vouchers = part.iter().map(|incoming| incoming.order.voucher);
        known.pay_within.extend(vouchers.filter_map(|voucher| Some((voucher, *limits.get(&voucher)?))));
    }

    /// Remembers what was read.
    pub fn note(&self, known: &Known) {
        let differs = |limits: &HashMap<VoucherId, i64>| {
            known.stocks.keys().any(|voucher| limits.get(voucher) != known.pay_within.get(voucher))
        };
        if !differs(&self.known.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut limits = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for voucher in known.stocks.keys() {
            match known.pay_within.get(voucher) {
                Some(within_s) => limits.insert(*voucher, *within_s),
                None => limits.remove(voucher),
            };
        }
    }
}

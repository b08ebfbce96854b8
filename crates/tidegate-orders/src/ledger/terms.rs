//! The terms on which the orders of a voucher are written, as far as this process knows. A batch assumes these terms
//! instead of reading them first. The write checks them in the row of the voucher, which it changes anyway.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use super::{
    Incoming,
    verdict::{Known, SaleTerms},
};
use crate::order::VoucherId;

/// The terms that were read last for each voucher. A voucher that is not here has NULL in all columns.
#[derive(Debug, Default)]
pub(super) struct KnownTerms {
    default_s: i64,
    known: RwLock<HashMap<VoucherId, SaleTerms>>,
}

impl KnownTerms {
    pub fn with_default(default: Duration) -> Self {
        Self { default_s: i64::try_from(default.as_secs()).unwrap_or(i64::MAX / 1000), ..Self::default() }
    }

    /// The seconds to pay for orders of vouchers without a time of their own. 0: they never expire.
    pub fn default_s(&self) -> i64 {
        self.default_s
    }

    /// Adds to `known` the assumed terms of the vouchers of these orders.
    pub fn assume(&self, part: &[&Incoming], known: &mut Known) {
        let terms = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if terms.is_empty() {
            return;
        }
        let vouchers = part.iter().map(|incoming| incoming.order.voucher);
        known.terms.extend(vouchers.filter_map(|voucher| Some((voucher, *terms.get(&voucher)?))));
    }

    /// Remembers the terms that were read.
    pub fn note(&self, known: &Known) {
        let differs = |terms: &HashMap<VoucherId, SaleTerms>| {
            known.stocks.keys().any(|voucher| terms.get(voucher) != known.terms.get(voucher))
        };
        if !differs(&self.known.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut terms = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for voucher in known.stocks.keys() {
            match known.terms.get(voucher) {
                Some(read) => terms.insert(*voucher, *read),
                None => terms.remove(voucher),
            };
        }
    }
}

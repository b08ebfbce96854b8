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

    /// The time limit for the payment of an order whose voucher has no limit of its own, in seconds. 0 if the order
    /// never expires.
    pub fn default_s(&self) -> i64 {
        self.default_s
    }

    /// Adds to `known` what is assumed about the vouchers of the given orders: time limits of payments, and limits on
    /// orders.
    pub fn assume(&self, part: &[&Incoming], known: &mut Known) {
        let terms = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if terms.is_empty() {
            return;
        }
        let vouchers = part.iter().map(|incoming| incoming.order.voucher);
        known.terms.extend(vouchers.filter_map(|voucher| Some((voucher, *terms.get(&voucher)?))));
    }

    /// Stores what MySQL says about vouchers: time limits of payments, and limits on orders.
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

//! Vouchers that have refusals, as far as this process knows. The set may hold too many: after
//! `tidegate prune refusals`, a voucher in it may have none left, and its look-up is then unnecessary.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use super::{Incoming, verdict::Known};
use crate::order::VoucherId;

#[derive(Debug, Default)]
pub(super) struct RefusedVouchers(RwLock<HashSet<VoucherId>>);

impl RefusedVouchers {
    /// Whether the database has refused orders of any voucher in the given orders.
    pub fn has_any_of(&self, part: &[&Incoming]) -> bool {
        let refused = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !refused.is_empty() && part.iter().any(|incoming| refused.contains(&incoming.order.voucher))
    }

    pub fn note(&self, known: &Known) {
        let with_refusals = known.refused_of.iter().filter(|(_, count)| **count > 0);
        let mut with_refusals = with_refusals.map(|(voucher, _)| *voucher).peekable();
        if with_refusals.peek().is_some() {
            self.0.write().unwrap_or_else(PoisonError::into_inner).extend(with_refusals);
        }
    }
}

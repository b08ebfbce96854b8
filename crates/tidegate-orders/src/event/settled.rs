//! Finds the events of an ended order that can be deleted: a pure decision over its history.

use std::collections::HashSet;

use super::{EventKind, EventOutcome, EventText, History, PastEvent};
use crate::row_state::status::{CANCELLED, REFUNDED, USED};

impl History {
    /// Whether the order is final and no payment has to be refunded. A final order is used (redeemed) and paid, or has
    /// ended (cancelled or refunded) and has no slot. A slot is the number that keeps a user from a second order.
    ///
    /// If an order was used although none of its payments is known, another program moved it, and the first payment
    /// that comes is its own. If the known payment of a used order were deleted, that order would look the same.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let has_ended = self.row.is_some_and(|row| match (row.status, row.has_slot) {
            (USED, true) => self.events.iter().any(PastEvent::is_own_payment),
            (CANCELLED | REFUNDED, false) => true,
            _ => false,
        });
        has_ended && self.payments_due().next().is_none()
    }

    /// The sequence numbers of those events of an ended order that no later decision needs.
    ///
    /// The remaining events show how the order came to its status, which events released units, and which number comes
    /// next. They also keep every payment with its refund. So a later payment is decided as if no event had been
    /// deleted.
    #[must_use]
    pub fn unneeded(&self) -> Vec<u32> {
        let last = self.events.last().map(|past| past.number);
        let last_move = self.events.iter().rev().find(|past| past.step.is_some()).map(|past| past.number);
        let (mut known, mut unneeded) = (HashSet::new(), Vec::new());
        for past in &self.events {
            // Called first, because an event that stays for another reason may also be the first with its reference.
            let is_needed = past.is_needed_for_money(&mut known)
                || past.released > 0
                || [last, last_move].contains(&Some(past.number));
            if !is_needed {
                unneeded.push(past.number);
            }
        }
        unneeded
    }
}

impl PastEvent {
    /// Whether the event is a payment or a refund that adds to what is known. `known` holds the references of the
    /// events before it.
    fn is_needed_for_money<'a>(&'a self, known: &mut HashSet<(EventKind, &'a EventText)>) -> bool {
        let Some(kind @ (EventKind::Paid | EventKind::Refunded)) = self.kind else { return false };
        match (self.outcome, &self.reference) {
            (EventOutcome::Rejected(_), _) => false,
            (EventOutcome::Unchanged, None) => false,
            (EventOutcome::Unchanged, Some(reference)) => known.insert((kind, reference)),
            (EventOutcome::Applied | EventOutcome::RefundDue, reference) => {
                known.extend(reference.as_ref().map(|reference| (kind, reference)));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;

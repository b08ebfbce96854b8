//! Which events of an order that has ended nobody needs any more: a pure decision over its history, for whoever deletes them.

use std::collections::HashSet;

use super::{EventKind, EventOutcome, EventText, History, PastEvent};
use crate::row_state::status::{CANCELLED, REFUNDED, USED};

impl History {
    /// The order has ended, and owes no money: used with a payment of its own, or cancelled or refunded without a slot.
    ///
    /// An order that was used although no payment of it is known was moved by another program, and the first payment that
    /// comes is its own. With an event less, nobody could tell it from one whose payment is known no more.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let has_ended = self.row.is_some_and(|row| match (row.status, row.has_slot) {
            (USED, true) => self.events.iter().any(PastEvent::is_own_payment),
            (CANCELLED | REFUNDED, false) => true,
            _ => false,
        });
        has_ended && self.payments_due().next().is_none()
    }

    /// The events of a settled order that no later decision needs, by number.
    ///
    /// What stays says how the order came to its status, what released units, and which number comes next. So does
    /// every payment with the refund that answers it: whatever payment comes later is decided as if nothing had gone.
    #[must_use]
    pub fn unneeded(&self) -> Vec<u32> {
        let last = self.events.last().map(|past| past.number);
        let last_move = self.events.iter().rev().find(|past| past.step.is_some()).map(|past| past.number);
        let (mut known, mut unneeded) = (HashSet::new(), Vec::new());
        for past in &self.events {
            // Asked first: also an event that stays for another reason may be the first one with its reference.
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
    /// It is a payment or a refund, and more than one more word of what is known already: `known` are the references of
    /// those before it.
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

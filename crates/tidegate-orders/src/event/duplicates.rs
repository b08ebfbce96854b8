//! The rules for repeated events: pure functions over the history of an order.
//!
//! An event repeats the first event of its kind and reference that was not rejected. The decision, the outcome for the
//! sender and the published result all use this rule. The published result also uses [`History::applied_before`], for
//! events that repeat no other event but report a state that the order already has.

use super::{EventKind, EventOutcome, EventText, History, PastEvent};

impl History {
    /// Finds the first event of this kind with this reference. A rejected event does not count: if it comes again, it is
    /// decided again, because the order may have moved.
    pub(super) fn first_with(&self, kind: EventKind, reference: Option<&EventText>) -> Option<&PastEvent> {
        reference?;
        self.events.iter().find(|past| {
            past.kind == Some(kind)
                && past.reference.as_ref() == reference
                && !matches!(past.outcome, EventOutcome::Rejected(_))
        })
    }

    /// Finds the earlier event that `past` repeats.
    fn repeated_by(&self, past: &PastEvent) -> Option<&PastEvent> {
        let first = self.first_with(past.kind?, past.reference.as_ref());
        first.filter(|first| first.number < past.number)
    }

    /// The outcome that the sender of an event is told. Each event with the same reference gets the outcome of the first
    /// one, but a payment is `RefundDue` only until it was refunded, and `Unchanged` after that.
    #[must_use]
    pub fn outcome_of_reference(&self, past: &PastEvent) -> EventOutcome {
        let first = self.repeated_by(past).unwrap_or(past);
        match first.outcome {
            EventOutcome::RefundDue if self.refund_of(first).is_some() => EventOutcome::Unchanged,
            outcome => outcome,
        }
    }

    /// The outcome of one entry in the report of a command, which counts changed orders. So an event that repeats an
    /// applied one is `Unchanged`. Otherwise, as [`History::outcome_of_reference`].
    #[must_use]
    pub fn outcome_of_entry(&self, past: &PastEvent) -> EventOutcome {
        match self.outcome_of_reference(past) {
            EventOutcome::Applied => past.outcome,
            outcome => outcome,
        }
    }

    /// Finds the earlier event whose result a worker publishes instead of that of `past`. `None`: `past` has its own
    /// result. If `past` changed nothing, it is the event with the same reference, or else the last one that caused this
    /// state. For a refunded payment it is the refund, so that no reader refunds twice.
    #[must_use]
    pub fn published_for(&self, past: &PastEvent) -> Option<&PastEvent> {
        if past.outcome != EventOutcome::Unchanged {
            return None;
        }
        let repeated = self.repeated_by(past);
        let first = repeated.unwrap_or(past);
        match first.outcome {
            EventOutcome::RefundDue => self.refund_of(first).or(repeated),
            EventOutcome::Unchanged => self.applied_before(first).or(repeated),
            EventOutcome::Applied | EventOutcome::Rejected(_) => repeated,
        }
    }

    /// Finds the latest applied event before `past` that reported the same: its kind, and for refunds its payment.
    fn applied_before(&self, past: &PastEvent) -> Option<&PastEvent> {
        self.events.iter().rev().find(|other| {
            let is_of_another_payment =
                other.payment.is_some() && past.payment.is_some() && other.payment != past.payment;
            other.number < past.number
                && other.kind == past.kind
                && other.outcome == EventOutcome::Applied
                && !is_of_another_payment
        })
    }
}

#[cfg(test)]
mod tests;

//! What is said about an event that comes again: pure rules over the history of its order.
//!
//! An event repeats the first event of its kind with the same reference, unless that event was rejected. This one rule
//! decides the event, tells its sender the outcome, and selects the result that a worker publishes.

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

    /// Finds the earlier event with the reference of `past`, which `past` only repeats.
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

    /// The outcome of one entry for an operator, who asks how many orders a command has changed: an event that repeats
    /// an applied one is `Unchanged`. Otherwise like [`History::outcome_of_reference`].
    #[must_use]
    pub fn outcome_of_entry(&self, past: &PastEvent) -> EventOutcome {
        match self.outcome_of_reference(past) {
            EventOutcome::Applied => past.outcome,
            outcome => outcome,
        }
    }

    /// Finds the earlier event whose result a worker publishes for an event that changed nothing, because the order may
    /// have moved since. That is the event with the same reference, or else the one that brought the order into this
    /// state. For a payment that was refunded, it is the refund: the payment must not be announced as due again.
    /// `None`: `past` has its own result.
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

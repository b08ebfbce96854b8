//! Predicts a worker's decision about an event from the order as MySQL has it now. The function is pure.

use serde::{Serialize, Serializer};
use tidegate_orders::event::{Event, EventOutcome, EventRejection, History, decide};
use tidegate_stream::EntryId;

/// The prediction for an order event: the outcome of the event, and the new status of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    /// The outcome that the event would have.
    #[serde(serialize_with = "as_word")]
    pub outcome: EventOutcome,
    /// The status of the order after the event; None: the status would not change.
    pub to: Option<i64>,
}

fn as_word<S: Serializer>(outcome: &EventOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.word())
}

impl Expectation {
    /// Returns why a worker would reject the event; None: the event would not be rejected.
    #[must_use]
    pub fn rejection(&self) -> Option<EventRejection> {
        match self.outcome {
            EventOutcome::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }
}

/// Predicts the outcome of `event`, and adds it to the history.
pub(super) fn expect(event: &Event, history: &mut History) -> Expectation {
    // The new event is later than all recorded ones.
    let number = u64::try_from(history.events.len()).unwrap_or(u64::MAX);
    let entry = EntryId { ms: u64::MAX, seq: number };
    let decided = decide(event, entry, history);
    Expectation { outcome: history.outcome_of_entry(&decided), to: decided.step.map(|step| step.to) }
}

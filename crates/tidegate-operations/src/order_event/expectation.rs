//! What a worker would decide of an event, if it came to the order as MySQL has it now. Pure.

use serde::{Serialize, Serializer};
use tidegate_orders::event::{Event, EventOutcome, EventRejection, History, decide};
use tidegate_stream::EntryId;

/// What would come of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    /// What would come of it.
    #[serde(serialize_with = "as_word")]
    pub outcome: EventOutcome,
    /// The status after it; None: the order would not move.
    pub to: Option<i64>,
}

fn as_word<S: Serializer>(outcome: &EventOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.word())
}

impl Expectation {
    /// Why it would be rejected.
    #[must_use]
    pub fn rejection(&self) -> Option<EventRejection> {
        match self.outcome {
            EventOutcome::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }
}

/// What would come of `event`, which is added to the history.
pub(super) fn expect(event: &Event, history: &mut History) -> Expectation {
    // Later than all that are recorded.
    let number = u64::try_from(history.events.len()).unwrap_or(u64::MAX);
    let entry = EntryId { ms: u64::MAX, seq: number };
    let decided = decide(event, entry, history);
    Expectation { outcome: history.told_outcome(&decided), to: decided.step.map(|step| step.to) }
}

//! What a worker would decide of an event, if it came to the order as MySQL has it now. Pure.

use serde::{Serialize, Serializer};
use tidegate_orders::{
    EventKind,
    event::{Event, EventOutcome, EventRejection, EventText, History, PastEvent, Row, Step, decide},
};
use tidegate_stream::EntryId;

use crate::order_show::{EventRow, OrderRow, RefusalRow};

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
    Expectation { outcome: decided.outcome, to: decided.step.map(|step| step.to) }
}

/// What is known of an order.
pub(super) fn history(row: Option<&OrderRow>, refusal: Option<&RefusalRow>, events: &[&EventRow]) -> History {
    History {
        row: row.map(|row| Row {
            user: row.user,
            voucher: row.voucher,
            quantity: row.quantity,
            status: row.status,
            has_slot: row.slot.is_some(),
        }),
        refused: refusal.map(|refusal| (refusal.user, refusal.voucher)),
        is_of_another: false,
        events: events.iter().map(|event| past(event)).collect(),
    }
}

fn past(event: &EventRow) -> PastEvent {
    let text = |text: &Option<String>| -> Option<EventText> { text.as_ref()?.parse().ok() };
    PastEvent {
        number: u32::try_from(event.step).unwrap_or_default(),
        kind: EventKind::from_word(event.event.as_bytes()),
        reference: text(&event.reference),
        payment: text(&event.payment),
        reason: text(&event.reason),
        outcome: EventOutcome::from_word(&event.outcome),
        step: event.to.map(|to| Step { from: event.from, to }),
        released: event.released,
        entry: event.entry.parse().unwrap_or_default(),
    }
}

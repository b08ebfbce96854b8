//! Events and orders for the tests of the rules of events.

use tidegate_stream::EntryId;

use super::{Event, EventKind, History, PastEvent, Row, decide};

/// An event of order 1, of its own user.
pub fn event(kind: EventKind, reference: Option<&str>, payment: Option<&str>) -> Event {
    let text = |text: Option<&str>| text.map(|text| text.parse().unwrap());
    Event {
        kind,
        order: 1.try_into().unwrap(),
        user: 5.try_into().unwrap(),
        voucher: 7.try_into().unwrap(),
        reference: text(reference),
        payment: text(payment),
        reason: None,
    }
}

/// The row of order 1.
pub fn row(status: i64, has_slot: bool) -> Row {
    Row { user: 5, voucher: 7, quantity: 3, status, has_slot }
}

/// The history of order 1 before its first event.
pub fn order(status: i64, has_slot: bool) -> History {
    History { row: Some(row(status, has_slot)), ..History::default() }
}

/// Decides one more event, as an entry of its own.
pub fn next(history: &mut History, event: &Event) -> PastEvent {
    let number = history.events.last().map_or(0, |last| last.number);
    decide(event, EntryId { ms: u64::from(number) + 1, seq: 0 }, history)
}

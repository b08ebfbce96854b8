//! Dead letters, read as the orders and events that they hold.

use serde::Serialize;
use tidegate_stream::{Entry, EntryId, Letter};

use crate::{
    event::{EventKind, EventText},
    order::{OrderId, UserId, VoucherId},
    order_status::LetterFact,
    wire::{EntryIds, FieldNames, Message},
};

/// The fields of an order's entry, even if the entry is not a valid order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EntryContent {
    /// The user of the order.
    pub user: Option<UserId>,
    /// The voucher of the order.
    pub voucher: Option<VoucherId>,
    /// The number of units in the order. 1 if the entry states no number.
    pub quantity: i64,
    /// The reason why the entry is not a valid order.
    pub error: Option<String>,
}

impl EntryContent {
    /// Reads the order's fields from an entry.
    #[must_use]
    pub fn of(fields: &FieldNames, entry: &Entry) -> Self {
        let EntryIds { user, voucher, .. } = fields.peek(entry);
        let order = fields.decode(entry);
        let quantity = order.as_ref().map_or(1, |order| order.quantity.get());
        Self { user, voucher, quantity, error: order.err().map(|error| error.to_string()) }
    }
}

/// A dead letter, with the order that the letter holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterRecord {
    /// The id of the letter in the stream of dead letters.
    pub id: EntryId,
    /// The id that the entry had in the stream before it was moved to the dead letters.
    pub entry: Option<EntryId>,
    /// The reason why the entry is a dead letter, in a word. `None` if another program wrote the letter.
    pub reason: Option<String>,
    /// The reason why the entry is a dead letter, in a sentence.
    pub error: Option<String>,
    /// The time at which the entry was moved to the dead letters, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// The number of times that the entry was put back into the stream before it became a dead letter again.
    pub requeued: u32,
    /// The fields of the order in the dead letter.
    #[serde(rename = "wanted")]
    pub content: EntryContent,
}

impl DeadLetterRecord {
    /// Reads the record of a dead letter.
    #[must_use]
    pub fn of(fields: &FieldNames, letter: &Letter) -> Self {
        let burial = letter.burial.as_ref();
        Self {
            id: letter.id,
            entry: burial.map(|burial| burial.entry),
            reason: burial.map(|burial| burial.reason.clone()),
            error: burial.map(|burial| burial.error.clone()),
            at_ms: burial.and_then(|burial| i64::try_from(burial.at_ms).ok()),
            requeued: letter.history.requeued,
            content: EntryContent::of(fields, &letter.entry()),
        }
    }

    /// The fact that the dead letter shows about the order whose id it contains.
    #[must_use]
    pub fn fact(&self) -> LetterFact {
        match self.reason.as_deref() {
            None => LetterFact::Foreign,
            _ if self.content.error.is_some() => LetterFact::NoOrder,
            Some(reason) => LetterFact::of_reason(reason),
        }
    }

    /// Whether Tidegate wrote the dead letter, and the letter holds an order of the given user for the given voucher.
    #[must_use]
    pub fn is_order_of(&self, user: i64, voucher: i64) -> bool {
        let EntryContent { user: its_user, voucher: its_voucher, error, .. } = &self.content;
        let is_same = its_user.is_some_and(|its| its.get() == user)
            && its_voucher.is_some_and(|its| its.get() == voucher);
        is_same && error.is_none() && self.reason.is_some()
    }
}

/// A dead letter that holds an event of an order, such as a payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuriedEvent {
    /// The id of the dead letter.
    pub letter: EntryId,
    /// The time at which the event was moved to the dead letters, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// The reason why the event is a dead letter, in a word.
    pub reason: Option<String>,
    /// The kind of the event.
    pub event: EventKind,
    /// The id that the sender gave to the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

impl BuriedEvent {
    /// Reads the event in a dead letter. `None` if the letter holds no event of the given order, or an event that no
    /// worker can record.
    #[must_use]
    pub fn of(fields: &FieldNames, letter: &Letter, order: OrderId) -> Option<Self> {
        let Ok(Message::Event(event)) = fields.decode_message(&letter.entry()) else { return None };
        let burial = letter.burial.as_ref();
        (event.order == order).then(|| Self {
            letter: letter.id,
            at_ms: burial.and_then(|burial| i64::try_from(burial.at_ms).ok()),
            reason: burial.map(|burial| burial.reason.clone()),
            event: event.kind,
            reference: event.reference,
        })
    }
}

//! Dead letters, read as the orders and events that they hold.

use serde::Serialize;
use tidegate_stream::{Entry, EntryId, Letter};

use crate::{
    event::{EventKind, EventText},
    order::{OrderId, UserId, VoucherId},
    order_status::LetterFact,
    wire::{EntryIds, FieldNames, Message},
};

/// The content of an order's entry, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EntryContent {
    /// The user of the order.
    pub user: Option<UserId>,
    /// The voucher of the order.
    pub voucher: Option<VoucherId>,
    /// The number of units; 1 if the entry names none.
    pub quantity: i64,
    /// The reason why the entry is no order.
    pub error: Option<String>,
}

impl EntryContent {
    /// Reads the content of an entry.
    #[must_use]
    pub fn of(fields: &FieldNames, entry: &Entry) -> Self {
        let EntryIds { user, voucher, .. } = fields.peek(entry);
        let order = fields.decode(entry);
        let quantity = order.as_ref().map_or(1, |order| order.quantity.get());
        Self { user, voucher, quantity, error: order.err().map(|error| error.to_string()) }
    }
}

/// A dead letter, with the order that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterRecord {
    /// The id of the letter in the stream of dead letters.
    pub id: EntryId,
    /// The id of the entry that was buried.
    pub entry: Option<EntryId>,
    /// The reason for the burial, in a word. None: another program wrote the letter.
    pub reason: Option<String>,
    /// The reason for the burial, in a sentence.
    pub error: Option<String>,
    /// The time of the burial, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// The number of times that the entry was requeued before.
    pub requeued: u32,
    /// The content of the entry.
    #[serde(rename = "wanted")]
    pub content: EntryContent,
}

impl DeadLetterRecord {
    /// Reads the facts of a dead letter.
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

    /// The fact that the letter gives about the order whose id it holds.
    #[must_use]
    pub fn fact(&self) -> LetterFact {
        match self.reason.as_deref() {
            None => LetterFact::Foreign,
            _ if self.content.error.is_some() => LetterFact::NoOrder,
            Some(reason) => LetterFact::of_reason(reason),
        }
    }

    /// Whether Tidegate buried the letter, and it holds an order of this user for this voucher.
    #[must_use]
    pub fn is_order_of(&self, user: i64, voucher: i64) -> bool {
        let EntryContent { user: its_user, voucher: its_voucher, error, .. } = &self.content;
        let is_same = its_user.is_some_and(|its| its.get() == user)
            && its_voucher.is_some_and(|its| its.get() == voucher);
        is_same && error.is_none() && self.reason.is_some()
    }
}

/// A dead letter that holds an event of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuriedEvent {
    /// The id of the dead letter.
    pub letter: EntryId,
    /// The time of the burial, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// The reason for the burial, in a word.
    pub reason: Option<String>,
    /// The kind of the event.
    pub event: EventKind,
    /// The sender's own id of the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

impl BuriedEvent {
    /// Reads the event of a dead letter. None: it holds no event of this order that a worker can record.
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

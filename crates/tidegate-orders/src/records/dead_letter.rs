//! Dead letters, read as the orders and events that they hold.

use serde::Serialize;
use tidegate_stream::{Entry, EntryId, Letter};

use crate::{
    event::{EventKind, EventText},
    order::{OrderId, UserId, VoucherId},
    order_status::LetterFact,
    wire::{FieldNames, EntryIds, Message},
};

/// What stands in the entry of an order, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EntryContent {
    /// The user of the order.
    pub user: Option<UserId>,
    /// The voucher of the order.
    pub voucher: Option<VoucherId>,
    /// How many units; 1 where nothing is said.
    pub quantity: i64,
    /// Why the entry is no order.
    pub error: Option<String>,
}

impl EntryContent {
    /// Reads an entry.
    #[must_use]
    pub fn of(fields: &FieldNames, entry: &Entry) -> Self {
        let EntryIds { user, voucher, .. } = fields.peek(entry);
        let order = fields.decode(entry);
        let quantity = order.as_ref().map_or(1, |order| order.quantity.get());
        Self { user, voucher, quantity, error: order.err().map(|error| error.to_string()) }
    }
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterRecord {
    /// Its id in the stream of dead letters.
    pub id: EntryId,
    /// The entry that was buried.
    pub entry: Option<EntryId>,
    /// Why, in a word; None: somebody else wrote it there.
    pub reason: Option<String>,
    /// Why, in a sentence.
    pub error: Option<String>,
    /// When, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// How often it was put back before.
    pub requeued: u32,
    /// What stood in the entry.
    #[serde(rename = "wanted")]
    pub content: EntryContent,
}

impl DeadLetterRecord {
    /// Reads a letter.
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

    /// What it says of the order whose id it holds.
    #[must_use]
    pub fn fact(&self) -> LetterFact {
        match self.reason.as_deref() {
            None => LetterFact::Foreign,
            _ if self.content.error.is_some() => LetterFact::NoOrder,
            Some(reason) => LetterFact::of_reason(reason),
        }
    }

    /// Our program buried it, and it holds an order of this user for this voucher.
    #[must_use]
    pub fn is_order_of(&self, user: i64, voucher: i64) -> bool {
        let EntryContent { user: its_user, voucher: its_voucher, error, .. } = &self.content;
        let is_same = its_user.is_some_and(|its| its.get() == user)
            && its_voucher.is_some_and(|its| its.get() == voucher);
        is_same && error.is_none() && self.reason.is_some()
    }
}

/// A dead letter that says what happened to the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuriedEvent {
    /// The letter.
    pub letter: EntryId,
    /// When it was buried, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// Why, in a word.
    pub reason: Option<String>,
    /// What happened.
    pub event: EventKind,
    /// The outside's own id of it.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

impl BuriedEvent {
    /// Reads a letter; None: it holds no event of this order that a worker can record.
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

//! A dead letter as data: a summary, and a full form with all that the letter holds.

use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    EventKind, OrderId, UserId, VoucherId,
    wire::{EntryIds, FieldNames, Message},
};
use tidegate_stream::{Burial, EntryId, EntryLine, Letter};

/// The reason of an entry that another program wrote into the stream of dead letters.
const FOREIGN: &str = "foreign";

/// Returns the reason why the entry became a dead letter, in one word.
pub fn reason_of(letter: &Letter) -> &str {
    letter.burial.as_ref().map_or(FOREIGN, |burial| &burial.reason)
}

/// Returns whether the letter reports a payment or a refund in a way that a worker can record.
pub(super) fn is_about_money(fields: &FieldNames, letter: &Letter) -> bool {
    event_kind(fields, letter).is_some_and(EventKind::is_about_money)
}

/// Returns the kind of the event, if a worker can record it.
fn event_kind(fields: &FieldNames, letter: &Letter) -> Option<EventKind> {
    match fields.decode_message(&letter.entry()) {
        Ok(Message::Event(event)) => Some(event.kind),
        _ => None,
    }
}

/// Returns the time at which Redis gave this id.
fn time_of(id: EntryId) -> Option<Timestamp> {
    i64::try_from(id.ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// The main values of a dead letter: its id, its reason, and the order that it holds.
#[derive(Clone, Debug, Serialize)]
pub struct LetterSummary {
    /// The id of the dead letter.
    pub letter: EntryId,
    /// The time when the entry was moved to the dead letters.
    pub at: Option<Timestamp>,
    /// The reason why the entry became a dead letter, in one word.
    pub reason: String,
    /// The reason why the entry became a dead letter, as a sentence; empty if another program wrote the letter.
    pub error: String,
    /// The id that the entry had in the stream of orders before it became a dead letter.
    pub entry: EntryId,
    /// The kind of the order event in the letter; None: the letter holds an order, or the event cannot be read.
    pub event: Option<EventKind>,
    /// The id of the order in the letter, or of the order that the event in the letter is about; None: the id cannot be
    /// read.
    pub order: Option<OrderId>,
    /// The user of the order in the letter; None: the user cannot be read.
    pub user: Option<UserId>,
    /// The voucher of the order in the letter; None: the voucher cannot be read.
    pub voucher: Option<VoucherId>,
    /// The number of times that operators have requeued this dead letter.
    pub requeued: u32,
}

impl LetterSummary {
    /// Extracts the main values of a dead letter, such as its reason and its order.
    pub fn of(fields: &FieldNames, letter: &Letter) -> Self {
        let entry = letter.entry();
        let EntryIds { id, user, voucher } = fields.peek(&entry);
        Self {
            letter: letter.id,
            at: time_of(letter.id),
            reason: reason_of(letter).to_owned(),
            error: letter.burial.as_ref().map_or_else(String::new, |burial| burial.error.clone()),
            entry: entry.id,
            event: event_kind(fields, letter),
            order: id,
            user,
            voucher,
            requeued: letter.history.requeued,
        }
    }
}

/// A dead letter with all its fields: the entry as a line that can be replayed, and the reason why the entry was
/// buried.
#[derive(Debug, Serialize)]
pub struct FullLetter<'a> {
    #[serde(flatten)]
    line: EntryLine,
    dead: DeadFields<'a>,
}

#[derive(Debug, Serialize)]
struct DeadFields<'a> {
    letter: EntryId,
    at: Option<Timestamp>,
    reason: &'a str,
    error: Option<&'a str>,
    consumer: Option<&'a str>,
    deliveries: Option<u64>,
    requeued: u32,
    history: &'a [Burial],
}

impl<'a> From<&'a Letter> for FullLetter<'a> {
    fn from(letter: &'a Letter) -> Self {
        let burial = letter.burial.as_ref();
        let dead = DeadFields {
            letter: letter.id,
            at: time_of(letter.id),
            reason: reason_of(letter),
            error: burial.map(|burial| burial.error.as_str()),
            consumer: burial.map(|burial| burial.consumer.as_str()),
            deliveries: burial.map(|burial| burial.deliveries),
            requeued: letter.history.requeued,
            history: &letter.history.burials,
        };
        Self { line: EntryLine::from(&letter.entry()), dead }
    }
}

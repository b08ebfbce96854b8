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

/// Returns why the entry is a dead letter, in one word.
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

/// The summary of a dead letter.
#[derive(Clone, Debug, Serialize)]
pub struct LetterSummary {
    /// The id of the dead letter.
    pub letter: EntryId,
    /// The time at which the entry was buried.
    pub at: Option<Timestamp>,
    /// The reason why the entry was buried, in one word.
    pub reason: String,
    /// The reason why the entry was buried, in a sentence; empty if another program wrote the letter.
    pub error: String,
    /// The id of the entry that was buried.
    pub entry: EntryId,
    /// The kind of the event, if the letter holds an event that can be read.
    pub event: Option<EventKind>,
    /// The letter's order, or the order of the event, if it can be read.
    pub order: Option<OrderId>,
    /// The user of the order, if it can be read.
    pub user: Option<UserId>,
    /// The voucher of the order, if it can be read.
    pub voucher: Option<VoucherId>,
    /// The number of times that the letter was requeued before.
    pub requeued: u32,
}

impl LetterSummary {
    /// Reads the summary from a dead letter.
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

/// A dead letter with all that it holds: the entry in the form of a line that can be replayed, and why it was buried.
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

//! A letter as data: in few words, and with all that it holds.

use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    EventKind, OrderId, UserId, VoucherId,
    wire::{FieldNames, EntryIds, Message},
};
use tidegate_stream::{Burial, EntryId, EntryLine, Letter};

/// The reason of what somebody else wrote into the stream of dead letters.
const FOREIGN: &str = "foreign";

/// Why it died, in a word.
pub fn reason_of(letter: &Letter) -> &str {
    letter.burial.as_ref().map_or(FOREIGN, |burial| &burial.reason)
}

/// It says that money was paid or refunded, in a way that a worker can record.
pub(super) fn is_about_money(fields: &FieldNames, letter: &Letter) -> bool {
    event_kind(fields, letter).is_some_and(EventKind::is_about_money)
}

/// What happened, if a worker can record it.
fn event_kind(fields: &FieldNames, letter: &Letter) -> Option<EventKind> {
    match fields.decode_message(&letter.entry()) {
        Ok(Message::Event(event)) => Some(event.kind),
        _ => None,
    }
}

/// When this id was given.
fn time_of(id: EntryId) -> Option<Timestamp> {
    i64::try_from(id.ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// A letter in few words.
#[derive(Clone, Debug, Serialize)]
pub struct LetterSummary {
    /// Its id.
    pub letter: EntryId,
    /// When it was buried.
    pub at: Option<Timestamp>,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence; empty where somebody else wrote it.
    pub error: String,
    /// The entry that was buried.
    pub entry: EntryId,
    /// What happened, where it is an event that can be read.
    pub event: Option<EventKind>,
    /// Its order, or that of the event, where that can be read, as well as the next two.
    pub order: Option<OrderId>,
    /// Its user.
    pub user: Option<UserId>,
    /// Its voucher.
    pub voucher: Option<VoucherId>,
    /// How often it was put back before.
    pub requeued: u32,
}

impl LetterSummary {
    /// What can be read of a letter.
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

/// All that a letter holds: the entry as it stands in a line that can be replayed, and why it died.
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

//! How a letter is shown.

use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    OrderId, UserId, VoucherId,
    wire::{FieldNames, Glimpse},
};
use tidegate_stream::{Burial, EntryId, Letter, Line};

/// The reason of what somebody else wrote into the stream of dead letters.
const FOREIGN: &str = "foreign";
/// Characters of an error in a table.
const SHOWN_CHARS: usize = 80;

/// An error that stands in the row above, too.
const AS_ABOVE: &str = "as above";

/// Why it died, in a word.
pub fn reason_of(letter: &Letter) -> &str {
    letter.burial.as_ref().map_or(FOREIGN, |burial| &burial.reason)
}

/// When this id was given.
pub fn time_of(id: EntryId) -> Option<Timestamp> {
    i64::try_from(id.ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// A time in a table.
pub fn shown_time(id: EntryId) -> String {
    time_of(id).map_or_else(|| id.to_string(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Text of somebody else's, which must not steer the terminal.
pub fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A letter in few words.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Its id.
    pub letter: String,
    /// When it was buried.
    at: Option<Timestamp>,
    reason: String,
    error: String,
    /// The entry that was buried.
    entry: String,
    order: Option<OrderId>,
    user: Option<UserId>,
    voucher: Option<VoucherId>,
    /// How often it was put back before.
    requeued: u32,
    #[serde(skip)]
    id: EntryId,
}

impl Summary {
    /// What can be read of a letter.
    pub fn of(fields: &FieldNames, letter: &Letter) -> Self {
        let Glimpse { id, user, voucher } = fields.glimpse(&letter.entry());
        Self {
            letter: letter.id.to_string(),
            at: time_of(letter.id),
            reason: reason_of(letter).to_owned(),
            error: letter.burial.as_ref().map_or_else(String::new, |burial| burial.error.clone()),
            entry: letter.entry().id.to_string(),
            order: id,
            user,
            voucher,
            requeued: letter.history.requeued,
            id: letter.id,
        }
    }

    /// The names of [`Summary::cells`].
    pub const HEADER: [&str; 8] =
        ["letter", "buried", "reason", "order", "user", "voucher", "requeued", "error"];

    /// For a row of a table, below that of `above`: what both died of is not said again.
    pub fn cells(&self, above: Option<&Self>) -> [String; 8] {
        let is_same = above.is_some_and(|above| !self.error.is_empty() && above.error == self.error);
        let error: String =
            if is_same { AS_ABOVE.to_owned() } else { self.error.chars().take(SHOWN_CHARS).collect() };
        [
            self.letter.clone(),
            shown_time(self.id),
            plain(&self.reason),
            or_dash(self.order.as_ref()),
            or_dash(self.user.as_ref()),
            or_dash(self.voucher.as_ref()),
            self.requeued.to_string(),
            plain(&error),
        ]
    }
}

/// A value that may be missing, in a table.
pub fn or_dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// A letter as `tidegate dead export` writes it: the entry as `tidegate export` writes it and `tidegate replay` reads it,
/// and beside it why it died.
#[derive(Debug, Serialize)]
pub struct Whole<'a> {
    #[serde(flatten)]
    line: Line,
    dead: About<'a>,
}

#[derive(Debug, Serialize)]
struct About<'a> {
    letter: String,
    at: Option<Timestamp>,
    reason: &'a str,
    error: Option<&'a str>,
    consumer: Option<&'a str>,
    deliveries: Option<u64>,
    requeued: u32,
    history: &'a [Burial],
}

impl<'a> From<&'a Letter> for Whole<'a> {
    fn from(letter: &'a Letter) -> Self {
        let burial = letter.burial.as_ref();
        let dead = About {
            letter: letter.id.to_string(),
            at: time_of(letter.id),
            reason: reason_of(letter),
            error: burial.map(|burial| burial.error.as_str()),
            consumer: burial.map(|burial| burial.consumer.as_str()),
            deliveries: burial.map(|burial| burial.deliveries),
            requeued: letter.history.requeued,
            history: &letter.history.burials,
        };
        Self { line: Line::from(&letter.entry()), dead }
    }
}

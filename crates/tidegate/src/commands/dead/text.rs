//! Tables of dead letters, for people.

use jiff::Timestamp;
use tidegate_compare::text::printable;
use tidegate_operations::dead_letters::{LetterCounts, LetterGroup, LetterSummary};
use tidegate_stream::EntryId;

use crate::output::{is_terminal, table};

/// The number of characters of an error that a table on a terminal shows.
const SHOWN_CHARS: usize = 80;
/// The cell text for an error that is the same as in the row above.
const AS_ABOVE: &str = "as above";
/// The most groups of letters that a table shows.
const SHOWN_GROUPS: usize = 20;

/// The time in an entry id as text, or the id itself if it contains no time.
pub fn shown_time(id: EntryId) -> String {
    let at = i64::try_from(id.ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| id.to_string(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The table of the numbers of dead letters by reason and voucher. If there are no dead letters, it is empty.
pub fn counts(counts: &LetterCounts) -> String {
    if counts.letters == 0 {
        return String::new();
    }
    let mut table = table(&["reason", "voucher", "letters", "events", "oldest", "newest"]);
    for LetterGroup { reason, voucher, letters, events, oldest, newest } in
        counts.groups.iter().take(SHOWN_GROUPS)
    {
        table.add_row([
            printable(reason),
            or_dash(voucher.as_ref()),
            letters.to_string(),
            events.to_string(),
            shown_time(*oldest),
            shown_time(*newest),
        ]);
    }
    let unshown: u64 = counts.groups.iter().skip(SHOWN_GROUPS).map(|group| group.letters).sum();
    let rest = match unshown + counts.others {
        0 => String::new(),
        letters => format!("\nand {letters} letters with reasons and vouchers that are not listed"),
    };
    format!("{table}{rest}")
}

/// The table of dead letters that a command shows to people.
pub fn letters<'a>(letters: impl IntoIterator<Item = &'a LetterSummary>) -> String {
    let mut table =
        table(&["letter", "buried", "reason", "event", "order", "user", "voucher", "requeued", "error"]);
    let mut above = None;
    for letter in letters {
        table.add_row(cells(letter, above));
        above = Some(letter);
    }
    table.to_string()
}

/// The cells of a row. If the row `above` has the same reason and error, these are not repeated.
fn cells(letter: &LetterSummary, above: Option<&LetterSummary>) -> [String; 9] {
    let is_same = above.is_some_and(|above| !letter.error.is_empty() && above.error == letter.error);
    let error = if is_same { AS_ABOVE.to_owned() } else { shortened(&letter.error) };
    [
        letter.letter.to_string(),
        shown_time(letter.letter),
        printable(&letter.reason),
        or_dash(letter.event.as_ref()),
        or_dash(letter.order.as_ref()),
        or_dash(letter.user.as_ref()),
        or_dash(letter.voucher.as_ref()),
        letter.requeued.to_string(),
        printable(&error),
    ]
}

/// The text of an error, cut to fit a terminal. If stdout is no terminal, the text stays complete.
fn shortened(error: &str) -> String {
    if !is_terminal() || error.chars().count() <= SHOWN_CHARS {
        return error.to_owned();
    }
    error.chars().take(SHOWN_CHARS).chain(['…']).collect()
}

fn or_dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

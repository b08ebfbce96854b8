//! Numbers, ages and foreign text for the live view: short, and never cut in the middle of a number.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ratatui::text::Span;

/// The text that the live view shows for an unknown value.
pub const UNKNOWN: &str = "-";

/// The text of a number: exact below 1,000,000,000, and shortened above, to keep columns narrow.
pub fn count(number: impl Into<i128>) -> String {
    let number = number.into();
    match number.unsigned_abs() {
        0..=999_999_999 => grouped(number),
        1_000_000_000..=999_999_999_999 => format!("{:.2}G", number as f64 / 1e9),
        _ => format!("{:.2}T", number as f64 / 1e12),
    }
}

/// The text of a number, or [`UNKNOWN`].
pub fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The text of a rate per second.
pub fn rate(rate: f64) -> String {
    // The number has six digits at most; more would not be exact.
    match rate {
        ..9.95 => format!("{rate:.1}"),
        ..999_999.5 => grouped(rate.round() as i128),
        _ => format!("{:.2}M", rate / 1e6),
    }
}

/// The text of a duration that is given in seconds.
pub fn age(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{:.1} s", (seconds * 10.0).floor() / 10.0),
        ..3_600.0 => format!("{:.0} min", (seconds / 60.0).floor()),
        ..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.0} d", (seconds / 86_400.0).floor()),
    }
}

/// The text of a duration in whole seconds, because the live view is drawn about once a second.
pub fn lasting(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => age(Duration::from_secs(seconds).as_secs_f64()),
    }
}

/// The text of a time of day in UTC: the time that is `ago` before `now`.
pub fn time_of_day(now: Timestamp, ago: Duration) -> String {
    let ago = SignedDuration::try_from(ago).unwrap_or_default();
    let moment = now.checked_sub(ago).unwrap_or(now);
    moment.strftime("%H:%M:%S UTC").to_string()
}

/// The number of terminal columns that a text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The name, without its beginning if it is too long (`~7f9c-x2x9q-3`), because names differ at the end.
pub fn tail(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    let ends = name.char_indices().map(|(at, _)| &name[at..]);
    let end = ends.into_iter().find(|end| width(end) < columns).unwrap_or_default();
    format!("~{end}")
}

/// The text, without its end if it is too long. The cut is between words, because half a number would look like another
/// number.
pub fn head(note: &str, columns: usize) -> String {
    if width(note) <= columns {
        return note.to_owned();
    }
    let whole = wrap(note, columns.saturating_sub(2)).swap_remove(0);
    format!("{whole} ~")
}

/// Breaks a text between words into lines of at most `columns` terminal columns.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("the list of lines begins with one line");
        if last.is_empty() {
            last.push_str(word);
        } else if width(last) + 1 + width(word) <= columns {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn grouped(number: i128) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

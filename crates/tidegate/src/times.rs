//! Times as people type and read them.

use std::time::Duration;

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{Offset, TimeZone},
};
use tidegate_orders::records::vouchers::LATEST_MS;
use tidegate_stream::EntryId;

use crate::exit::WrongUsage;

pub use crate::spans::parse_span;

/// 2001-09-09, in milliseconds. A smaller number is probably a time in seconds.
const EARLIEST_MS: i64 = 1_000_000_000_000;
const NOW: &str = "now";
const IN_SECONDS: &str = "the time lies before 2001: give a Unix time in milliseconds, not in seconds";

/// Formats Unix milliseconds for people, in UTC like the log.
pub fn utc(ms: i64) -> String {
    let moment = Timestamp::from_millisecond(ms);
    moment.map_or_else(|_| ms.to_string(), |moment| moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// Formats Unix milliseconds like [`utc`], but leaves out the fraction of a second if it is 0.
pub fn utc_whole(ms: i64) -> String {
    let moment = Timestamp::from_millisecond(ms);
    moment.map_or_else(|_| ms.to_string(), |moment| moment.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string())
}

/// Formats Unix milliseconds like [`utc_whole`], at an offset from UTC in seconds: `2026-11-20T18:00:00+08:00`.
pub fn whole_at(ms: i64, offset_s: i32) -> String {
    match (Timestamp::from_millisecond(ms), Offset::from_seconds(offset_s)) {
        (Ok(moment), Ok(offset)) if offset_s != 0 => moment.display_with_offset(offset).to_string(),
        _ => utc_whole(ms),
    }
}

/// The text of an offset from UTC in seconds, such as `UTC+08:00`.
pub fn utc_offset_text(offset_s: i32) -> String {
    let (sign, minutes) = (if offset_s < 0 { '-' } else { '+' }, offset_s.unsigned_abs() / 60);
    format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Parses an offset from UTC, such as `+08:00`, and returns its seconds, positive east of Greenwich. Flags with such a value
/// need `allow_hyphen_values`.
///
/// # Errors
/// When the text is none, or the offset is more than 14 hours.
pub fn parse_utc_offset(text: &str) -> Result<i32, String> {
    let wrong = || "the offset must look like +08:00, -03:30 or 00:00, up to 14 hours".to_owned();
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => (1, text),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, most: i32| {
        let is_short = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
        text.parse::<i32>().ok().filter(|number| is_short && *number <= most)
    };
    match (number(hours, 14), number(minutes, 59)) {
        (Some(hours), Some(minutes)) if hours < 14 || minutes == 0 => {
            Ok(sign * (hours * 3600 + minutes * 60))
        }
        _ => Err(wrong()),
    }
}

/// Parses a time: RFC 3339, a local date with or without a time of day, Unix milliseconds, or `now`.
///
/// # Errors
/// When the text is none of them, or MySQL's TIMESTAMP cannot hold the time.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let moment = parse_time(text.trim()).ok_or(
        "give a time: now, 2026-11-20T10:00:00Z, \"2026-11-20 10:00\" (local time) or Unix milliseconds",
    )?;
    match moment.as_millisecond() {
        ..EARLIEST_MS => Err(IN_SECONDS.to_owned()),
        ms if ms > LATEST_MS => {
            Err("the time lies after 2038-01-19, which MySQL's TIMESTAMP cannot hold".to_owned())
        }
        _ => Ok(moment),
    }
}

/// A point in a stream (a time or an entry id), and the text that the user typed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    typed: String,
    kind: PointKind,
}

/// The kinds of points in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointKind {
    /// A duration before now, by the clock of Redis.
    Ago(Duration),
    /// A time, in Unix milliseconds.
    At(u64),
    /// An entry, by its id.
    Entry(EntryId),
}

impl Point {
    /// The lowest entry id at this point or after it. `now_ms` is the time of Redis, which generates the ids.
    pub fn first(&self, now_ms: u64) -> EntryId {
        self.entry(now_ms).unwrap_or_else(|ms| EntryId { ms, seq: 0 })
    }

    /// The highest entry id at this point or before it. If the point is a time, its whole millisecond is included.
    pub fn last(&self, now_ms: u64) -> EntryId {
        self.entry(now_ms).unwrap_or_else(|ms| EntryId { ms, seq: u64::MAX })
    }

    fn entry(&self, now_ms: u64) -> Result<EntryId, u64> {
        match self.kind {
            PointKind::Ago(span) => {
                Err(now_ms.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
            }
            PointKind::At(ms) => Err(ms),
            PointKind::Entry(id) => Ok(id),
        }
    }
}

/// The first and the last entry id between two points.
///
/// # Errors
/// When `--to` lies before `--from`; the message has the words that were typed.
pub fn range(
    from: Option<&Point>,
    to: Option<&Point>,
    now_ms: u64,
) -> Result<(Option<EntryId>, Option<EntryId>), WrongUsage> {
    let (first, last) = (from.map(|from| from.first(now_ms)), to.map(|to| to.last(now_ms)));
    if let (Some(from), Some(to), Some(first), Some(last)) = (from, to, first, last)
        && first > last
    {
        return Err(WrongUsage(format!(
            "--to {} ({}) lies before --from {} ({}); a date without a time means midnight",
            to.typed,
            bound(last),
            from.typed,
            bound(first)
        )));
    }
    Ok((first, last))
}

/// Formats the first or the last id of a range for people: as a time, or as an entry id if the user typed an id.
pub fn bound(id: EntryId) -> String {
    match id.seq {
        0 | u64::MAX => i64::try_from(id.ms).map_or_else(|_| id.to_string(), utc_whole),
        _ => id.to_string(),
    }
}

/// The phrase for people which says that no entry lies between these ids.
pub fn nothing_between(first: Option<EntryId>, last: Option<EntryId>) -> String {
    match (first, last) {
        (Some(first), Some(last)) => format!("no entry between {} and {}", bound(first), bound(last)),
        (Some(first), None) => format!("no entry from {} on", bound(first)),
        (None, Some(last)) => format!("no entry up to {}", bound(last)),
        (None, None) => "no entry".to_owned(),
    }
}

/// Parses a point in a stream: a time as in [`parse`] (`now` is the time of Redis), a time before now such as `-2h` or
/// `90m`, or an entry id. Flags with such a value need `allow_hyphen_values`.
///
/// # Errors
/// When the text is none of them, or lies before 2001: `2026-11` is no entry id, though it looks like one.
pub fn parse_point(text: &str) -> Result<Point, String> {
    let typed = text.trim();
    let kind = kind_of(typed).ok_or(
        "give a time: now, 2026-11-20T10:00:00Z, \"2026-11-20 10:00\" (local time), -2h (two hours ago) or Unix \
         milliseconds; or give the id of an entry",
    )?;
    match kind {
        PointKind::At(ms) | PointKind::Entry(EntryId { ms, .. }) if ms < EARLIEST_MS.unsigned_abs() => {
            Err(IN_SECONDS.to_owned())
        }
        kind => Ok(Point { typed: typed.to_owned(), kind }),
    }
}

fn kind_of(text: &str) -> Option<PointKind> {
    if text == NOW {
        Some(PointKind::Ago(Duration::ZERO))
    } else if is_entry_id(text) {
        text.parse().ok().map(PointKind::Entry)
    } else if let Some(moment) = parse_time(text) {
        u64::try_from(moment.as_millisecond()).ok().map(PointKind::At)
    } else {
        parse_span(text.strip_prefix('-').unwrap_or(text)).ok().map(PointKind::Ago)
    }
}

fn is_entry_id(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').is_some_and(|(ms, seq)| is_number(ms) && is_number(seq))
}

fn parse_time(text: &str) -> Option<Timestamp> {
    if text == NOW {
        return Some(Timestamp::now());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    }
    text.parse::<Timestamp>().ok().or_else(|| parse_local(text))
}

fn parse_local(text: &str) -> Option<Timestamp> {
    let local: DateTime = text.parse().ok()?;
    Some(local.to_zoned(TimeZone::system()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_can_be_typed_in_three_ways() {
        let utc = parse("2026-11-20T10:00:00Z").unwrap();
        assert_eq!(utc.as_millisecond(), 1_795_168_800_000);
        assert_eq!(parse("1795168800000").unwrap(), utc);
        assert_eq!(parse("2026-11-20T18:00:00+08:00").unwrap(), utc);
        let local: DateTime = "2026-11-20 10:00".parse().unwrap();
        let local = local.to_zoned(TimeZone::system()).unwrap().timestamp();
        assert_eq!(parse("2026-11-20 10:00").unwrap(), local);
    }

    #[test]
    fn an_offset_from_utc_is_read_and_shown_as_people_write_it() {
        assert_eq!(whole_at(1_795_168_800_000, 28_800), "2026-11-20T18:00:00+08:00");
        assert_eq!(whole_at(1_795_168_800_005, -12_600), "2026-11-20T06:30:00.005-03:30");
        assert_eq!(whole_at(1_795_168_800_000, 0), "2026-11-20T10:00:00Z");
        for (text, offset_s) in [("+08:00", 28_800), ("-03:30", -12_600), ("00:00", 0), ("14:00", 50_400)] {
            assert_eq!(parse_utc_offset(text), Ok(offset_s), "{text}");
        }
        assert_eq!((utc_offset_text(-12_600), utc_offset_text(0)), ("UTC-03:30".into(), "UTC+00:00".into()));
        for wrong in ["", "8", "+8:00", "15:00", "14:30", "-14:30", "+08:60", "+-1:00", "ü"] {
            assert!(parse_utc_offset(wrong).unwrap_err().contains("+08:00"), "{wrong}");
        }
    }

    #[test]
    fn seconds_and_nonsense_are_refused() {
        for text in ["", "tomorrow", "1795168800", "2040-01-01T00:00:00Z", "99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_point_can_be_typed_in_all_ways_and_lies_on_the_clock_of_redis() {
        let now = 1_795_168_800_000;
        let first = |text: &str| parse_point(text).unwrap().first(now).to_string();
        assert_eq!(first("2026-11-20T09:00:00Z"), "1795165200000-0");
        assert_eq!(first("1795165200000"), "1795165200000-0");
        assert_eq!(first("1795165200000-3"), "1795165200000-3");
        for an_hour_ago in ["-1h", "60m", "-60 minutes", "3600s"] {
            assert_eq!(first(an_hour_ago), "1795165200000-0", "{an_hour_ago}");
        }
        assert_eq!(first("-7d"), "1794564000000-0");
        assert_eq!(first("now"), "1795168800000-0");
        let local = parse("2026-11-20 10:00").unwrap().as_millisecond();
        assert_eq!(first("2026-11-20 10:00"), format!("{local}-0"));
        let last = parse_point("-1h").unwrap().last(now);
        assert_eq!((last.ms, last.seq), (1_795_165_200_000, u64::MAX));
        assert_eq!(parse_point("1795165200000-3").unwrap().last(now).seq, 3);
    }

    #[test]
    fn bounds_that_are_turned_around_are_named_as_they_were_typed() {
        let now = 1_795_168_800_000;
        let point = |text: &str| parse_point(text).unwrap();
        let (hour_ago, earlier) = (point("-1h"), point("2026-11-19T00:00:00Z"));
        assert_eq!(
            range(Some(&hour_ago), Some(&earlier), now).unwrap_err().0,
            "--to 2026-11-19T00:00:00Z (2026-11-19T00:00:00Z) lies before --from -1h (2026-11-20T09:00:00Z); a date \
             without a time means midnight"
        );
        let (first, last) = range(Some(&earlier), Some(&hour_ago), now).unwrap();
        let bounds = "between 2026-11-19T00:00:00Z and 2026-11-20T09:00:00Z";
        assert_eq!(nothing_between(first, last), format!("no entry {bounds}"));
        assert_eq!(range(None, Some(&hour_ago), now).unwrap(), (None, last));
        assert_eq!(bound(EntryId { ms: now, seq: 3 }), "1795168800000-3");
        assert_eq!(bound(EntryId { ms: now + 5, seq: 0 }), "2026-11-20T10:00:00.005Z");
    }

    #[test]
    fn what_is_no_point_is_refused_and_never_taken_for_the_beginning() {
        for text in
            ["", "-", "2026-11", "0-0", "1795168800", "yesterday", "-2", "h", "--2h", "1795165200000-x"]
        {
            assert!(parse_point(text).is_err(), "{text}");
        }
        for text in ["", "7", "-1h", "soon"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
        assert_eq!(parse_span("1d 12h").unwrap(), Duration::from_secs(36 * 3600));
    }
}

//! Moments as people type and read them.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use tidegate_orders::vouchers::LATEST_MS;

/// 2001-09-09, in milliseconds; a smaller number is a time in seconds.
const EARLIEST_MS: i64 = 1_000_000_000_000;

/// Parses RFC 3339, a local date with or without a time, or Unix milliseconds.
///
/// # Errors
/// When it is none of them, or MySQL's TIMESTAMP cannot hold it.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    let moment = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
    } else {
        text.parse::<Timestamp>().ok().or_else(|| parse_local(text))
    };
    let moment =
        moment.ok_or("give 2026-11-20T10:00:00Z, \"2026-11-20 10:00\" (local time) or Unix milliseconds")?;
    match moment.as_millisecond() {
        ..EARLIEST_MS => {
            Err("lies before 2001; Unix times are taken as milliseconds, not seconds".to_owned())
        }
        ms if ms > LATEST_MS => Err("lies after 2038-01-19, which MySQL's TIMESTAMP cannot hold".to_owned()),
        _ => Ok(moment),
    }
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
    fn seconds_and_nonsense_are_refused() {
        for text in ["", "tomorrow", "1795168800", "2040-01-01T00:00:00Z", "99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

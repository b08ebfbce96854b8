//! The time window of a sale, in Redis and in MySQL. Pure.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

/// The value for "no end" in a TIMESTAMP column that cannot be NULL: 2037-12-31T23:59:59Z, in Unix milliseconds.
pub const NO_END_MS: i64 = 2_145_916_799_000;

/// The time from which on an end means "no end", in Unix milliseconds: in some time zones, a row with the last second of
/// 2037 has an earlier time.
pub const NO_END_FROM_MS: i64 = NO_END_MS - 24 * 3_600_000;

/// The time window of a sale. Redis checks its window by its own clock. MySQL stores a window in whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SaleWindow {
    /// The first moment at which the voucher can be bought. `None` if the sale has no beginning.
    pub begin: Option<Timestamp>,
    /// The first moment after the sale. `None` if the sale has no end.
    pub end: Option<Timestamp>,
}

/// The times from a moment on at which a window lets buyers order, in whole Unix seconds.
#[derive(PartialEq, Eq)]
enum Effect {
    Over,
    Open { begin: Option<i64>, end: Option<i64> },
}

impl SaleWindow {
    /// Creates a window from Unix milliseconds.
    #[must_use]
    pub fn of_ms(begin_ms: Option<i64>, end_ms: Option<i64>) -> Self {
        let bound = |ms: Option<i64>| ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Self { begin: bound(begin_ms), end: bound(end_ms) }
    }

    /// The bounds of the window in Unix milliseconds.
    #[must_use]
    pub fn ms(&self) -> (Option<i64>, Option<i64>) {
        let ms = |bound: Option<Timestamp>| bound.map(Timestamp::as_millisecond);
        (ms(self.begin), ms(self.end))
    }

    /// Whether the window has a beginning or an end.
    #[must_use]
    pub const fn has_bounds(&self) -> bool {
        self.begin.is_some() || self.end.is_some()
    }

    /// Whether begin and end are the same second: the default of a row that was inserted without times.
    #[must_use]
    pub fn is_default_of_table(&self) -> bool {
        self.begin.is_some() && second(self.begin) == second(self.end)
    }

    /// Whether the sale can be open at all: it begins before it ends.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.begin.zip(self.end).is_none_or(|(begin, end)| begin < end)
    }

    /// Whether the sale is over at this moment.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// Whether both windows have the same bounds, to the millisecond.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.ms() == other.ms()
    }

    /// Whether both windows have the same bounds, to the second. An end that means "no end" in MySQL is none.
    #[must_use]
    pub fn is_same_in_mysql(&self, other: &Self) -> bool {
        (second(self.begin), second(self.real_end())) == (second(other.begin), second(other.real_end()))
    }

    /// Whether buyers can order at other times with `other` than with this window, from `now` on and to the second.
    #[must_use]
    pub fn differs_from(&self, other: &Self, now: Timestamp) -> bool {
        self.effect(now) != other.effect(now)
    }

    fn effect(&self, now: Timestamp) -> Effect {
        match self.real_end() {
            Some(end) if end <= now => Effect::Over,
            end => Effect::Open { begin: second(self.begin.filter(|begin| *begin > now)), end: second(end) },
        }
    }

    fn real_end(&self) -> Option<Timestamp> {
        self.end.filter(|end| end.as_millisecond() < NO_END_FROM_MS)
    }

    /// Returns this window from MySQL. If a bound has the same second in `there` (Redis), the result has its milliseconds.
    #[must_use]
    pub fn with_milliseconds_of(self, there: &Self) -> Self {
        let bound = |own: Option<Timestamp>, there: Option<Timestamp>| {
            there.filter(|_| second(own) == second(there)).or(own)
        };
        Self { begin: bound(self.begin, there.begin), end: bound(self.end, there.end) }
    }
}

impl fmt::Display for SaleWindow {
    /// Formats the window in UTC: `from BEGIN to END`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) => write!(f, "from {begin} to {end}"),
            (Some(begin), None) => write!(f, "from {begin}, without an end"),
            (None, Some(end)) => write!(f, "until {end}"),
            (None, None) => f.write_str("without a begin or an end"),
        }
    }
}

fn second(bound: Option<Timestamp>) -> Option<i64> {
    bound.map(|bound| bound.as_millisecond().div_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(begin_ms: Option<i64>, end_ms: Option<i64>) -> SaleWindow {
        SaleWindow::of_ms(begin_ms, end_ms)
    }

    #[test]
    fn windows_differ_only_by_what_buyers_can_still_notice() {
        let now = Timestamp::from_millisecond(10_000).unwrap();
        let differ = |one, other| window_pair(one, other).0.differs_from(&window_pair(one, other).1, now);
        let (past, soon, later) = (Some(5_000), Some(12_000), Some(20_000));
        for (one, other) in [
            ((None, None), (past, None)),
            ((past, later), (Some(6_000), later)),
            ((None, past), (later, Some(7_000))),
            ((soon, later), (Some(12_999), Some(20_001))),
            ((None, None), (None, Some(NO_END_MS + 5_000))),
        ] {
            assert!(!differ(one, other), "{one:?} {other:?}");
            assert!(!differ(other, one), "{other:?} {one:?}");
        }
        for (one, other) in [
            ((None, None), (None, past)),
            ((None, None), (None, later)),
            ((None, None), (soon, None)),
            ((None, soon), (None, later)),
            ((None, Some(12_999)), (None, Some(13_000))),
        ] {
            assert!(differ(one, other), "{one:?} {other:?}");
            assert!(differ(other, one), "{other:?} {one:?}");
        }
    }

    type Bounds = (Option<i64>, Option<i64>);

    fn window_pair(one: Bounds, other: Bounds) -> (SaleWindow, SaleWindow) {
        (window(one.0, one.1), window(other.0, other.1))
    }

    #[test]
    fn the_milliseconds_of_redis_are_kept_where_mysql_has_the_same_second() {
        let there = window(Some(5_250), Some(9_750));
        assert!(window(Some(5_000), Some(9_000)).with_milliseconds_of(&there).is_same(&there));
        let other = window(Some(6_000), None);
        assert!(other.with_milliseconds_of(&there).is_same(&other));
        assert!(window(Some(5_000), None).is_same_in_mysql(&window(Some(5_250), Some(NO_END_MS))));
    }
}

//! The ends of the windows in which limits have counted.

use std::collections::BTreeMap;

use jiff::{civil, tz::TimeZone};

use super::{Rule, RuleKind, Window, rule_set::RuleSet};
use crate::order::CampaignId;

/// The time after the end of a window until it is over for good. Until then, a clock that is set back may lead into it
/// again.
const SLACK_MS: i64 = 24 * 3_600_000;

/// The rules (limits) of a voucher or a campaign in Redis, reduced to the facts that show which time windows are over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedWindows {
    /// The id of the campaign that the voucher belongs to.
    pub campaign: Option<CampaignId>,
    /// Whether a user may have several orders of the voucher at the same time.
    pub has_slots: bool,
    by_number: BTreeMap<u32, CountedRule>,
}

/// A rule (limit) of a voucher or a campaign, as Redis has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedRule {
    /// The name of the rule, which refusals report.
    pub name: String,
    /// The maximum number of orders in a window of the rule. `None` if the rule does not count orders.
    pub orders: Option<u64>,
    /// The maximum number of units in a window of the rule. `None` if the rule does not count units.
    pub units: Option<u64>,
    counted: Counted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// A window without an end.
    Sale,
    Day {
        offset_s: i64,
    },
    Month {
        offset_s: i64,
    },
    Seconds(i64),
    /// A rate, whose value is the time at which it is at rest.
    Rate,
}

impl CountedWindows {
    /// Parses the text that [`super::rules_text`] writes. `None` if the text has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let RuleSet { campaign, has_slots, rules } = RuleSet::parse(text)?;
        let by_number = rules.into_iter().map(|rule| (rule.number.get(), rule.into())).collect();
        Some(Self { campaign, has_slots, by_number })
    }

    /// The rule with time windows that a counter in the Redis hash of limit counters belongs to. `None` if the counter
    /// belongs to a rate, to the number of a user's orders, or to a rule that does not exist.
    #[must_use]
    pub fn rule_of(&self, field: &str) -> Option<&CountedRule> {
        let number = field.split_once(':')?.0.parse().ok()?;
        self.by_number.get(&number).filter(|rule| rule.counted != Counted::Rate)
    }

    /// Whether a counter in the Redis hash of limit counters belongs to a window that is over, or to a limit that was
    /// removed.
    #[must_use]
    pub fn is_over(&self, field: &str, value: &str, now_ms: i64) -> bool {
        let Some(number) = field.split_once(':').and_then(|(number, _)| number.parse::<u32>().ok()) else {
            return false;
        };
        let Some(rule) = self.by_number.get(&number) else {
            // A rule with a higher number may be new, so only lower numbers are known to be removed.
            return self.by_number.last_key_value().is_some_and(|(highest, _)| number < *highest);
        };
        let window = value.split(':').next().and_then(|window| window.parse::<i64>().ok());
        let end_ms = window.and_then(|window| rule.counted.end_ms(window));
        end_ms.is_some_and(|end_ms| end_ms.saturating_add(SLACK_MS) < now_ms)
    }
}

impl From<Rule> for CountedRule {
    fn from(rule: Rule) -> Self {
        let (orders, units, counted) = match rule.kind {
            RuleKind::Rate { .. } => (None, None, Counted::Rate),
            RuleKind::Limit { window, orders, units } => (orders, units, Counted::of(window)),
        };
        Self {
            name: rule.name.to_string(),
            orders: orders.map(u64::from),
            units: units.map(u64::from),
            counted,
        }
    }
}

impl CountedRule {
    /// Whether the window with the given number has not ended, so that the next order must be checked against its
    /// counts.
    #[must_use]
    pub fn is_running(&self, window: u64, now_ms: i64) -> bool {
        let end_ms = i64::try_from(window).ok().and_then(|window| self.counted.end_ms(window));
        end_ms.is_none_or(|end_ms| end_ms > now_ms)
    }

    /// Whether `orders` or `units` is more than the rule allows in a window.
    #[must_use]
    pub fn is_passed_by(&self, orders: u64, units: u64) -> bool {
        self.orders.is_some_and(|most| orders > most) || self.units.is_some_and(|most| units > most)
    }
}

impl Counted {
    fn of(window: Window) -> Self {
        match window {
            Window::Order | Window::Sale => Self::Sale,
            Window::Day { offset_s } => Self::Day { offset_s: offset_s.into() },
            Window::Month { offset_s } => Self::Month { offset_s: offset_s.into() },
            Window::Seconds(length) => Self::Seconds(length.get().into()),
        }
    }

    /// The end of the window of this number, in Unix milliseconds.
    fn end_ms(self, window: i64) -> Option<i64> {
        let next = window.checked_add(1)?;
        let end_s = match self {
            Self::Sale => return None,
            Self::Rate => return Some(window / 1000),
            Self::Day { offset_s } => next.checked_mul(86_400)?.checked_sub(offset_s)?,
            Self::Seconds(length) => next.checked_mul(length)?,
            Self::Month { offset_s } => {
                let (year, month) = (i16::try_from(next / 12).ok()?, i8::try_from(next % 12 + 1).ok()?);
                let first = civil::Date::new(year, month, 1).ok()?.to_zoned(TimeZone::UTC).ok()?;
                first.timestamp().as_second() - offset_s
            }
        };
        end_s.checked_mul(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_runs_until_its_end_and_its_rule_says_how_much_there_may_be() {
        let windows =
            CountedWindows::parse("1 -;1 d phone day 28800 1 3;2 all * sale 0 - 9;3 r ip rate 9 2 -")
                .unwrap();
        let rule = windows.rule_of("1:a").unwrap();
        let end = "2023-12-09T16:00:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert!(rule.is_running(19700, end - 1) && !rule.is_running(19700, end));
        assert!(
            (rule.is_passed_by(2, 0), rule.is_passed_by(1, 4), rule.is_passed_by(1, 3))
                == (true, true, false)
        );
        assert!(windows.rule_of("2:").unwrap().is_running(0, i64::MAX) && windows.has_slots);
        for none in ["3:a", "4:a", "u:1", "x"] {
            assert_eq!(windows.rule_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_window_is_over_a_day_after_its_end() {
        let text = "1 5;1 d phone day 28800 1 -;2 m phone month 0 1 -;3 s phone 600 0 1 -;4 all * sale 0 1 -;5 r ip rate 9 2 -;9 z user order 0 - 2";
        let windows = CountedWindows::parse(text).unwrap();
        assert_eq!(windows.campaign.map(CampaignId::get), Some(5));
        let at = |moment: &str| moment.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        // The day 19700 of UTC+8 ends on 2023-12-09 at 16:00 UTC; month 24286 is November 2023.
        for (field, value, last, over) in [
            ("1:a", "19700:1:1", "2023-12-10T16:00:00Z", "2023-12-10T16:00:01Z"),
            ("2:a", "24286:1:1", "2023-12-02T00:00:00Z", "2023-12-02T00:00:01Z"),
            ("3:a", "2833333:1:1", "2023-11-15T22:20:00Z", "2023-11-15T22:20:01Z"),
            ("5:a", "1700000000000000", "2023-11-15T22:13:20Z", "2023-11-15T22:13:21Z"),
        ] {
            assert!(!windows.is_over(field, value, at(last)), "{field} {last}");
            assert!(windows.is_over(field, value, at(over)), "{field} {over}");
        }
        let later = at("2099-01-01T00:00:00Z");
        for (field, value, is_over) in [
            ("4:", "0:7:7", false),
            ("u:77", "3", false),
            ("8:a", "1:1:1", true),
            ("10:a", "1:1:1", false),
            ("1:a", "x", false),
        ] {
            assert_eq!(windows.is_over(field, value, later), is_over, "{field}");
        }
        assert_eq!(CountedWindows::parse("0 -;").unwrap().campaign, None);
        for wrong in ["", "x", "0 -;1 a", "0 -;1 a b week 0 1 -"] {
            assert_eq!(CountedWindows::parse(wrong), None, "{wrong}");
        }
    }
}

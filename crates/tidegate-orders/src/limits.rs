//! Limits: how much a user or another subject may buy in a time window, and the subjects that a caller names for this.
//! `lua/admit_limited.lua` checks and counts them, in the step that takes the stock.

mod rule_set;
mod windows;

use std::{fmt, num::NonZeroU32, str::FromStr};

use serde::{Serialize, Serializer};

pub use self::{
    rule_set::RuleSet,
    windows::{CountedRule, CountedWindows},
};
pub use crate::order::MOST_RULES;
use crate::order::{CampaignId, MOST_VALUE_BYTES, VoucherId, is_value_byte};

/// The maximum number of subjects (such as a phone or an address) that a caller may name for an order.
pub const MOST_SUBJECTS: usize = 16;
const MOST_NAME_BYTES: usize = 32;
/// The subject that every order has.
const USER: &str = "user";

/// The voucher or the campaign that owns limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitOwner {
    /// The limits belong to one voucher.
    Voucher(VoucherId),
    /// The limits are common to the vouchers of a campaign.
    Campaign(CampaignId),
}

impl Serialize for LimitOwner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for LimitOwner {
    /// The form is `voucher:7` or `campaign:5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Voucher(voucher) => write!(f, "voucher:{voucher}"),
            Self::Campaign(campaign) => write!(f, "campaign:{campaign}"),
        }
    }
}

/// The reason why the name or value of a subject, or the name of a limit, is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSubject {
    /// The name of a limit or of a subject is not valid.
    #[error("{0:?} is not a name: a name has 1 to 32 characters of a-z 0-9 _ and begins with a letter")]
    Name(String),
    /// The value of this subject is not valid.
    #[error("the value of the subject {0} must be 1 to 64 characters of A-Z a-z 0-9 _ . : + / = -")]
    Value(SubjectName),
    /// A caller named `user`, which is not a subject that callers name.
    #[error("user is not allowed as a subject: the order itself already names the user")]
    User,
    /// A caller named the same subject twice.
    #[error("the subject {0} is named twice: name each subject once")]
    Twice(SubjectName),
    /// A caller named more subjects than [`MOST_SUBJECTS`].
    #[error("an order has at most {MOST_SUBJECTS} subjects")]
    TooMany,
}

/// The name of a limit, or of a subject such as `phone` for which a limit counts orders. The name has 1 to 32
/// characters of `a-z 0-9 _` and begins with a letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectName(String);

impl SubjectName {
    /// The name as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SubjectName {
    type Err = BadSubject;

    fn from_str(text: &str) -> Result<Self, BadSubject> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        match begins && text.len() <= MOST_NAME_BYTES && text.bytes().all(is_letter) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadSubject::Name(text.chars().take(MOST_VALUE_BYTES).collect())),
        }
    }
}

/// The subjects that a caller names for an order in addition to the user, such as `phone`, `address` and `device`:
/// limits count orders for each value. Values are compared byte by byte. The values stay in Redis, in entries and in
/// MySQL for as long as the order stays there. So send a keyed hash, and not the phone number itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects(Vec<(SubjectName, String)>);

impl Subjects {
    /// Creates an empty list of subjects, for vouchers whose limits count only by user.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a subject (a name by which limits count orders, such as `phone`) with its value.
    ///
    /// # Errors
    /// See [`BadSubject`].
    pub fn with(mut self, name: &str, value: &str) -> Result<Self, BadSubject> {
        let name: SubjectName = name.parse()?;
        match () {
            () if name.as_str() == USER => Err(BadSubject::User),
            () if self.0.iter().any(|(known, _)| *known == name) => Err(BadSubject::Twice(name)),
            () if self.0.len() == MOST_SUBJECTS => Err(BadSubject::TooMany),
            () if value.is_empty() || value.len() > MOST_VALUE_BYTES || !value.bytes().all(is_value_byte) => {
                Err(BadSubject::Value(name))
            }
            () => {
                self.0.push((name, value.to_owned()));
                Ok(self)
            }
        }
    }

    /// The names and values of the subjects, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&SubjectName, &str)> {
        self.0.iter().map(|(name, value)| (name, value.as_str()))
    }
}

/// The subject for which a limit counts orders, such as each user or each phone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All orders, counted together as one.
    All,
    /// The user of the order.
    User,
    /// The value that the caller sends under this name.
    Named(SubjectName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::User => f.write_str(USER),
            Self::Named(name) => name.fmt(f),
        }
    }
}

impl FromStr for Subject {
    type Err = BadSubject;

    fn from_str(text: &str) -> Result<Self, BadSubject> {
        match text {
            "*" => Ok(Self::All),
            USER => Ok(Self::User),
            name => name.parse().map(Self::Named),
        }
    }
}

/// The time window in which a limit counts, such as a day or the whole sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A single order: the limit is on its units.
    Order,
    /// The whole sale of the voucher.
    Sale,
    /// A day that begins `offset_s` seconds before midnight UTC.
    Day {
        /// The offset from UTC in seconds, positive east of Greenwich.
        offset_s: i32,
    },
    /// A month that begins `offset_s` seconds before midnight UTC.
    Month {
        /// The offset from UTC in seconds, positive east of Greenwich.
        offset_s: i32,
    },
    /// A fixed number of seconds. Each window begins at a multiple of this number in Unix time.
    Seconds(NonZeroU32),
}

/// The kind of a rule, with the amount that the rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// The maximum orders and units in a window. `None` if there is no maximum. For [`Window::Order`], only units
    /// count.
    Limit {
        /// The window in which the limit counts.
        window: Window,
        /// The maximum number of orders.
        orders: Option<u32>,
        /// The maximum number of units.
        units: Option<u32>,
    },
    /// Admissions by GCRA, as in [redis-cell](https://github.com/brandur/redis-cell): one in each period, and `burst`
    /// at once.
    Rate {
        /// The period of the rate, in microseconds.
        period_us: NonZeroU32,
        /// The number of admissions in a row after a rest.
        burst: NonZeroU32,
    },
}

/// A rule of a voucher or a campaign: a limit on orders or units, or a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The number of the rule. If a rule is defined anew, it gets another number, and its counters begin at 0.
    pub number: NonZeroU32,
    /// The name of the rule, which refusals report.
    pub name: SubjectName,
    /// The subject for which the rule counts, such as each user or each phone.
    pub subject: Subject,
    /// The kind of the rule, with the amount that the rule allows.
    pub kind: RuleKind,
}

impl Rule {
    /// Whether the counters of the rule `other` are valid for this rule. Both rules must have the same subject and the
    /// same window, but may allow different amounts.
    #[must_use]
    pub fn counts_as(&self, other: &Self) -> bool {
        let is_same_kind = match (self.kind, other.kind) {
            (RuleKind::Limit { window, .. }, RuleKind::Limit { window: of_other, .. }) => window == of_other,
            (RuleKind::Rate { .. }, RuleKind::Rate { .. }) => true,
            _ => false,
        };
        self.subject == other.subject && is_same_kind
    }
}

impl fmt::Display for Rule {
    /// The rule in the form of the field `rules` in a hash of limits: `3 days phone day 28800 3 4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, name, subject, kind } = self;
        write!(f, "{number} {name} {subject} ")?;
        let most = |most: Option<u32>| most.map_or_else(|| "-".to_owned(), |most| most.to_string());
        match *kind {
            RuleKind::Rate { period_us, burst } => write!(f, "rate {period_us} {burst} -"),
            RuleKind::Limit { window, orders, units } => {
                match window {
                    Window::Order => write!(f, "order 0")?,
                    Window::Sale => write!(f, "sale 0")?,
                    Window::Day { offset_s } => write!(f, "day {offset_s}")?,
                    Window::Month { offset_s } => write!(f, "month {offset_s}")?,
                    Window::Seconds(length) => write!(f, "{length} 0")?,
                }
                write!(f, " {} {}", most(orders), most(units))
            }
        }
    }
}

/// The text of the field `rules` in Redis: the limits of a campaign, or the limits of a voucher and the id of its
/// campaign.
#[must_use]
pub fn rules_text(owner: LimitOwner, campaign: Option<CampaignId>, rules: &[Rule]) -> String {
    let (slots, campaign) = match owner {
        LimitOwner::Voucher(_) => (i32::from(gives_slots(rules)), campaign),
        LimitOwner::Campaign(own) => (0, Some(own)),
    };
    let campaign = campaign.map_or_else(|| "-".to_owned(), |campaign| campaign.to_string());
    let rules: Vec<String> = rules.iter().map(Rule::to_string).collect();
    format!("{slots} {campaign};{}", rules.join(";"))
}

/// Whether the given limits allow a user several orders of a voucher at the same time. This is the case if one of the
/// limits is the voucher's own limit on the orders of a user, which replaces "one order for each user".
#[must_use]
pub fn gives_slots(rules: &[Rule]) -> bool {
    let counts_orders = |kind: &RuleKind| matches!(kind, RuleKind::Limit { window, orders: Some(_), .. } if *window != Window::Order);
    rules.iter().any(|rule| rule.subject == Subject::User && counts_orders(&rule.kind))
}

/// The limit that refuses an order, and the number of orders or units that it still allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitReached {
    /// The name of the limit. The name is `slots` if the user already has the maximum number of orders at one time.
    pub name: String,
    /// The number of orders that the limit still allows in its window. `None` if the limit does not count orders.
    pub orders_left: Option<u64>,
    /// The number of units that the limit still allows in its window. `None` if the limit does not count units.
    pub units_left: Option<u64>,
    /// The start of the limit's next window, in Unix milliseconds. `None` if there is no next window.
    pub opens_ms: Option<i64>,
}

/// The rate (the number of orders that are allowed in a time span) that refuses an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateReached {
    /// The name of the rate that refuses the order.
    pub name: String,
    /// The time in milliseconds after which the rate allows the next order.
    pub retry_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    #[test]
    fn subjects_are_names_and_values_that_fit_everywhere() {
        let subjects = Subjects::none().with("phone", "a1+/=").unwrap().with("ip", "::1").unwrap();
        assert_eq!(subjects.iter().map(|(_, value)| value).collect::<Vec<_>>(), ["a1+/=", "::1"]);
        assert_eq!(subjects.clone().with("phone", "b"), Err(BadSubject::Twice("phone".parse().unwrap())));
        assert_eq!(subjects.clone().with("user", "b"), Err(BadSubject::User));
        for name in ["", "Phone", "1phone", "pho ne", &"p".repeat(33)] {
            assert!(matches!(subjects.clone().with(name, "b"), Err(BadSubject::Name(_))), "{name}");
        }
        for value in ["", "a b", "a,b", "ü", "a\0", "a\"", &"b".repeat(65)] {
            assert!(matches!(subjects.clone().with("x", value), Err(BadSubject::Value(_))), "{value}");
        }
    }

    #[test]
    fn rules_are_written_as_the_script_reads_them() {
        let rule = |kind| Rule {
            number: number(3),
            name: "days".parse().unwrap(),
            subject: Subject::Named("phone".parse().unwrap()),
            kind,
        };
        let limit = |window, orders, units| rule(RuleKind::Limit { window, orders, units });
        for (rule, text) in [
            (limit(Window::Day { offset_s: 28_800 }, Some(3), Some(4)), "3 days phone day 28800 3 4"),
            (limit(Window::Month { offset_s: -3_600 }, None, Some(4)), "3 days phone month -3600 - 4"),
            (limit(Window::Seconds(number(60)), Some(1), None), "3 days phone 60 0 1 -"),
            (limit(Window::Order, None, Some(2)), "3 days phone order 0 - 2"),
            (rule(RuleKind::Rate { period_us: number(9), burst: number(2) }), "3 days phone rate 9 2 -"),
        ] {
            assert_eq!(rule.to_string(), text);
            assert_eq!(text.parse(), Ok(rule.clone()));
            assert!(!gives_slots(std::slice::from_ref(&rule)));
        }
        let kind = RuleKind::Limit { window: Window::Sale, orders: Some(2), units: None };
        let own = [Rule { subject: Subject::User, ..rule(kind) }, rule(kind)];
        let (voucher, campaign) = (LimitOwner::Voucher(7.try_into().unwrap()), 5.try_into().unwrap());
        let both = "3 days user sale 0 2 -;3 days phone sale 0 2 -";
        assert_eq!(rules_text(voucher, None, &own), format!("1 -;{both}"));
        assert_eq!(rules_text(LimitOwner::Campaign(campaign), None, &own), format!("0 5;{both}"));
        assert_eq!(rules_text(voucher, Some(campaign), &[]), "0 5;");
        let both = RuleSet { campaign: None, has_slots: true, rules: own.to_vec() };
        assert_eq!(RuleSet::parse(&rules_text(voucher, None, &own)), Some(both));
    }
}

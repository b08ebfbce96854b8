//! Limits: who may buy how much in which time, and what a caller says of itself for that. They are checked and counted by
//! `lua/admit_limited.lua`, in the step that takes the stock.

mod windows;

use std::{fmt, num::NonZeroU32, str::FromStr};

use serde::{Serialize, Serializer};

pub use self::windows::{CountedRule, CountedWindows};
pub use crate::order::MOST_RULES;
use crate::order::{CampaignId, MOST_VALUE_BYTES, VoucherId, is_value_byte};

/// Subjects that a caller may name.
pub const MOST_SUBJECTS: usize = 16;
const MOST_NAME_BYTES: usize = 32;
/// The subject that every order has.
const USER: &str = "user";

/// Whose limits they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitOwner {
    /// Of one voucher.
    Voucher(VoucherId),
    /// Of the vouchers that are sold under common limits.
    Campaign(CampaignId),
}

impl Serialize for LimitOwner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for LimitOwner {
    /// `voucher:7`, `campaign:5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Voucher(voucher) => write!(f, "voucher:{voucher}"),
            Self::Campaign(campaign) => write!(f, "campaign:{campaign}"),
        }
    }
}

/// A text that is no name or no value of what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSubject {
    /// A name of a limit or of a subject.
    #[error("{0:?} is no name: 1 to 32 of a-z 0-9 _, and a letter first")]
    Name(String),
    /// A value, which may be anything.
    #[error("the value of {0} must be 1 to 64 characters of A-Z a-z 0-9 _ . : + / = -")]
    Value(SubjectName),
    /// The user is no subject that a caller names.
    #[error("user is named by the order itself")]
    User,
    /// The same twice.
    #[error("{0} is named twice")]
    Twice(SubjectName),
    /// Too many.
    #[error("at most {MOST_SUBJECTS} subjects")]
    TooMany,
}

/// Name of a limit or of what it counts by, such as `phone`: 1 to 32 of `a-z 0-9 _`, a letter first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectName(String);

impl SubjectName {
    /// Its text.
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

/// What a caller says of itself beside the user: `phone`, `address`, `device`. Values are compared byte by byte. They stay in Redis,
/// in entries and in MySQL as long as the order: send a keyed hash, and not the number itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects(Vec<(SubjectName, String)>);

impl Subjects {
    /// None.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds one.
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

    /// Names and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&SubjectName, &str)> {
        self.0.iter().map(|(name, value)| (name, value.as_str()))
    }
}

/// What a limit counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All orders together.
    All,
    /// The user of the order.
    User,
    /// What the caller says of itself under this name.
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

/// The time in which a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One order: how many units it may have.
    Order,
    /// The whole sale.
    Sale,
    /// A day, which begins so many seconds before midnight UTC.
    Day {
        /// East of Greenwich.
        offset_s: i32,
    },
    /// A month, which begins so.
    Month {
        /// East of Greenwich.
        offset_s: i32,
    },
    /// So many seconds, from a multiple of them in Unix time on.
    Seconds(NonZeroU32),
}

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// Orders and units in a window; None: as many as there are. Of [`Window::Order`], only units count.
    Limit {
        /// In which time.
        window: Window,
        /// Orders.
        orders: Option<u32>,
        /// Units.
        units: Option<u32>,
    },
    /// Admissions by GCRA, as [redis-cell](https://github.com/brandur/redis-cell) has it: one in each period, and so many at once.
    Rate {
        /// In microseconds.
        period_us: NonZeroU32,
        /// In a row, after a rest.
        burst: NonZeroU32,
    },
}

/// A limit or a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Of this definition: what is counted under another number is another limit.
    pub number: NonZeroU32,
    /// What refusals call it.
    pub name: SubjectName,
    /// What it counts by.
    pub subject: Subject,
    /// How much there may be.
    pub kind: RuleKind,
}

impl Rule {
    /// Whether what was counted under `other` counts for this one: the same subject and the same window, however much there may be.
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
    /// As it stands in the field `rules` of a hash of limits: `3 days phone day 28800 3 4`.
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

/// What the field `rules` has in the hash of a voucher's limits, with the campaign that it is in, or of those of a campaign itself.
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

/// A voucher's own limit on the orders of a user takes the place of "one order for each user".
#[must_use]
pub fn gives_slots(rules: &[Rule]) -> bool {
    let counts_orders = |kind: &RuleKind| matches!(kind, RuleKind::Limit { window, orders: Some(_), .. } if *window != Window::Order);
    rules.iter().any(|rule| rule.subject == Subject::User && counts_orders(&rule.kind))
}

/// A limit refuses an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitReached {
    /// Its name; `slots` where a user holds as many orders as there are slots.
    pub name: String,
    /// Orders that are left in the window; None: it does not count orders.
    pub orders_left: Option<u64>,
    /// Units that are left in the window; None: it does not count units.
    pub units_left: Option<u64>,
    /// When the next window begins, in Unix milliseconds; None: there is none.
    pub opens_ms: Option<i64>,
}

/// A rate refuses an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateReached {
    /// Its name.
    pub name: String,
    /// After so many milliseconds, the next is admitted.
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
            assert!(!gives_slots(std::slice::from_ref(&rule)));
        }
        let kind = RuleKind::Limit { window: Window::Sale, orders: Some(2), units: None };
        let own = [Rule { subject: Subject::User, ..rule(kind) }, rule(kind)];
        let (voucher, campaign) = (LimitOwner::Voucher(7.try_into().unwrap()), 5.try_into().unwrap());
        let both = "3 days user sale 0 2 -;3 days phone sale 0 2 -";
        assert_eq!(rules_text(voucher, None, &own), format!("1 -;{both}"));
        assert_eq!(rules_text(LimitOwner::Campaign(campaign), None, &own), format!("0 5;{both}"));
        assert_eq!(rules_text(voucher, Some(campaign), &[]), "0 5;");
    }
}

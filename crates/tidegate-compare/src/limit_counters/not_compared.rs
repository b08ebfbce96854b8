//! The limit counters that were not compared, with the reasons. Such counters may be right or wrong.

use serde::Serialize;
use tidegate_orders::LimitOwner;

/// The limit counters of a voucher or a campaign that could not be checked, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotCompared {
    /// The voucher or campaign that has the counters.
    pub owner: LimitOwner,
    /// The reason why the limit counters could not be checked.
    pub why: NotComparedReason,
}

/// The reason why limit counters could not be checked against the orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotComparedReason {
    /// The clock of Redis is behind the id of the last stream entry, so earlier notes would seem later.
    ClockWentBack,
    /// The journal does not hold all orders.
    JournalNotComplete,
    /// The journal of the voucher does not exist in Redis.
    JournalGone,
    /// The journal has notes that cannot be read.
    UnreadableNotes,
    /// Too many orders ended during a check.
    TooManyEnded,
    /// Some counters changed during each check.
    KeepsMoving,
    /// So many counters may be wrong that not all were checked one by one.
    TooMany,
}

impl NotCompared {
    /// The sentence for an operator: which limit counters could not be checked, and why.
    #[must_use]
    pub fn sentence(&self) -> String {
        let owner = self.owner;
        match self.why {
            NotComparedReason::KeepsMoving => {
                format!(
                    "some counters of {owner} changed during each check and were not compared; type the command again"
                )
            }
            NotComparedReason::TooMany => {
                format!(
                    "{owner} has too many counters that may be wrong: repair the listed counters, and type the command again"
                )
            }
            why => format!("counters of {owner} were not compared: {}", why.reason()),
        }
    }
}

impl NotComparedReason {
    const fn reason(self) -> &'static str {
        match self {
            Self::ClockWentBack => "the clock of Redis is behind the last stream entry; see docs/clocks.md",
            Self::JournalNotComplete => "a journal does not hold all orders; see docs/rebuild.md",
            Self::JournalGone => "a journal is missing in Redis; see docs/rebuild.md",
            Self::UnreadableNotes => "a journal has notes that cannot be read",
            Self::TooManyEnded => "too many orders ended during a check; type the command again",
            Self::KeepsMoving => "some counters changed during each check",
            Self::TooMany => "too many counters may be wrong",
        }
    }
}

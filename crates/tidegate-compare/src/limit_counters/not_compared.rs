//! The counters that were not compared, and the reasons. They may be right or wrong.

use serde::Serialize;
use tidegate_orders::LimitOwner;

/// The counters of an owner of limits, or a part of them, that were not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotCompared {
    /// The owner of the limits.
    pub owner: LimitOwner,
    /// The reason why they were not compared.
    pub why: NotComparedReason,
}

/// The reason why counters were not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotComparedReason {
    /// The clock of Redis is behind its latest note, so earlier notes would seem later.
    ClockWentBack,
    /// The journal does not hold all orders.
    JournalNotComplete,
    /// The journal of the voucher is gone.
    JournalGone,
    /// The journal has notes that cannot be read.
    UnreadableNotes,
    /// Too many orders ended during a check.
    TooManyEnded,
    /// Some counters changed with each check.
    KeepsMoving,
    /// More counters may be wrong than are checked one by one.
    TooMany,
}

impl NotCompared {
    /// The reason in a sentence, with the voucher or campaign that has the limit.
    #[must_use]
    pub fn sentence(&self) -> String {
        let owner = self.owner;
        match self.why {
            NotComparedReason::KeepsMoving => {
                format!(
                    "some counters of {owner} change with each check and were not compared; type the command again"
                )
            }
            NotComparedReason::TooMany => {
                format!(
                    "not all counters of {owner} that may be wrong were checked: repair these, and type the command again"
                )
            }
            why => format!("counters of {owner} were not compared: {}", why.reason()),
        }
    }
}

impl NotComparedReason {
    const fn reason(self) -> &'static str {
        match self {
            Self::ClockWentBack => "the clock of Redis is behind what it noted last (docs/clocks.md)",
            Self::JournalNotComplete => "a journal is not complete (docs/rebuild.md)",
            Self::JournalGone => "a journal is gone (docs/rebuild.md)",
            Self::UnreadableNotes => "a journal has notes that cannot be read",
            Self::TooManyEnded => "too many orders ended during a check; type the command again",
            Self::KeepsMoving => "they change with each check",
            Self::TooMany => "too many may be wrong",
        }
    }
}

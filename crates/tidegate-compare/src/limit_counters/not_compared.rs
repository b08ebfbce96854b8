//! What was not compared, and why: that is not to say that it holds.

use serde::Serialize;
use tidegate_orders::LimitOwner;

/// What is counted for an owner of limits, or a part of it, of which nobody knows whether it is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotCompared {
    /// Whose limits.
    pub owner: LimitOwner,
    /// Why.
    pub why: WhyNotCompared,
}

/// Why something was not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyNotCompared {
    /// The clock of Redis is behind what it noted last: what was noted before would look later.
    ClockWentBack,
    /// The journal does not hold all orders.
    JournalNotComplete,
    /// The journal is gone.
    JournalGone,
    /// The journal has notes that nobody can read.
    UnreadableNotes,
    /// Too many orders ended during a comparison.
    TooManyEnded,
    /// Some counters changed with each comparison.
    KeepsMoving,
    /// More counters may be wrong than are looked at one by one.
    TooMany,
}

impl NotCompared {
    /// In a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let owner = self.owner;
        match self.why {
            WhyNotCompared::KeepsMoving => {
                format!("some counters of {owner} change with each comparison and were not compared; type it again")
            }
            WhyNotCompared::TooMany => {
                format!(
                    "not all counters of {owner} that may be wrong were looked at: repair these, and type it again"
                )
            }
            why => format!("counters of {owner} were not compared: {}", why.reason()),
        }
    }
}

impl WhyNotCompared {
    const fn reason(self) -> &'static str {
        match self {
            Self::ClockWentBack => "the clock of Redis is behind what it noted last (docs/clocks.md)",
            Self::JournalNotComplete => "a journal is not complete (docs/rebuild.md)",
            Self::JournalGone => "a journal is gone (docs/rebuild.md)",
            Self::UnreadableNotes => "a journal has notes that nobody can read",
            Self::TooManyEnded => "too many orders ended during a comparison; type it again",
            Self::KeepsMoving => "they change with each comparison",
            Self::TooMany => "too many may be wrong",
        }
    }
}

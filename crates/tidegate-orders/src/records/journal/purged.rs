//! What a journal does not hold any more, because it is final on both sides: one movement of the whole sale instead.

use serde::{Deserialize, Serialize};

/// The field of what was compacted.
pub const PURGED: &str = "#purged";

/// What `lua/compact.lua` has compacted of a sale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// What it adds to the sum of the journal.
    pub change: i64,
    /// Orders that were admitted and released.
    pub released_orders: u64,
    /// Units of these.
    pub released_units: i64,
    /// Orders that were used: they keep their units.
    pub used_orders: u64,
    /// Units of these.
    pub used_units: i64,
    /// All of it is older, in Unix milliseconds by the clock of Redis.
    #[serde(rename = "before")]
    pub before_ms: i64,
}

impl Purged {
    /// Reads the note. None: somebody else wrote it.
    #[must_use]
    pub fn parse(note: &[u8]) -> Option<Self> {
        serde_json::from_slice(note).ok()
    }

    /// Units that orders gave up and that did not come back, below 0: MySQL did not have them.
    #[must_use]
    pub const fn kept_by_nobody(&self) -> i64 {
        self.change.saturating_add(self.used_units)
    }
}

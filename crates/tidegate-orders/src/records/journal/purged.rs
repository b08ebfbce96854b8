//! The orders that a journal no longer holds, because they are final on both sides: one movement of the whole sale
//! replaces them.

use serde::{Deserialize, Serialize};

/// The field of the note about compacted orders.
pub const PURGED: &str = "#purged";

/// The orders of a sale that `lua/compact.lua` has compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// The change that the compacted orders add to the sum of the journal.
    pub change: i64,
    /// The number of orders that were admitted and released.
    pub released_orders: u64,
    /// The units of the released orders.
    pub released_units: i64,
    /// The number of used orders, which keep their units.
    pub used_orders: u64,
    /// The units of the used orders.
    pub used_units: i64,
    /// The time before which all of the compacted movements were, in Unix milliseconds by the clock of Redis.
    #[serde(rename = "before")]
    pub before_ms: i64,
}

impl Purged {
    /// Parses the note of compacted orders. None: another program wrote it.
    #[must_use]
    pub fn parse(note: &[u8]) -> Option<Self> {
        serde_json::from_slice(note).ok()
    }

    /// The units that orders gave up and that did not come back because MySQL did not have them, below 0.
    #[must_use]
    pub const fn kept_by_nobody(&self) -> i64 {
        self.change.saturating_add(self.used_units)
    }
}

//! The orders that a journal no longer holds, because they are final on both sides: one movement of the whole sale
//! replaces them.

use serde::{Deserialize, Serialize};

/// The field of a journal (Redis hash) with the sums of the orders whose notes were removed from it.
pub const PURGED: &str = "#purged";

/// The totals that replace removed notes in a sale's journal, a Redis hash with a note for each order.
/// `lua/compact.lua` removes notes and adds their numbers to these totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// The change of the stock, in units, by all orders whose notes were removed from the journal.
    pub change: i64,
    /// The number of orders that took units and returned them, and whose notes were removed from the journal.
    pub released_orders: u64,
    /// The number of units that were taken and returned by orders whose notes were removed from the journal.
    pub released_units: i64,
    /// The number of used (redeemed) orders whose notes were removed from the journal. Used orders keep their units.
    pub used_orders: u64,
    /// The number of units in used (redeemed) orders whose notes were removed from the journal.
    pub used_units: i64,
    /// The time before which all changes in removed notes happened, in Unix milliseconds by the clock of Redis.
    #[serde(rename = "before")]
    pub before_ms: i64,
}

impl Purged {
    /// Parses the journal field (Redis hash field) with the sums of removed notes. `None` if another program wrote the
    /// field.
    #[must_use]
    pub fn parse(note: &[u8]) -> Option<Self> {
        serde_json::from_slice(note).ok()
    }

    /// The number of units that ended orders did not return to the stock, because MySQL did not have these units. The
    /// number is 0 or below.
    #[must_use]
    pub const fn kept_by_nobody(&self) -> i64 {
        self.change.saturating_add(self.used_units)
    }
}

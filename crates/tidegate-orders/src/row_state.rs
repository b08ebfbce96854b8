//! Whether an order's row counts: live, cancelled, or neither. Every statement and every report that asks has its answer
//! from here.
//!
//! Slot and status say it together. The slot keeps the user's place and the units; the status says why it was given up.
//! Where the two contradict each other, somebody changed one without the other, and nobody can tell from the row whether
//! its units went back: that is a finding of its own.

use serde::Serialize;

/// The tutorial's number for a cancelled order.
pub(crate) const STATUS_CANCELLED: i64 = 4;
/// The tutorial's numbers for a cancelled and for a refunded order: neither holds a slot.
const GIVEN_UP: [i64; 2] = [STATUS_CANCELLED, 6];
/// The tutorial's number for an order whose payment is being given back. It holds its slot, unless it was cancelled before
/// that payment came.
const REFUNDING: i64 = 5;
/// The tutorial's default, and what NULL means: unpaid.
const UNPAID: i64 = 1;

/// SQL, a condition on `tb_voucher_order`: the row is [`RowState::Live`].
pub const LIVE: &str = "(slot IS NOT NULL AND COALESCE(status, 1) NOT IN (4, 6))";
/// SQL, a condition on `tb_voucher_order`: the row is [`RowState::Cancelled`].
pub const CANCELLED: &str = "(slot IS NULL AND COALESCE(status, 1) IN (4, 5, 6))";
/// SQL, a condition on the tutorial's table, which has no slots yet: what is live there will have slot 1.
pub const LIVE_BEFORE_SLOTS: &str = "(COALESCE(status, 1) NOT IN (4, 6))";

/// What a row of `tb_voucher_order` counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// It has a slot and a status other than 4 and 6: it holds units, and its user has no second order in its slot.
    Live,
    /// It has no slot and status 4, 5 or 6: it holds nothing. It was written once, or only keeps an order from being written.
    Cancelled,
    /// Slot and status contradict each other: status 4 or 6 with a slot, or no slot with 1, 2 or 3.
    Contradictory,
}

impl RowState {
    /// By the row's columns, either of which may be NULL.
    #[must_use]
    pub fn of(slot: Option<i64>, status: Option<i64>) -> Self {
        let status = status.unwrap_or(UNPAID);
        let is_given_up = GIVEN_UP.contains(&status);
        match slot {
            Some(_) if !is_given_up => Self::Live,
            None if is_given_up || status == REFUNDING => Self::Cancelled,
            _ => Self::Contradictory,
        }
    }
}

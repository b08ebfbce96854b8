//! Decides whether an order's row counts: live, cancelled, or neither. Every statement and every report uses this
//! module for that.
//!
//! Slot and status decide together. The slot keeps the user's place and the units; the status says why the slot was
//! given up. If the two contradict each other, another program or an operator changed one without the other. Then the
//! row does not show whether its units went back, so that is a finding of its own.

use serde::Serialize;

/// The tutorial's numbers in the column `status`.
pub(crate) mod status {
    /// The default, and the meaning of NULL.
    pub(crate) const UNPAID: i64 = 1;
    pub(crate) const PAID: i64 = 2;
    pub(crate) const USED: i64 = 3;
    pub(crate) const CANCELLED: i64 = 4;
    /// The payment is being refunded. The order holds its slot, unless it was cancelled before that payment came.
    pub(crate) const REFUNDING: i64 = 5;
    pub(crate) const REFUNDED: i64 = 6;
}

/// The statuses of orders that gave up their slot.
const GIVEN_UP: [i64; 2] = [status::CANCELLED, status::REFUNDED];

/// An SQL condition for rows of `tb_voucher_order` in the state [`RowState::Live`].
pub const LIVE: &str = "(slot IS NOT NULL AND COALESCE(status, 1) NOT IN (4, 6))";
/// An SQL condition for rows of `tb_voucher_order` in the state [`RowState::Cancelled`].
pub const CANCELLED: &str = "(slot IS NULL AND COALESCE(status, 1) IN (4, 5, 6))";
/// An SQL condition for unpaid rows of `tb_voucher_order` in the state [`RowState::Live`].
pub const UNPAID_LIVE: &str = "slot IS NOT NULL AND COALESCE(status, 1) = 1";
/// An SQL condition for live orders (not cancelled or refunded) in the table of the tutorial shop hm-dianping, before a
/// migration adds the column `slot`. These rows get the slot 1.
pub const LIVE_BEFORE_SLOTS: &str = "(COALESCE(status, 1) NOT IN (4, 6))";

/// The status of an order, from the number in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// The order is not paid yet. NULL counts as this status.
    Unpaid,
    /// The order is paid.
    Paid,
    /// The order is used.
    Used,
    /// A payment of the order is being refunded.
    Refunding,
    /// The order was cancelled or expired, or its row only keeps it from being written.
    Cancelled,
    /// The payment of the order was refunded.
    Refunded,
    /// Slot and status contradict each other, or the status is none of the tutorial's.
    Contradictory,
}

impl RowStatus {
    /// Derives the status of an order from the columns of its row. Each column may be NULL.
    #[must_use]
    pub fn of(slot: Option<i64>, status: Option<i64>) -> Self {
        match (status.unwrap_or(status::UNPAID), slot.is_some()) {
            (status::UNPAID, true) => Self::Unpaid,
            (status::PAID, true) => Self::Paid,
            (status::USED, true) => Self::Used,
            (status::REFUNDING, _) => Self::Refunding,
            (status::CANCELLED, false) => Self::Cancelled,
            (status::REFUNDED, false) => Self::Refunded,
            _ => Self::Contradictory,
        }
    }
}

/// The state of an order's row: live, cancelled, or contradictory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// The row has a slot and a status other than 4 and 6: it holds units, and its user has no second order in its
    /// slot.
    Live,
    /// The row has no slot and status 4, 5 or 6: it holds nothing. It was live once, or only keeps an order from being
    /// written.
    Cancelled,
    /// Slot and status contradict each other: status 4 or 6 with a slot, or no slot with 1, 2 or 3.
    Contradictory,
}

impl RowState {
    /// Derives the state of a row from its columns. Each column may be NULL.
    #[must_use]
    pub fn of(slot: Option<i64>, status: Option<i64>) -> Self {
        let number = status.unwrap_or(status::UNPAID);
        let is_given_up = GIVEN_UP.contains(&number);
        match slot {
            Some(_) if !is_given_up => Self::Live,
            None if is_given_up || number == status::REFUNDING => Self::Cancelled,
            _ => Self::Contradictory,
        }
    }
}

//! The state of an order that callers get: the one place that decides this. Pure.
//!
//! [`OrderStatus`] says where an order is, for operators. A caller does not need to know which list has its entry, but
//! whether the order is paid. So if MySQL has the order's row, the row's status counts; otherwise the place counts.

use serde::Serialize;

use crate::{
    event::{EventKind, History, Row},
    order_status::{OrderStatus, RowFact},
    row_state::{
        RowState, RowStatus,
        status::{CANCELLED, REFUNDING},
    },
};

/// The state of an order, as the HTTP API returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderState {
    /// The order is in the stream, or in progress in a worker.
    Waiting,
    /// MySQL has the order, and it is not paid.
    Confirmed,
    /// The order is paid.
    Paid,
    /// The order was used.
    Used,
    /// A payment of the order is being refunded.
    Refunding,
    /// The payment of the order was refunded.
    Refunded,
    /// The order was cancelled.
    Cancelled,
    /// The order was not paid in time.
    Expired,
    /// MySQL refused the order.
    Refused,
    /// The order was released before it was written.
    Released,
    /// The order is among the dead letters: an operator decides.
    Dead,
    /// Another program or an operator changed the row so that slot and status contradict each other.
    Contradictory,
    /// The order was admitted but not found, or its place cannot be determined.
    Unsure,
    /// No trace of the order was found.
    Unknown,
}

impl OrderState {
    /// All states that an order can have.
    pub const ALL: [Self; 14] = [
        Self::Waiting,
        Self::Confirmed,
        Self::Paid,
        Self::Used,
        Self::Refunding,
        Self::Refunded,
        Self::Cancelled,
        Self::Expired,
        Self::Refused,
        Self::Released,
        Self::Dead,
        Self::Contradictory,
        Self::Unsure,
        Self::Unknown,
    ];

    /// Derives the state of an order from where the order is (its [`OrderStatus`]) and from its history in MySQL.
    #[must_use]
    pub fn of(status: OrderStatus, history: &History) -> Self {
        match status {
            OrderStatus::Written | OrderStatus::Cancelled => {
                history.row.map_or(Self::Unsure, |row| Self::of_row(row, history))
            }
            OrderStatus::Contradictory => Self::Contradictory,
            OrderStatus::Refused => Self::Refused,
            OrderStatus::Released => Self::Released,
            OrderStatus::Dead => Self::Dead,
            OrderStatus::Pending | OrderStatus::Undelivered => Self::Waiting,
            OrderStatus::Mismatched | OrderStatus::Lost | OrderStatus::Unsure => Self::Unsure,
            OrderStatus::Unknown => Self::Unknown,
        }
    }

    fn of_row(row: Row, history: &History) -> Self {
        match RowStatus::of(row.has_slot.then_some(1), Some(row.status)) {
            RowStatus::Unpaid => Self::Confirmed,
            RowStatus::Paid => Self::Paid,
            RowStatus::Used => Self::Used,
            RowStatus::Cancelled if has_expired(history) => Self::Expired,
            RowStatus::Cancelled => Self::Cancelled,
            RowStatus::Refunding => Self::Refunding,
            RowStatus::Refunded => Self::Refunded,
            RowStatus::Contradictory => Self::Contradictory,
        }
    }

    /// The word for this state of an order, in JSON and in text.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Confirmed => "confirmed",
            Self::Paid => "paid",
            Self::Used => "used",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::Released => "released",
            Self::Dead => "dead",
            Self::Contradictory => "contradictory",
            Self::Unsure => "unsure",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the caller need not ask again for the state of the order. An operator or a late payment may still change
    /// the order.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Used
            | Self::Refunded
            | Self::Cancelled
            | Self::Expired
            | Self::Refused
            | Self::Released
            | Self::Dead => true,
            Self::Waiting
            | Self::Confirmed
            | Self::Paid
            | Self::Refunding
            | Self::Contradictory
            | Self::Unsure
            | Self::Unknown => false,
        }
    }
}

/// Returns the order's row in its history as a [`RowFact`].
#[must_use]
pub fn row_fact(history: &History) -> RowFact {
    let state = |row: Row| RowState::of(row.has_slot.then_some(1), Some(row.status));
    history.row.map_or(RowFact::None, |row| RowFact::Own(state(row)))
}

/// Whether the order was cancelled or expired at some time. If a payment came later, the order's status is different
/// now, but the order stays invalid.
#[must_use]
pub fn was_cancelled(history: &History) -> bool {
    let is_now = history.row.is_some_and(|row| matches!(row.status, CANCELLED | REFUNDING) && !row.has_slot);
    is_now || history.events.iter().any(|past| past.step.is_some_and(|step| step.to == CANCELLED))
}

/// Whether the order was cancelled because it was not paid in time.
fn has_expired(history: &History) -> bool {
    let mut steps = history.events.iter().rev().filter(|past| past.step.is_some());
    steps.next().is_some_and(|past| past.kind == Some(EventKind::Expired))
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::event::{EventOutcome, PastEvent, Step};

    fn history(status: i64, has_slot: bool, by: Option<EventKind>) -> History {
        let event = |kind| PastEvent {
            number: 1,
            kind: Some(kind),
            reference: None,
            payment: None,
            reason: None,
            outcome: EventOutcome::Applied,
            step: Some(Step { from: Some(1), to: status }),
            released: 0,
            entry: EntryId::MIN,
        };
        let row = Some(Row { user: 9, voucher: 7, quantity: 1, status, has_slot });
        History { row, events: by.map(event).into_iter().collect(), ..History::default() }
    }

    #[test]
    fn where_there_is_a_row_its_status_counts() {
        let live = |status| OrderState::of(OrderStatus::Written, &history(status, true, None));
        let words: Vec<&str> = [1, 2, 3, 5, 9].into_iter().map(|status| live(status).word()).collect();
        assert_eq!(words, ["confirmed", "paid", "used", "refunding", "contradictory"]);
        let ended = |status, by| OrderState::of(OrderStatus::Cancelled, &history(status, false, by));
        assert_eq!(ended(4, None), OrderState::Cancelled);
        assert_eq!(ended(4, Some(EventKind::Cancelled)), OrderState::Cancelled);
        assert_eq!(ended(4, Some(EventKind::Expired)), OrderState::Expired);
        assert_eq!(ended(5, Some(EventKind::Paid)), OrderState::Refunding);
        assert_eq!(ended(6, None), OrderState::Refunded);
    }

    #[test]
    fn without_a_row_the_place_counts() {
        let without = |status| OrderState::of(status, &History::default());
        assert_eq!(without(OrderStatus::Undelivered), OrderState::Waiting);
        assert_eq!(without(OrderStatus::Pending), OrderState::Waiting);
        assert_eq!(without(OrderStatus::Lost), OrderState::Unsure);
        for status in [OrderStatus::Refused, OrderStatus::Released, OrderStatus::Dead] {
            assert_eq!(without(status).word(), status.word());
            assert!(without(status).is_final());
        }
        assert_eq!(without(OrderStatus::Unknown), OrderState::Unknown);
    }

    #[test]
    fn a_late_payment_does_not_make_a_cancelled_order_one_that_was_sold() {
        for (status, has_slot, by, expected) in [
            (1, true, None, false),
            (5, true, Some(EventKind::Refunding), false),
            (6, false, Some(EventKind::Refunded), false),
            (4, false, None, true),
            (5, false, None, true),
        ] {
            assert_eq!(was_cancelled(&history(status, has_slot, by)), expected, "{status} {has_slot}");
        }
        let mut refunded = history(4, false, Some(EventKind::Cancelled));
        refunded.row = refunded.row.map(|row| Row { status: 6, ..row });
        assert!(was_cancelled(&refunded));
    }

    #[test]
    fn the_words_are_those_of_json() {
        for state in OrderState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
    }

    #[test]
    fn a_row_is_a_fact_by_its_slot_and_its_status() {
        assert_eq!(row_fact(&History::default()), RowFact::None);
        assert_eq!(row_fact(&history(1, true, None)), RowFact::Own(RowState::Live));
        assert_eq!(row_fact(&history(4, false, None)), RowFact::Own(RowState::Cancelled));
        assert_eq!(row_fact(&history(4, true, None)), RowFact::Own(RowState::Contradictory));
    }
}

//! What callers are told of orders and their events: entries of the results stream, which anybody may read.

use std::{borrow::Cow, fmt};

use tidegate_stream::EntryId;

use crate::{
    event::{EventKind, EventText},
    order::{OrderId, Quantity, UserId, VoucherId},
    traceparent::Traceparent,
};

/// The step of what became of an order's own entry. Its events have their own numbers, from 1.
pub const PLACED: i64 = 0;

/// The step of whatever was buried: it may be put back, and then everything that follows counts more.
pub const BURIED: i64 = -1;

/// The reason of a refund's result whose order stays where it is: it is about another payment, or the order was elsewhere.
pub const NOT_MOVED: &str = "not_moved";

/// How a reader has to treat a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Where the order is: of all states of an order, the one with the highest step counts.
    State,
    /// Something that happened beside the order's way, and has to be handled once: by order and entry.
    Fact,
}

impl ResultKind {
    /// The word in the field `kind`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Fact => "fact",
        }
    }
}

/// What became of an order, or of an event of it: an entry of the results stream. Published at least once, and possibly late
/// and in another order: `step` says which of two is the later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderResult {
    /// The order.
    pub order: OrderId,
    /// Its user; None: the entry did not say.
    pub user: Option<UserId>,
    /// Its voucher; None: the entry did not say.
    pub voucher: Option<VoucherId>,
    /// The units of the order, where the entry says so; of an event, those that it released.
    pub quantity: Option<Quantity>,
    /// What became of it.
    pub state: ResultState,
    /// The outside's own id of the event.
    pub reference: Option<EventText>,
    /// Why, in a word.
    pub reason: Option<Cow<'static, str>>,
    /// Grows with every event of the order; [`PLACED`] and [`BURIED`] come before them.
    pub step: i64,
    /// The entry that it became so by.
    pub entry: EntryId,
    /// When a worker found it so: Unix time in milliseconds.
    pub at_ms: u64,
    /// The trace that the entry belongs to.
    pub traceparent: Option<Traceparent>,
}

impl OrderResult {
    /// How a reader has to treat it.
    #[must_use]
    pub fn kind(&self) -> ResultKind {
        let is_fact = matches!(self.state, ResultState::RefundDue | ResultState::Rejected)
            || self.reason.as_deref() == Some(NOT_MOVED);
        if is_fact { ResultKind::Fact } else { ResultKind::State }
    }
}

/// What became of an order or of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResultState {
    /// The order is written.
    Confirmed,
    /// The order was refused, and released.
    Refused,
    /// The order's entry is a dead letter: people have to look at it.
    Dead,
    /// It is paid.
    Paid,
    /// It was cancelled.
    Cancelled,
    /// It was not paid in time.
    Expired,
    /// A payment that pays for nothing: it has to be refunded. Says nothing of where the order is.
    RefundDue,
    /// A payment is being refunded.
    Refunding,
    /// A payment was refunded.
    Refunded,
    /// A payment could not be refunded.
    RefundFailed,
    /// The goods were handed over.
    Used,
    /// An event was rejected or buried. Says nothing of where the order is.
    Rejected,
}

impl ResultState {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Confirmed,
        Self::Refused,
        Self::Dead,
        Self::Paid,
        Self::Cancelled,
        Self::Expired,
        Self::RefundDue,
        Self::Refunding,
        Self::Refunded,
        Self::RefundFailed,
        Self::Used,
        Self::Rejected,
    ];

    /// The word in the field `state`, in rows and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refused => "refused",
            Self::Dead => "dead",
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::RefundDue => "refund_due",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
            Self::RefundFailed => "refund_failed",
            Self::Used => "used",
            Self::Rejected => "rejected",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl From<EventKind> for ResultState {
    fn from(kind: EventKind) -> Self {
        match kind {
            EventKind::Paid => Self::Paid,
            EventKind::Cancelled => Self::Cancelled,
            EventKind::Used => Self::Used,
            EventKind::Refunding => Self::Refunding,
            EventKind::Refunded => Self::Refunded,
            EventKind::RefundFailed => Self::RefundFailed,
            EventKind::Expired => Self::Expired,
        }
    }
}

impl fmt::Display for ResultState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which results are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Published {
    /// None of them.
    None,
    /// What a caller who was told "admitted" does not expect.
    #[default]
    Exceptions,
    /// All of them.
    All,
}

impl Published {
    /// Whether results of this state are published.
    #[must_use]
    pub const fn includes(self, state: ResultState) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Exceptions => matches!(
                state,
                ResultState::Refused
                    | ResultState::Dead
                    | ResultState::Expired
                    | ResultState::RefundDue
                    | ResultState::Cancelled
                    | ResultState::Rejected
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_results_are_those_of_the_contract_and_of_events() {
        let words = ResultState::ALL.map(ResultState::word);
        let contract = [
            "confirmed",
            "refused",
            "dead",
            "paid",
            "cancelled",
            "expired",
            "refund_due",
            "refunding",
            "refunded",
            "refund_failed",
            "used",
            "rejected",
        ];
        assert_eq!(words, contract);
        for state in ResultState::ALL {
            assert_eq!(ResultState::from_word(state.word()), Some(state));
        }
        for kind in EventKind::ALL {
            assert_eq!(ResultState::from(kind).word(), kind.word());
        }
    }

    #[test]
    fn exceptions_are_what_a_caller_does_not_expect() {
        let included = |published: Published| {
            ResultState::ALL.into_iter().filter(|state| published.includes(*state)).collect::<Vec<_>>()
        };
        assert_eq!(included(Published::None), []);
        let words: Vec<_> = included(Published::Exceptions).into_iter().map(ResultState::word).collect();
        assert_eq!(words, ["refused", "dead", "cancelled", "expired", "refund_due", "rejected"]);
        assert_eq!(included(Published::All), ResultState::ALL);
    }
}

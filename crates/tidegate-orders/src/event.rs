//! Events: what happens to an order after it was placed. Events arrive as entries of the stream; `decide` says what
//! each of them does.

mod decide;
mod duplicates;
#[cfg(test)]
mod examples;
mod settled;

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::order::{OrderId, OrderIdentity, UserId, VoucherId};

pub use decide::{EventOutcome, EventRejection, History, PastEvent, Row, Step, decide, is_decided};

/// The words in a worker's heartbeat which say that the worker handles events. A worker of an older version does not
/// write these words, and moves events to the dead letters.
pub const KNOWS_EVENTS: &str = ", knows events";

/// The longest text of an event, in characters.
const MOST_CHARS: usize = 64;

/// An event of an order: something that happened to the order after it was placed, such as a payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The order that the event is about.
    pub order: OrderId,
    /// The user who placed the order. An event for another user than the order's is rejected.
    pub user: UserId,
    /// The voucher of the order. An event for another voucher than the order's is rejected.
    pub voucher: VoucherId,
    /// The id that the sender gave to the event, such as the id of a payment or a refund. Two events of one kind with
    /// the same id are the same event.
    pub reference: Option<EventText>,
    /// The reference of the payment that a refund event returns.
    pub payment: Option<EventText>,
    /// The reason that the sender gives for the event, in a word.
    pub reason: Option<EventText>,
}

/// The kind of an event: what can happen to an order, such as a payment or a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The order was paid.
    Paid,
    /// The buyer or the seller cancelled the order before it was paid.
    Cancelled,
    /// The goods were handed over.
    Used,
    /// A payment is being refunded.
    Refunding,
    /// A payment was refunded.
    Refunded,
    /// A refund of a payment failed.
    RefundFailed,
    /// The order was not paid in time.
    Expired,
}

/// An event that is to be appended to the stream, with the W3C trace context of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The event that the sender reports.
    pub event: Event,
    /// The trace context of the sender. `None` if the sender has none.
    pub traceparent: Option<String>,
}

impl From<Event> for NewEvent {
    fn from(event: Event) -> Self {
        Self { event, traceparent: None }
    }
}

impl Event {
    pub(crate) fn subject(&self) -> OrderIdentity {
        (self.order, self.user, self.voucher)
    }
}

impl EventKind {
    /// Whether an event of this kind reports a payment or a refund, or a failed refund.
    #[must_use]
    pub const fn is_about_money(self) -> bool {
        match self {
            Self::Paid | Self::Refunding | Self::Refunded | Self::RefundFailed => true,
            Self::Cancelled | Self::Used | Self::Expired => false,
        }
    }

    /// All kinds of events, always in the same sequence.
    pub const ALL: [Self; 7] = [
        Self::Paid,
        Self::Cancelled,
        Self::Used,
        Self::Refunding,
        Self::Refunded,
        Self::RefundFailed,
        Self::Expired,
    ];

    /// The word for this kind of event, as entries, rows, logs and metrics contain it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Used => "used",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
            Self::RefundFailed => "refund_failed",
            Self::Expired => "expired",
        }
    }

    /// Returns the kind of event for a word that [`EventKind::word`] has written.
    #[must_use]
    pub fn from_word(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word().as_bytes() == word)
    }

    /// Whether an event of this kind can end an order. An ended order takes no units of the stock.
    #[must_use]
    pub fn may_end_order(self) -> bool {
        !matches!(self, Self::Paid | Self::Used)
    }

    /// Whether an event of this kind is about a refund.
    #[must_use]
    pub fn is_refund(self) -> bool {
        matches!(self, Self::Refunding | Self::Refunded | Self::RefundFailed)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// A text in an event: 1 to 64 characters without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct EventText(String);

/// The reason why bytes are not a valid [`EventText`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// The text has no characters.
    #[error("is empty")]
    Empty,
    /// The text has more than 64 characters.
    #[error("is longer than {MOST_CHARS} characters")]
    TooLong,
    /// The bytes are not UTF-8, or hold control characters.
    #[error("is not printable text in UTF-8")]
    NotText,
}

impl EventText {
    /// Parses a text of an event from bytes.
    ///
    /// # Errors
    /// If it is empty, longer than 64 characters, or not printable.
    pub fn parse(text: &[u8]) -> Result<Self, BadText> {
        if text.is_empty() {
            return Err(BadText::Empty);
        }
        // A character has at most four bytes, so a longer text need not be decoded.
        if text.len() > 4 * MOST_CHARS {
            return Err(BadText::TooLong);
        }
        let text = str::from_utf8(text).map_err(|_| BadText::NotText)?;
        if text.chars().any(char::is_control) {
            return Err(BadText::NotText);
        }
        if text.chars().count() > MOST_CHARS {
            return Err(BadText::TooLong);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text of the event as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EventText {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for EventText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_events_are_those_of_the_contract() {
        let words = EventKind::ALL.map(EventKind::word);
        let contract = ["paid", "cancelled", "used", "refunding", "refunded", "refund_failed", "expired"];
        assert_eq!(words, contract);
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_word(kind.word().as_bytes()), Some(kind));
        }
        assert_eq!(EventKind::from_word(b"Paid"), None);
    }

    #[test]
    fn a_text_has_1_to_64_characters_that_can_be_shown() {
        let longest = "\u{e9}".repeat(64);
        assert_eq!(EventText::parse(longest.as_bytes()).unwrap().as_str(), longest);
        assert_eq!(EventText::parse("\u{e9}".repeat(65).as_bytes()), Err(BadText::TooLong));
        assert_eq!(EventText::parse(&[b'x'; 1000]), Err(BadText::TooLong));
        assert_eq!(EventText::parse(b""), Err(BadText::Empty));
        assert_eq!(EventText::parse(b"a\nb"), Err(BadText::NotText));
        assert_eq!(EventText::parse(b"\xff"), Err(BadText::NotText));
    }
}

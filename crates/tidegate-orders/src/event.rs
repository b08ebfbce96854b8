//! What happens to an order after it was placed: events, which come as entries of the stream, and what each of them does.

mod decide;
mod settled;

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::order::{OrderId, OrderIdentity, UserId, VoucherId};

pub use decide::{EventOutcome, EventRejection, History, PastEvent, Row, Step, decide, is_decided};

/// What the heartbeat of a worker says that handles events: an older one would bury them.
pub const KNOWS_EVENTS: &str = ", knows events";

/// Longest text of an event, in characters.
const MOST_CHARS: usize = 64;

/// Something that happened to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To which order.
    pub order: OrderId,
    /// Who bought. Must agree with the order.
    pub user: UserId,
    /// What was bought. Must agree with the order.
    pub voucher: VoucherId,
    /// The outside's own id of it, such as a payment's or a refund's: whatever comes with the same one is the same.
    pub reference: Option<EventText>,
    /// Of a refund: the reference of the payment that is refunded.
    pub payment: Option<EventText>,
    /// Why, in a word.
    pub reason: Option<EventText>,
}

/// What can happen to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// Somebody paid for it.
    Paid,
    /// The buyer or the seller wants it no more, before it was paid.
    Cancelled,
    /// The goods were handed over.
    Used,
    /// A payment is being refunded.
    Refunding,
    /// A payment was refunded.
    Refunded,
    /// A payment could not be refunded.
    RefundFailed,
    /// It was not paid in time.
    Expired,
}

impl Event {
    pub(crate) fn subject(&self) -> OrderIdentity {
        (self.order, self.user, self.voucher)
    }
}

impl EventKind {
    /// It says that money moved, or was to move.
    #[must_use]
    pub const fn is_about_money(self) -> bool {
        match self {
            Self::Paid | Self::Refunding | Self::Refunded | Self::RefundFailed => true,
            Self::Cancelled | Self::Used | Self::Expired => false,
        }
    }

    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Paid,
        Self::Cancelled,
        Self::Used,
        Self::Refunding,
        Self::Refunded,
        Self::RefundFailed,
        Self::Expired,
    ];

    /// The word in the field `event`, in rows, logs and metrics.
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

    /// Reads the word back.
    #[must_use]
    pub fn from_word(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word().as_bytes() == word)
    }

    /// An order may hold nothing any more after it.
    #[must_use]
    pub fn may_end_order(self) -> bool {
        !matches!(self, Self::Paid | Self::Used)
    }

    /// It is about money that goes back.
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

/// A text of an event: 1 to 64 characters, none of which is a control character.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct EventText(String);

/// Why something is no [`EventText`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// Nothing at all.
    #[error("is empty")]
    Empty,
    /// More than 64 characters.
    #[error("is longer than {MOST_CHARS} characters")]
    TooLong,
    /// Bytes that are no text, or characters that cannot be shown.
    #[error("is not printable text in UTF-8")]
    NotText,
}

impl EventText {
    /// Reads a text.
    ///
    /// # Errors
    /// When it is empty, longer than 64 characters, or not printable.
    pub fn parse(text: &[u8]) -> Result<Self, BadText> {
        if text.is_empty() {
            return Err(BadText::Empty);
        }
        // A character has at most four bytes: what is longer need not be read.
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

    /// The text.
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

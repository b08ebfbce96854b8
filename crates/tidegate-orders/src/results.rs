//! Results of orders and their events: entries of the results stream, which any program may read.

use std::{borrow::Cow, fmt};

use tidegate_stream::EntryId;

use crate::{
    event::{EventKind, EventText},
    order::{OrderId, Quantity, UserId, VoucherId},
    traceparent::Traceparent,
};

/// The step (sequence number) of the result of an order's own entry. The results of the order's events have the
/// sequence numbers of the events, from 1.
pub const PLACED: i64 = 0;

/// The step (sequence number) of the result of an entry that became a dead letter. If the entry is put back into the
/// stream, all later results have a higher step.
pub const BURIED: i64 = -1;

/// The reason in the result of a refund that does not change its order, because the refund is for another payment, or
/// the order had another status.
pub const NOT_MOVED: &str = "not_moved";

/// The kind of a result: the present state of the order, or a fact that does not change this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// The state of the order. If there are several results of this kind, the one with the highest step counts.
    State,
    /// A fact that does not change the state of the order. A reader must handle it once, by order and entry.
    Fact,
}

impl ResultKind {
    /// All kinds that a result can have.
    pub const ALL: [Self; 2] = [Self::State, Self::Fact];

    /// The word for this kind of result in the field `kind`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Fact => "fact",
        }
    }

    /// Returns the kind of a result for a word that [`ResultKind::word`] has written.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The kind of a result with this state and reason. Results of earlier versions do not name their kind.
    pub(crate) fn of(state: &str, reason: Option<&str>) -> Self {
        let is_fact = [ResultState::RefundDue, ResultState::Rejected].iter().any(|it| it.word() == state)
            || reason == Some(NOT_MOVED);
        if is_fact { Self::Fact } else { Self::State }
    }
}

/// The result of an order or of one of its events: an entry of the results stream. The result is published at least
/// once, possibly late and out of order. Of two results with different values of `step`, the result with the higher
/// `step` is the later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderResult {
    /// The order that the result is about.
    pub order: OrderId,
    /// The user of the order. `None` if the entry does not name the user.
    pub user: Option<UserId>,
    /// The voucher of the order. `None` if the entry does not name the voucher.
    pub voucher: Option<VoucherId>,
    /// For an order, the number of its units, if the entry states this number. For an event, the number of units that
    /// the event returned to the stock.
    pub quantity: Option<Quantity>,
    /// The state that the order or the event has reached.
    pub state: ResultState,
    /// The id that the sender gave to the event. It is missing in the result of an order.
    pub reference: Option<EventText>,
    /// The reason for the state, in a word.
    pub reason: Option<Cow<'static, str>>,
    /// The sequence number of the result among the results of the order. The number grows with every event. [`PLACED`]
    /// and [`BURIED`] are lower than the numbers of events.
    pub step: i64,
    /// The id of the stream entry that led to this result.
    pub entry: EntryId,
    /// The time at which a worker decided the result, in Unix milliseconds.
    pub at_ms: u64,
    /// The W3C trace context of the entry.
    pub traceparent: Option<Traceparent>,
}

impl OrderResult {
    /// The kind of this result, which says how a reader must treat it.
    #[must_use]
    pub fn kind(&self) -> ResultKind {
        ResultKind::of(self.state.word(), self.reason.as_deref())
    }
}

/// A result as a reader finds it in the results stream. A later version may have published it, so its state and its kind
/// may be words that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedResult {
    /// The order that the result is about.
    pub order: OrderId,
    /// The word for the state that the order or the event has reached.
    pub state: String,
    /// The word for the kind of the result, by the program that published it.
    pub kind: String,
    /// The id that the sender gave to the event. It is missing in the result of an order.
    pub reference: Option<String>,
    /// The sequence number of the result among the results of the order.
    pub step: i64,
    /// The id of the stream entry that led to this result.
    pub entry: EntryId,
    /// The result as JSON, in one line. The members have the names of the entry's fields. Ids are texts, because they are
    /// above 2^53.
    pub json: Box<str>,
}

/// The state in a result, which says what became of an order or of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResultState {
    /// The order is written to MySQL.
    Confirmed,
    /// The order was refused and released.
    Refused,
    /// The order's entry is a dead letter, which an operator must handle.
    Dead,
    /// The order has been paid.
    Paid,
    /// The order was cancelled, by an event or by another program.
    Cancelled,
    /// The order was not paid in time.
    Expired,
    /// A payment must be refunded, because no order needs it. This result does not change the state of the order.
    RefundDue,
    /// A payment is being refunded.
    Refunding,
    /// A payment was refunded.
    Refunded,
    /// A refund of a payment failed.
    RefundFailed,
    /// The goods were handed over.
    Used,
    /// An event was rejected or buried. This result does not change the state of the order.
    Rejected,
}

impl ResultState {
    /// All states that a result can have.
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

    /// The word for this state of a result, as results, rows and metrics contain it.
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

    /// Returns the state of a result for a word that [`ResultState::word`] has written.
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

/// The setting that selects which results are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Published {
    /// No results are published.
    None,
    /// The results that a caller does not expect after an admission.
    #[default]
    Exceptions,
    /// All results are published.
    All,
}

impl Published {
    /// All values of the setting.
    pub const ALL: [Self; 3] = [Self::None, Self::Exceptions, Self::All];

    /// The word for this value of the setting `results.publish`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exceptions => "exceptions",
            Self::All => "all",
        }
    }

    /// Whether the setting selects results with the given state.
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

/// The results that a reader wants, by the words of their states and kinds. Without words, it wants all results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultFilter {
    words: Vec<&'static str>,
}

impl ResultFilter {
    /// Parses a list of words: states of results, `state` and `fact`.
    ///
    /// # Errors
    /// If a word is unknown, or if `published` says that workers do not publish such results. The text names the word.
    /// It continues a sentence that begins with the name of the list.
    pub fn parse<T: AsRef<str>>(
        words: impl IntoIterator<Item = T>,
        published: Published,
    ) -> Result<Self, String> {
        let word = |text: T| {
            let text = text.as_ref();
            let (kind, state) = (ResultKind::from_word(text), ResultState::from_word(text));
            let Some(word) = kind.map(ResultKind::word).or(state.map(ResultState::word)) else {
                let states = ResultState::ALL.map(ResultState::word).join(", ");
                return Err(format!("has the unknown word {text:?}; the words are: state, fact, {states}"));
            };
            if ResultState::ALL.iter().any(|it| state.is_none_or(|own| own == *it) && published.includes(*it))
            {
                return Ok(word);
            }
            Err(format!(
                "has the word \"{word}\", but workers do not publish such results, because results.publish is \
                 \"{}\": set results.publish to \"all\", or remove \"{word}\"",
                published.word()
            ))
        };
        Ok(Self { words: words.into_iter().map(word).collect::<Result<_, _>>()? })
    }

    /// Whether the reader wants a result with this state and this kind.
    #[must_use]
    pub fn includes(&self, state: &str, kind: &str) -> bool {
        self.is_all() || self.words.iter().any(|word| [state, kind].contains(word))
    }

    /// Whether the reader wants all results.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.words.is_empty()
    }

    /// The words of the list. An empty list means all results.
    #[must_use]
    pub fn words(&self) -> &[&'static str] {
        &self.words
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

    #[test]
    fn a_filter_has_known_words_of_results_that_are_published() {
        let parse = |words: &[&str], published| ResultFilter::parse(words, published);
        let filter = parse(&["paid", "state", "fact"], Published::All).unwrap();
        assert_eq!((filter.words(), filter.is_all()), (&["paid", "state", "fact"][..], false));
        assert!(parse(&["refund_due", "fact"], Published::Exceptions).is_ok());
        for published in Published::ALL {
            assert!(parse(&[], published).unwrap().is_all());
        }
        for (word, published, why) in [
            ("paid", Published::Exceptions, "has the word \"paid\", but workers do not publish such results"),
            ("paid", Published::Exceptions, "because results.publish is \"exceptions\""),
            ("fact", Published::None, "because results.publish is \"none\""),
            (
                "payed",
                Published::All,
                "the unknown word \"payed\"; the words are: state, fact, confirmed, refused,",
            ),
        ] {
            let error = parse(&[word], published).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}

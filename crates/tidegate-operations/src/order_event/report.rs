//! The events that were appended, and their outcomes.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};
use tidegate_orders::{
    EventKind, OrderId,
    event::{EventOutcome, EventRejection, EventText, History},
    records::{EventRow, StatusChange},
};
use tidegate_stream::EntryId;

use super::{OrderEventPlan, OrderEventRequest};
use crate::change::{Ending, Report};

/// The report about appended order events.
#[derive(Clone, Debug, Serialize)]
pub struct OrderEventReport {
    /// The kind that all events of the command have, such as `paid`.
    pub event: EventKind,
    /// The events of this command, one event for each order of the request.
    pub orders: Vec<SentEvent>,
    /// Whether a living worker reads the stream. None: this was not checked, because all events are recorded.
    pub workers_live: Option<bool>,
    /// The request that this report answers.
    #[serde(skip)]
    pub request: OrderEventRequest,
}

/// An event that this command appended or tried to append.
#[derive(Clone, Debug, Serialize)]
pub struct SentEvent {
    /// The line number in the file that names the order; None: the order does not come from a file.
    pub line: Option<u64>,
    /// The order that the event is about.
    pub order: OrderId,
    /// The id (`ref`) that the sender gave to the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
    /// The id of the stream entry that holds the event; None: it is unknown whether the event is in the stream.
    pub entry: Option<EntryId>,
    /// The outcome of the event so far.
    #[serde(rename = "outcome")]
    pub fate: SentEventOutcome,
    /// The reason why a worker rejected the event; None: the event was not rejected.
    #[serde(rename = "reason", serialize_with = "as_word")]
    pub rejection: Option<EventRejection>,
    /// The change of the order's status by the event, and the number of units that returned to the stock.
    #[serde(flatten)]
    pub moved: StatusChange,
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn as_word<S: Serializer>(rejection: &Option<EventRejection>, serializer: S) -> Result<S::Ok, S::Error> {
    rejection.map(EventRejection::word).serialize(serializer)
}

/// The outcome of an order event that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SentEventOutcome {
    /// The event is not in the stream.
    NotAppended,
    /// It is unknown whether the event is in the stream: Redis did not confirm it.
    Unknown,
    /// The event is in the stream, and is not recorded yet.
    NotRecorded,
    /// The event changed the order.
    Applied,
    /// The order already had this status.
    Unchanged,
    /// The event is a payment that has to be refunded, or the same payment again.
    RefundDue,
    /// The order cannot take this step.
    Rejected,
}

impl SentEventOutcome {
    /// All possible outcomes of an order event.
    pub const ALL: [Self; 7] = [
        Self::Applied,
        Self::Unchanged,
        Self::RefundDue,
        Self::Rejected,
        Self::NotRecorded,
        Self::Unknown,
        Self::NotAppended,
    ];

    /// Returns whether the outcome of the event is not known yet.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::NotAppended | Self::Unknown | Self::NotRecorded)
    }

    /// Returns the word that stands for the event's outcome in logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NotAppended => "not_appended",
            Self::Unknown => "unknown",
            Self::NotRecorded => "not_recorded",
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::RefundDue => "refund_due",
            Self::Rejected => "rejected",
        }
    }
}

impl OrderEventReport {
    /// Creates a report in which no event is appended yet.
    #[must_use]
    pub fn new(plan: &OrderEventPlan, request: OrderEventRequest) -> Self {
        let orders = plan.orders.iter().map(|planned| SentEvent {
            line: planned.line,
            reference: planned.reference.clone(),
            ..SentEvent::new(planned.order)
        });
        Self { event: plan.event, orders: orders.collect(), workers_live: None, request }
    }

    /// Counts the events of the report that have this outcome.
    #[must_use]
    pub fn count(&self, fate: SentEventOutcome) -> usize {
        self.with_fate(fate).count()
    }

    /// Returns the events of the report that have this outcome.
    pub fn with_fate(&self, fate: SentEventOutcome) -> impl Iterator<Item = &SentEvent> {
        self.orders.iter().filter(move |sent| sent.fate == fate)
    }

    /// Returns the first event that may be missing in the stream. A new attempt begins with this event.
    #[must_use]
    pub fn first_to_append(&self) -> Option<&SentEvent> {
        self.orders
            .iter()
            .find(|sent| matches!(sent.fate, SentEventOutcome::NotAppended | SentEventOutcome::Unknown))
    }
}

impl SentEvent {
    /// Creates the record of an event that is not appended yet.
    pub(crate) fn new(order: OrderId) -> Self {
        Self {
            line: None,
            order,
            reference: None,
            entry: None,
            fate: SentEventOutcome::NotAppended,
            rejection: None,
            moved: StatusChange::default(),
        }
    }

    /// Notes that workers have recorded the event: `row` is one of these events of its order.
    pub(super) fn record(&mut self, row: &EventRow, history: &History) {
        self.fate = match history.outcome_of_entry(&row.past_event()) {
            EventOutcome::Applied => SentEventOutcome::Applied,
            EventOutcome::Unchanged => SentEventOutcome::Unchanged,
            EventOutcome::RefundDue => SentEventOutcome::RefundDue,
            EventOutcome::Rejected(rejection) => {
                self.rejection = Some(rejection);
                SentEventOutcome::Rejected
            }
        };
        self.moved = row.moved;
    }
}

impl Report for OrderEventReport {
    fn counts(&self) -> Json {
        let count = |fate: SentEventOutcome| (fate.word().to_owned(), self.count(fate).into());
        Json::Object(SentEventOutcome::ALL.into_iter().map(count).collect::<Map<_, _>>())
    }

    fn ending(&self) -> Ending {
        let not_done = self.count(SentEventOutcome::Rejected) + self.count(SentEventOutcome::RefundDue);
        match (self.count(SentEventOutcome::NotRecorded), not_done) {
            (0, 0) => Ending::Done,
            (0, _) => Ending::Refused,
            _ => Ending::Left,
        }
    }

    fn torn(&self) -> &'static str {
        "events whose outcome is unknown may or may not be in the stream"
    }
}

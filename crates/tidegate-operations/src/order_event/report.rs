//! What was appended, and what came of it.

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

/// What was appended, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct OrderEventReport {
    /// What happened.
    pub event: EventKind,
    /// One for each order that was named.
    pub orders: Vec<SentEvent>,
    /// A living worker reads the stream. None: nobody looked, because nothing had to be waited for in vain.
    pub workers_live: Option<bool>,
    /// What was asked for.
    #[serde(skip)]
    pub request: OrderEventRequest,
}

/// An event of this command.
#[derive(Clone, Debug, Serialize)]
pub struct SentEvent {
    /// The line of the file that names the order.
    pub line: Option<u64>,
    /// The order.
    pub order: OrderId,
    /// Its `ref`.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
    /// The entry that it is, where it is known to be one.
    pub entry: Option<EntryId>,
    /// What became of it.
    #[serde(rename = "outcome")]
    pub fate: EventFate,
    /// Why it was rejected.
    #[serde(rename = "reason", serialize_with = "as_word")]
    pub rejection: Option<EventRejection>,
    /// The change of its status, and the units that it released.
    #[serde(flatten)]
    pub moved: StatusChange,
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn as_word<S: Serializer>(rejection: &Option<EventRejection>, serializer: S) -> Result<S::Ok, S::Error> {
    rejection.map(EventRejection::word).serialize(serializer)
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventFate {
    /// It is not in the stream.
    NotAppended,
    /// Redis was asked to append it, and did not say whether it has.
    Unknown,
    /// It is in the stream, and not recorded yet.
    NotRecorded,
    /// It is done.
    Applied,
    /// The order was there already.
    Unchanged,
    /// It is a payment that has to be refunded, or the same payment again.
    RefundDue,
    /// The order cannot take this step.
    Rejected,
}

impl EventFate {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Applied,
        Self::Unchanged,
        Self::RefundDue,
        Self::Rejected,
        Self::NotRecorded,
        Self::Unknown,
        Self::NotAppended,
    ];

    /// Nobody knows yet what comes of it.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::NotAppended | Self::Unknown | Self::NotRecorded)
    }

    /// The word for it in logs.
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
    /// Nothing is appended yet.
    #[must_use]
    pub fn new(plan: &OrderEventPlan, request: OrderEventRequest) -> Self {
        let orders = plan.orders.iter().map(|planned| SentEvent {
            line: planned.line,
            reference: planned.reference.clone(),
            ..SentEvent::new(planned.order)
        });
        Self { event: plan.event, orders: orders.collect(), workers_live: None, request }
    }

    /// How many have this fate.
    #[must_use]
    pub fn count(&self, fate: EventFate) -> usize {
        self.with_fate(fate).count()
    }

    /// Those with this fate.
    pub fn with_fate(&self, fate: EventFate) -> impl Iterator<Item = &SentEvent> {
        self.orders.iter().filter(move |sent| sent.fate == fate)
    }

    /// The first that may not be in the stream.
    #[must_use]
    pub fn first_to_append(&self) -> Option<&SentEvent> {
        self.orders.iter().find(|sent| matches!(sent.fate, EventFate::NotAppended | EventFate::Unknown))
    }
}

impl SentEvent {
    /// Nothing is appended yet.
    pub(crate) fn new(order: OrderId) -> Self {
        Self {
            line: None,
            order,
            reference: None,
            entry: None,
            fate: EventFate::NotAppended,
            rejection: None,
            moved: StatusChange::default(),
        }
    }

    /// Workers have recorded it: `row` is one of these events of its order.
    pub(super) fn record(&mut self, row: &EventRow, history: &History) {
        self.fate = match history.told_outcome(&row.past_event()) {
            EventOutcome::Applied => EventFate::Applied,
            EventOutcome::Unchanged => EventFate::Unchanged,
            EventOutcome::RefundDue => EventFate::RefundDue,
            EventOutcome::Rejected(rejection) => {
                self.rejection = Some(rejection);
                EventFate::Rejected
            }
        };
        self.moved = row.moved;
    }
}

impl Report for OrderEventReport {
    fn counts(&self) -> Json {
        let count = |fate: EventFate| (fate.word().to_owned(), self.count(fate).into());
        Json::Object(EventFate::ALL.into_iter().map(count).collect::<Map<_, _>>())
    }

    fn ending(&self) -> Ending {
        let not_done = self.count(EventFate::Rejected) + self.count(EventFate::RefundDue);
        match (self.count(EventFate::NotRecorded), not_done) {
            (0, 0) => Ending::Done,
            (0, _) => Ending::Refused,
            _ => Ending::Left,
        }
    }

    fn torn(&self) -> &'static str {
        "events that are called unknown may be in the stream or not"
    }
}

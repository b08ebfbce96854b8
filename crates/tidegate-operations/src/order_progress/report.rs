//! The progress of an order as it is shown to its caller. The functions are pure.

use serde::{Serialize, Serializer};
use tidegate_orders::{
    EventKind, OrderFacts, OrderId, OrderState, UserId, VoucherId,
    event::{EventOutcome, EventText, History, PastEvent},
    order_state::{row_fact, was_cancelled},
    records::{EntryContent, RefusalRow},
};
use tidegate_stream::EntryId;

use super::{QueueEstimate, WatchedOrder};
use crate::order_show::{OrderQuery, OrderRecords};

/// The progress of an order from its admission to its end. In JSON, ids are strings, and times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderProgress {
    /// The id of the order.
    #[serde(rename = "orderId")]
    pub order: OrderId,
    /// The state of the order, in one word.
    pub state: OrderState,
    /// The number of the order's last event; 0: the order has no event yet. For one order, this number never decreases.
    pub step: u32,
    /// Whether the order was ever cancelled or expired. A later payment for such an order must be refunded.
    pub was_cancelled: bool,
    /// The user of the order; None: no store has the order.
    #[serde(rename = "userId")]
    pub user: Option<UserId>,
    /// The voucher of the order; None: no store has the order.
    #[serde(rename = "voucherId")]
    pub voucher: Option<VoucherId>,
    /// The number of units of the order; None: no store has the order.
    pub quantity: Option<i64>,
    /// The reason why the order was refused, buried, cancelled or refunded, in one word.
    pub reason: Option<String>,
    /// The events of the order since it was placed, including rejected events.
    pub events: Vec<ProgressEvent>,
    /// The payments that still have to be refunded.
    pub refunds_due: Vec<PaymentDue>,
    /// The estimate of when a worker writes the order; None: the order is not waiting.
    pub estimate: Option<QueueEstimate>,
    /// Whether the search stopped before it was certain that no store has the order. If the caller gives the voucher,
    /// the search covers more.
    pub cut_off: bool,
}

/// An event of an order, such as a payment: one row of the table `tidegate_event`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgressEvent {
    /// The number of the event within its order, counted from 1.
    pub step: u32,
    /// The kind of the event; None: a newer version of Tidegate wrote an unknown kind.
    pub event: Option<EventKind>,
    /// The outcome of the event: `applied`, `unchanged`, `refund_due`, or the reason of a rejection.
    #[serde(serialize_with = "as_word")]
    pub outcome: EventOutcome,
    /// The id (`ref`) that the sender gave to the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
    /// The id (`ref`) of the payment to refund; None: the event is not a refund.
    pub payment: Option<EventText>,
    /// The reason that the sender of the event gave, in one word.
    pub reason: Option<EventText>,
    /// The time when a worker recorded the event, in Unix milliseconds.
    #[serde(rename = "at")]
    pub at_ms: Option<i64>,
    /// The id of the stream entry that brought the event.
    pub entry: EntryId,
}

/// A payment that has to be refunded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaymentDue {
    /// The number of the payment event within its order.
    pub step: u32,
    /// The id (`ref`) that the payment service gave to the payment.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

/// The facts that one read has found about an order.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub history: History,
    pub refusal: Option<RefusalRow>,
    /// The records of the order in Redis, which are read if MySQL does not know the order.
    pub records: OrderRecords,
    pub estimate: Option<QueueEstimate>,
    pub is_cut_off: bool,
}

fn as_word<S: Serializer>(outcome: &EventOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.word())
}

impl OrderProgress {
    pub(super) fn of(watched: &WatchedOrder, found: Found) -> Self {
        let Found { history, refusal, records, estimate, is_cut_off } = found;
        let facts = OrderFacts {
            row: row_fact(&history),
            is_refused: history.refused.is_some(),
            is_mysql_read: true,
            ..records.facts()
        };
        let state = OrderState::of(facts.status(), &history);
        let (user, voucher) = owner(watched, &history, &records).unwrap_or_default();
        Self {
            order: watched.order(),
            state,
            step: history.events.last().map_or(0, |past| past.number),
            was_cancelled: was_cancelled(&history),
            user,
            voucher,
            quantity: quantity(&history, refusal.as_ref(), &records),
            reason: reason(state, &history, refusal, &records),
            events: history.events.iter().map(|past| ProgressEvent::of(past, &history)).collect(),
            refunds_due: history.payments_due().map(PaymentDue::of).collect(),
            estimate: estimate.filter(|_| state == OrderState::Waiting),
            cut_off: is_cut_off && matches!(state, OrderState::Unknown | OrderState::Unsure),
        }
    }

    /// Creates the progress of an order that no store has.
    #[must_use]
    pub fn unknown(order: OrderId) -> Self {
        Self::of(&WatchedOrder::new(order, None), Found::default())
    }

    /// Returns the outcome of the event that this entry brought, as its sender is told (see
    /// [`History::outcome_of_reference`]). None: no worker has recorded the event yet.
    #[must_use]
    pub fn outcome_of(&self, entry: EntryId) -> Option<EventOutcome> {
        let at = self.events.iter().position(|event| event.entry == entry)?;
        let events = self.events.iter().map(ProgressEvent::past_event).collect();
        let history = History { events, ..History::default() };
        Some(history.outcome_of_reference(&history.events[at]))
    }

    /// Returns whether the order can no longer change, and no payment of the order still has to be refunded.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.state.is_final() && self.refunds_due.is_empty()
    }

    /// Returns whether this progress has the same state and the same events as `before`. If so, a caller that knows
    /// `before` needs no update.
    #[must_use]
    pub fn is_same_as(&self, before: &Self) -> bool {
        (self.state, self.step) == (before.state, before.step)
    }
}

impl ProgressEvent {
    fn of(past: &PastEvent, history: &History) -> Self {
        let PastEvent { reference, payment, reason, .. } = past.clone();
        let (step, event, outcome) = (past.number, past.kind, past.outcome);
        let at_ms = history.recorded_ms.get(&step).copied();
        Self { step, event, outcome, reference, payment, reason, at_ms, entry: past.entry }
    }

    /// The event for the rules of repeated events. These do not ask what the event changed, which is not known here.
    fn past_event(&self) -> PastEvent {
        let Self { reference, payment, reason, .. } = self.clone();
        let (number, kind, outcome, entry) = (self.step, self.event, self.outcome, self.entry);
        PastEvent { number, kind, reference, payment, reason, outcome, step: None, released: 0, entry }
    }
}

impl PaymentDue {
    fn of(past: &PastEvent) -> Self {
        Self { step: past.number, reference: past.reference.clone() }
    }
}

type Owner = (Option<UserId>, Option<VoucherId>);

/// Returns the user and the voucher of the order: from MySQL, otherwise from Redis.
fn owner(watched: &WatchedOrder, history: &History, records: &OrderRecords) -> Option<Owner> {
    if let Some((user, voucher)) = history.row.map(|row| (row.user, row.voucher)).or(history.refused) {
        return Some((user.try_into().ok(), voucher.try_into().ok()));
    }
    let query = OrderQuery { order: watched.order(), voucher: None, user: None, entry: None, budget: 0 };
    let noted = records.journal.first().map(|note| note.voucher);
    Some((records.user(&query), noted.or_else(|| contents(records).find_map(|content| content.voucher))))
}

fn quantity(history: &History, refusal: Option<&RefusalRow>, records: &OrderRecords) -> Option<i64> {
    let row = history.row.map(|row| row.quantity).or(refusal.map(|refusal| refusal.quantity));
    let noted = records.journal.iter().filter(|note| note.is_admission()).find_map(|note| note.change);
    row.or(noted.map(|change| -change)).or_else(|| contents(records).map(|content| content.quantity).next())
}

fn contents(records: &OrderRecords) -> impl Iterator<Item = &EntryContent> {
    let entries = records.entries.iter().filter_map(|entry| entry.content.as_ref());
    entries.chain(records.letters.iter().map(|letter| &letter.content))
}

fn reason(
    state: OrderState,
    history: &History,
    refusal: Option<RefusalRow>,
    records: &OrderRecords,
) -> Option<String> {
    match state {
        OrderState::Refused => refusal.map(|refusal| refusal.reason),
        OrderState::Dead => records.letters.first()?.reason.clone(),
        OrderState::Cancelled | OrderState::Expired | OrderState::Refunding | OrderState::Refunded => {
            let mut steps = history.events.iter().rev().filter(|past| past.step.is_some());
            Some(steps.next()?.reason.as_ref()?.to_string())
        }
        _ => None,
    }
}

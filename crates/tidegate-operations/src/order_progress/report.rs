//! What is told of an order to whoever waits for it. Pure.

use serde::{Serialize, Serializer};
use tidegate_orders::{
    EventKind, OrderFacts, OrderId, OrderState, UserId, VoucherId,
    event::{EventOutcome, EventText, History, PastEvent},
    order_state::{row_fact, was_cancelled},
    records::{EntryContent, RefusalRow},
};

use super::{QueueEstimate, WatchedOrder};
use crate::order_show::{OrderQuery, OrderRecords};

/// What is told of an order. Ids are strings in JSON, times Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderProgress {
    /// The order.
    pub order: OrderId,
    /// Where it is, in a word.
    pub state: OrderState,
    /// The number of its last event, 0 before the first. It only grows.
    pub step: u32,
    /// It was cancelled, or has expired, at some time: what was paid for it since goes back.
    pub was_cancelled: bool,
    /// Who bought, where anything tells.
    pub user: Option<UserId>,
    /// What was bought.
    pub voucher: Option<VoucherId>,
    /// How many units.
    pub quantity: Option<i64>,
    /// Why it was refused, buried, cancelled or refunded, in a word.
    pub reason: Option<String>,
    /// What happened to it since it was placed, rejected events included.
    pub events: Vec<ProgressEvent>,
    /// Payments that have to be refunded, and are not yet.
    pub refunds_due: Vec<PaymentDue>,
    /// While it waits: a guess when it is written.
    pub estimate: Option<QueueEstimate>,
    /// Nothing, or not enough, was found of it, and not all was looked through: its voucher would tell more.
    pub cut_off: bool,
}

/// Something that happened to an order: a row of `tidegate_event`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgressEvent {
    /// Which of its events, from 1.
    pub step: u32,
    /// What happened; None: a newer version knows.
    pub event: Option<EventKind>,
    /// `applied`, `unchanged`, `refund_due`, or why it was rejected.
    #[serde(serialize_with = "as_word")]
    pub outcome: EventOutcome,
    /// The outside's own id of it.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
    /// Of a refund: the `ref` of the payment that is refunded.
    pub payment: Option<EventText>,
    /// Why, in a word of the sender.
    pub reason: Option<EventText>,
    /// When it was recorded.
    pub at_ms: Option<i64>,
}

/// A payment that has to be refunded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaymentDue {
    /// Which of the order's events it is.
    pub step: u32,
    /// Its `ref`.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

/// What a look has found of an order.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub history: History,
    pub refusal: Option<RefusalRow>,
    /// What Redis holds of it, where MySQL knows nothing.
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

    /// Nothing more is to come of it for its caller, and no payment of it is without a home.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.state.is_final() && self.refunds_due.is_empty()
    }

    /// Whoever has been told of `before` need not be told of this: neither state nor events have changed.
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
        Self { step, event, outcome, reference, payment, reason, at_ms }
    }
}

impl PaymentDue {
    fn of(past: &PastEvent) -> Self {
        Self { step: past.number, reference: past.reference.clone() }
    }
}

type Owner = (Option<UserId>, Option<VoucherId>);

/// By MySQL, or else by what Redis holds.
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

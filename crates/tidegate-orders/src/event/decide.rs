//! Decides what an event does to an order: a pure decision over the order's row and its earlier events.
//!
//! ```text
//! placed -> 1 unpaid - paid -> 2 paid - used -> 3 used
//!              | cancelled, expired  | ^ refund_failed
//!              v           refunding v |
//!           4 cancelled - paid ->  5 refunding - refunded -> 6 refunded
//! ```
//!
//! A step that takes the slot away also returns the units; no other step does. If another program or an operator sets a
//! status, that is the order's status: no step is undone, and nothing is released for it.

use std::collections::BTreeMap;

use tidegate_stream::EntryId;

use super::{Event, EventKind, EventText};
use crate::row_state::status::{CANCELLED, PAID, REFUNDED, REFUNDING, UNPAID, USED};

/// The outcome of an event: whether and how the event changed its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The event is applied: the order has moved, or need not move for it.
    Applied,
    /// The order had that status already, by the same event or in another way.
    Unchanged,
    /// The payment pays for nothing, so it must be refunded.
    RefundDue,
    /// The order cannot take this step, for this reason.
    Rejected(EventRejection),
}

/// The reason why an event was rejected: the order does not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventRejection {
    /// The order belongs to another user, or to another voucher.
    WrongOwner,
    /// No order with this id exists.
    NoOrder,
    /// The order was refused, so it holds nothing.
    Refused,
    /// The order is not paid yet.
    NotPaid,
    /// The order is paid; only a refund ends it.
    Paid,
    /// The order is used already.
    Used,
    /// The order is cancelled already.
    Cancelled,
    /// The order's payment is being refunded.
    Refunding,
    /// The order's payment was refunded.
    Refunded,
    /// The order was paid more than once, and the event does not name the payment that it is about.
    PaymentNeeded,
    /// No payment of this order has the reference that the event names.
    NoSuchPayment,
    /// The status and the slot of the order contradict each other, or the status is unknown to Tidegate: another
    /// program or an operator changed the row.
    ChangedElsewhere,
}

impl EventRejection {
    /// All reasons why an event can be rejected.
    pub const ALL: [Self; 12] = [
        Self::WrongOwner,
        Self::NoOrder,
        Self::Refused,
        Self::NotPaid,
        Self::Paid,
        Self::Used,
        Self::Cancelled,
        Self::Refunding,
        Self::Refunded,
        Self::PaymentNeeded,
        Self::NoSuchPayment,
        Self::ChangedElsewhere,
    ];

    /// The word for this rejection in rows and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::WrongOwner => "wrong_owner",
            Self::NoOrder => "no_order",
            Self::Refused => "refused",
            Self::NotPaid => "not_paid",
            Self::Paid => "paid",
            Self::Used => "used",
            Self::Cancelled => "cancelled",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
            Self::PaymentNeeded => "payment_needed",
            Self::NoSuchPayment => "no_such_payment",
            Self::ChangedElsewhere => "changed_elsewhere",
        }
    }
}

const APPLIED: &str = "applied";
const UNCHANGED: &str = "unchanged";
const REFUND_DUE: &str = "refund_due";

impl EventOutcome {
    /// The word for this outcome of an event in rows, logs and metrics: `applied`, `unchanged`, `refund_due`, or the
    /// reason for the rejection.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Applied => APPLIED,
            Self::Unchanged => UNCHANGED,
            Self::RefundDue => REFUND_DUE,
            Self::Rejected(rejection) => rejection.word(),
        }
    }

    /// Returns the outcome of an event for a word that [`EventOutcome::word`] has written. An unknown word, from a
    /// newer version, becomes a rejection.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        match word {
            APPLIED => Self::Applied,
            UNCHANGED => Self::Unchanged,
            REFUND_DUE => Self::RefundDue,
            other => Self::Rejected(
                EventRejection::ALL
                    .into_iter()
                    .find(|rejection| rejection.word() == other)
                    .unwrap_or(EventRejection::ChangedElsewhere),
            ),
        }
    }
}

/// The columns of an order's row that are needed to decide an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The id of the user, as the order's row has it.
    pub user: i64,
    /// The id of the voucher, as the order's row has it.
    pub voucher: i64,
    /// The number of units in the order.
    pub quantity: i64,
    /// The status number of the order. 1 if the column is NULL.
    pub status: i64,
    /// Whether the order has a slot, the number that keeps its user from a second order. An order with a slot also
    /// takes units of the stock.
    pub has_slot: bool,
}

/// A change of an order's status, from one number to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The status number of the order before the change. `None` if the order had no row.
    pub from: Option<i64>,
    /// The status number of the order after the change.
    pub to: i64,
}

/// An event that was decided earlier: a row of the table `tidegate_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastEvent {
    /// The sequence number of the event among the events of its order, from 1.
    pub number: u32,
    /// The kind of the event. `None` if only a newer version of Tidegate knows the kind.
    pub kind: Option<EventKind>,
    /// The id that the sender gave to the event.
    pub reference: Option<EventText>,
    /// The reference of the payment that a refund event returns: the payment that the event names, or else the order's
    /// only payment.
    pub payment: Option<EventText>,
    /// The reason that the sender gave for the event, in a word.
    pub reason: Option<EventText>,
    /// The outcome of the event.
    pub outcome: EventOutcome,
    /// The change of the order's status by the event.
    pub step: Option<Step>,
    /// The number of units that the event returned to the stock. 0 if the event did not end an order that took units.
    pub released: i64,
    /// The id of the stream entry that brought the event.
    pub entry: EntryId,
}

impl PastEvent {
    /// Whether this entry brought the event, so that its outcome is decided already.
    pub(crate) fn is_of(&self, kind: EventKind, entry: EntryId) -> bool {
        is_decided((self.kind, self.entry), kind, entry)
    }

    /// Whether the event ended the order. If the order's own entry comes later, the worker finds the order already
    /// ended.
    #[must_use]
    pub fn has_ended_order(&self) -> bool {
        self.step.is_some_and(|step| matches!(step.to, CANCELLED | REFUNDED))
    }

    /// Whether the event came before the entry of its order, and therefore prevented the order from being written.
    #[must_use]
    pub fn came_before_order(&self) -> bool {
        self.step.is_some_and(|step| step.from.is_none())
    }

    /// Whether the event is a payment that the order counts as its own. Either it moved the order, or another program
    /// had moved the order for it.
    pub(super) fn is_own_payment(&self) -> bool {
        self.kind == Some(EventKind::Paid) && (self.outcome == EventOutcome::Applied || self.step.is_some())
    }

    fn is_payment(&self) -> bool {
        let is_money = matches!(self.outcome, EventOutcome::Applied | EventOutcome::RefundDue);
        self.kind == Some(EventKind::Paid) && is_money
    }
}

/// The rows and events of an order that MySQL and Redis know before the next event of the order is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The row of the order in `tb_voucher_order`.
    pub row: Option<Row>,
    /// The time at which another program wrote the order's row, in Unix milliseconds by MySQL's clock. `None` if the
    /// row names the stream entry that it came from, or has no creation time.
    pub written_by_another_ms: Option<i64>,
    /// The user and the voucher in the row which says that the order was refused. `None` if the order was not refused.
    pub refused: Option<(i64, i64)>,
    /// Whether the note of the order in Redis names another user or voucher than the event that is decided next.
    pub is_of_another: bool,
    /// The events of the order so far, sorted by their sequence numbers.
    pub events: Vec<PastEvent>,
    /// For each sequence number of an event, the time at which the event was recorded, in Unix milliseconds by MySQL's
    /// clock. No decision depends on these times.
    pub recorded_ms: BTreeMap<u32, i64>,
}

/// The effect of an event on its order.
struct Effect {
    outcome: EventOutcome,
    to: Option<i64>,
    frees_slot: bool,
}

impl Effect {
    fn of(outcome: EventOutcome) -> Self {
        Self { outcome, to: None, frees_slot: false }
    }

    fn rejected(rejection: EventRejection) -> Self {
        Self::of(EventOutcome::Rejected(rejection))
    }

    fn moved(to: i64) -> Self {
        Self { outcome: EventOutcome::Applied, to: Some(to), frees_slot: false }
    }

    fn ended(to: i64) -> Self {
        Self { outcome: EventOutcome::Applied, to: Some(to), frees_slot: true }
    }
}

/// Whether an event of the given kind from the given entry is already recorded. Every event is recorded when it is
/// decided, whatever its outcome is.
#[must_use]
pub fn is_decided(recorded: (Option<EventKind>, EntryId), kind: EventKind, entry: EntryId) -> bool {
    recorded == (Some(kind), entry)
}

/// Decides what `event` does to the order (purchase) that `history` describes, and adds the decided event to `history`.
/// If the event was already decided, it keeps its outcome, and nothing is added.
pub fn decide(event: &Event, entry: EntryId, history: &mut History) -> PastEvent {
    if let Some(past) = history.events.iter().find(|past| past.is_of(event.kind, entry)) {
        return past.clone();
    }
    let effect = effect(event, history);
    debug_assert!(event.kind.may_end_order() || !effect.frees_slot, "{} ends no order", event.kind);
    let decided = PastEvent {
        number: history.events.last().map_or(1, |last| last.number + 1),
        kind: Some(event.kind),
        reference: event.reference.clone(),
        payment: payment_meant(event, effect.outcome, history),
        reason: event.reason.clone(),
        outcome: effect.outcome,
        step: effect.to.map(|to| Step { from: history.row.map(|row| row.status), to }),
        released: history.row.filter(|_| effect.frees_slot).map_or(0, |row| row.quantity),
        entry,
    };
    history.take(event, &effect);
    history.events.push(decided.clone());
    decided
}

impl History {
    fn take(&mut self, event: &Event, effect: &Effect) {
        let Some(to) = effect.to else { return };
        let row = self.row.get_or_insert(Row {
            user: event.user.get(),
            voucher: event.voucher.get(),
            quantity: 1,
            status: to,
            has_slot: false,
        });
        (row.status, row.has_slot) = (to, row.has_slot && !effect.frees_slot);
    }

    fn missing(&self) -> Effect {
        let is_refused = self.refused.is_some();
        Effect::rejected(if is_refused { EventRejection::Refused } else { EventRejection::NoOrder })
    }

    /// Whether the order belongs to another user or voucher, by its row, by its refusal, or by the journal.
    fn is_owned_by_others_than(&self, owner: (i64, i64)) -> bool {
        match (self.row, self.refused) {
            (Some(row), _) => (row.user, row.voucher) != owner,
            (None, Some(refused)) => refused != owner,
            (None, None) => self.is_of_another,
        }
    }

    /// Whether a payment with this reference must still be refunded.
    fn is_due(&self, reference: Option<&EventText>) -> bool {
        self.payments_due().any(|past| past.reference.as_ref() == reference)
    }

    /// The payments of the order that must still be refunded.
    pub fn payments_due(&self) -> impl Iterator<Item = &PastEvent> {
        let due = self.events.iter().filter(|past| past.outcome == EventOutcome::RefundDue);
        due.filter(|past| self.refund_of(past).is_none())
    }

    /// Finds the event that refunded this payment. A refund that came before the payment counts only if the payment has
    /// a reference.
    pub(super) fn refund_of(&self, payment: &PastEvent) -> Option<&PastEvent> {
        self.events.iter().find(|past| {
            past.kind == Some(EventKind::Refunded)
                && past.outcome == EventOutcome::Applied
                && past.payment == payment.reference
                && (payment.reference.is_some() || past.number > payment.number)
        })
    }
}

fn effect(event: &Event, history: &History) -> Effect {
    if history.first_with(event.kind, event.reference.as_ref()).is_some() {
        return Effect::of(EventOutcome::Unchanged);
    }
    let owner = (event.user.get(), event.voucher.get());
    if history.is_owned_by_others_than(owner) {
        return match (event.kind, payment_of(event, history)) {
            (EventKind::Paid, _) => Effect::of(EventOutcome::RefundDue),
            (kind, Ok(Refunded::Due(payment))) if kind.is_refund() => refund_of_due(kind, &payment, history),
            _ => Effect::rejected(EventRejection::WrongOwner),
        };
    }
    match event.kind {
        EventKind::Paid => paid(event, history),
        EventKind::Cancelled | EventKind::Expired => cancelled(event, history),
        EventKind::Used => used(history),
        EventKind::Refunding | EventKind::Refunded | EventKind::RefundFailed => refund(event, history),
    }
}

/// Decides a payment. A payment that does not pay for the order must be refunded, so no payment is left over.
fn paid(event: &Event, history: &History) -> Effect {
    let refund_due = Effect::of(EventOutcome::RefundDue);
    let Some(row) = history.row else { return refund_due };
    let own = history.events.iter().find(|past| past.is_own_payment());
    match (row.status, row.has_slot) {
        (UNPAID, true) => Effect::moved(PAID),
        // Another program has moved the order; this is the payment for that.
        (PAID | USED, true) if own.is_none() => Effect::of(EventOutcome::Applied),
        (PAID | USED, true)
            if event.reference.is_none() && own.is_some_and(|own| own.reference.is_none()) =>
        {
            Effect::of(EventOutcome::Unchanged)
        }
        (CANCELLED, false) => Effect { to: Some(REFUNDING), ..refund_due },
        _ => refund_due,
    }
}

fn cancelled(event: &Event, history: &History) -> Effect {
    let Some(row) = history.row else {
        return match event.kind {
            // From now on no worker can write the order.
            EventKind::Cancelled if history.refused.is_none() => Effect::moved(CANCELLED),
            _ => history.missing(),
        };
    };
    match (row.status, row.has_slot) {
        (UNPAID, true) => Effect::ended(CANCELLED),
        (CANCELLED, false) => Effect::of(EventOutcome::Unchanged),
        _ => Effect::rejected(place(row)),
    }
}

fn used(history: &History) -> Effect {
    let Some(row) = history.row else { return history.missing() };
    match (row.status, row.has_slot) {
        (PAID, true) => Effect::moved(USED),
        (USED, true) => Effect::of(EventOutcome::Unchanged),
        _ => Effect::rejected(place(row)),
    }
}

/// The payment that a refund is about.
enum Refunded {
    /// The order's own payment, or the unknown payment for which another program moved it. Its reference, if known.
    Own(Option<EventText>),
    /// A payment that must be refunded, whatever the state of the order is.
    Due(EventText),
}

fn payment_of(event: &Event, history: &History) -> Result<Refunded, EventRejection> {
    let payments: Vec<&PastEvent> = history.events.iter().filter(|past| past.is_payment()).collect();
    let payment = match (&event.payment, payments.as_slice()) {
        (_, []) => return Ok(Refunded::Own(None)),
        (Some(wanted), many) => many
            .iter()
            .find(|past| past.reference.as_ref() == Some(wanted))
            .ok_or(EventRejection::NoSuchPayment)?,
        (None, [one]) => one,
        (None, _) => return Err(EventRejection::PaymentNeeded),
    };
    match &payment.reference {
        Some(reference) if !payment.is_own_payment() => Ok(Refunded::Due(reference.clone())),
        // Without a reference, it cannot be distinguished from the order's own.
        reference => Ok(Refunded::Own(reference.clone())),
    }
}

/// The payment that is recorded with an event. A later payment with another reference does not change it.
fn payment_meant(event: &Event, outcome: EventOutcome, history: &History) -> Option<EventText> {
    if !event.kind.is_refund() || matches!(outcome, EventOutcome::Rejected(_)) {
        return event.payment.clone();
    }
    if let Some(past) = history.first_with(event.kind, event.reference.as_ref()) {
        return past.payment.clone();
    }
    match payment_of(event, history) {
        Ok(Refunded::Own(Some(payment)) | Refunded::Due(payment)) => Some(payment),
        _ => event.payment.clone(),
    }
}

fn refund(event: &Event, history: &History) -> Effect {
    match payment_of(event, history) {
        Ok(Refunded::Own(payment)) => match refund_of_order(event.kind, history) {
            // Another program has moved the order. This event refunds the payment.
            Effect { outcome: EventOutcome::Unchanged, .. }
                if event.kind == EventKind::Refunded && history.is_due(payment.as_ref()) =>
            {
                Effect::of(EventOutcome::Applied)
            }
            effect => effect,
        },
        Ok(Refunded::Due(payment)) => refund_of_due(event.kind, &payment, history),
        Err(rejection) => Effect::rejected(rejection),
    }
}

fn refund_of_due(kind: EventKind, payment: &EventText, history: &History) -> Effect {
    let is_again = history.events.iter().any(|past| {
        past.kind == Some(kind)
            && past.outcome == EventOutcome::Applied
            && past.payment.as_ref() == Some(payment)
    });
    Effect::of(if is_again { EventOutcome::Unchanged } else { EventOutcome::Applied })
}

fn refund_of_order(kind: EventKind, history: &History) -> Effect {
    let Some(row) = history.row else { return history.missing() };
    match (kind, row.status, row.has_slot) {
        (EventKind::Refunding, PAID, true) => Effect::moved(REFUNDING),
        (EventKind::Refunded, PAID | REFUNDING, true) => Effect::ended(REFUNDED),
        // The order was cancelled before it was paid: its slot is gone, and its units went back then.
        (EventKind::Refunded, REFUNDING, false) => Effect::moved(REFUNDED),
        (EventKind::RefundFailed, REFUNDING, true) => Effect::moved(PAID),
        (EventKind::RefundFailed, REFUNDING, false) => Effect::of(EventOutcome::Applied),
        (EventKind::Refunding, REFUNDING, _)
        | (EventKind::Refunded, REFUNDED, false)
        | (EventKind::RefundFailed, PAID, true) => Effect::of(EventOutcome::Unchanged),
        _ => Effect::rejected(place(row)),
    }
}

/// The state of the order, as the reason why it cannot take a step.
fn place(row: Row) -> EventRejection {
    match (row.status, row.has_slot) {
        (UNPAID, true) => EventRejection::NotPaid,
        (PAID, true) => EventRejection::Paid,
        (USED, true) => EventRejection::Used,
        (CANCELLED, false) => EventRejection::Cancelled,
        (REFUNDING, _) => EventRejection::Refunding,
        (REFUNDED, false) => EventRejection::Refunded,
        _ => EventRejection::ChangedElsewhere,
    }
}

#[cfg(test)]
mod tests;

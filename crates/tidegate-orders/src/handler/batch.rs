//! A batch on its way through the steps of the handler.

use std::{collections::HashSet, mem};

use tidegate_stream::{DeadLetterReason, Entry, Outcome, Stage};

use super::{results::Results, set_aside};
use crate::{
    batch_trace::BatchTrace,
    ledger::{EventVerdict, Incoming, IncomingEvent, Verdict},
    order::{OrderId, OrderIdentity},
    partition::Partition,
    wire::{FieldNames, Message},
};

/// The state of a batch between the steps.
pub(super) struct Batch<'a> {
    pub entries: &'a [Entry],
    /// The orders of the batch that must still be written. Orders that became dead letters or wait for a later try are
    /// not included.
    pub orders: Placed<Incoming>,
    /// The events of the batch that must still be recorded. Events that became dead letters or wait for a later try are
    /// not included.
    pub events: Placed<IncomingEvent>,
    /// The decisions on the orders of the batch, one for each order. The decisions are kept until the units of refused
    /// orders have returned to the stock.
    pub verdicts: Vec<Verdict>,
    /// The decisions on the events of the batch, one for each event. The decisions are kept until the units of ended
    /// orders have returned to the stock.
    pub event_verdicts: Vec<EventVerdict>,
    /// The outcomes of the batch, one for each entry. The last step of the handler decides these outcomes.
    pub outcomes: Vec<Outcome>,
    /// The results of the batch that the handler appends to the results stream.
    pub results: Results<'a>,
    /// Whether the batch had events at the start, including events that are now dead letters or wait for a later try.
    pub has_events: bool,
    /// The orders that wait, but not for their place in the stream. Their events wait as well.
    waiting: HashSet<OrderId>,
    trace: Option<&'a mut BatchTrace>,
}

/// Orders or events in stream order, each with the place of its entry in the batch.
pub(super) struct Placed<T> {
    pub places: Vec<usize>,
    pub items: Vec<T>,
}

/// The identity that an order has in common with its events.
pub(super) trait HasSubject {
    /// The order, its user and its voucher.
    fn subject(&self) -> OrderIdentity;
}

impl HasSubject for Incoming {
    fn subject(&self) -> OrderIdentity {
        self.order.subject()
    }
}

impl HasSubject for IncomingEvent {
    fn subject(&self) -> OrderIdentity {
        self.event.subject()
    }
}

impl<T> Placed<T> {
    /// Creates an empty list with room for `items` items.
    pub fn with_capacity(items: usize) -> Self {
        Self { places: Vec::with_capacity(items), items: Vec::with_capacity(items) }
    }

    pub fn push(&mut self, at: usize, item: T) {
        self.places.push(at);
        self.items.push(item);
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The items of the list, each with its index in the batch.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.places.iter().copied().zip(&self.items)
    }
}

impl<T: HasSubject> Placed<T> {
    /// Removes the items for which `outcome` returns an outcome, because these items must wait. Stores these outcomes,
    /// and returns the orders of the removed items.
    pub fn set_aside_where(
        &mut self,
        outcomes: &mut [Outcome],
        outcome: impl Fn(usize, OrderIdentity) -> Option<Outcome>,
    ) -> Vec<OrderId> {
        let mut waiting = Vec::new();
        let mut left = Self::with_capacity(self.items.len());
        for (at, item) in mem::take(&mut self.places).into_iter().zip(mem::take(&mut self.items)) {
            let subject = item.subject();
            match outcome(at, subject) {
                Some(outcome) => {
                    outcomes[at] = outcome;
                    waiting.push(subject.0);
                }
                None => left.push(at, item),
            }
        }
        *self = left;
        waiting
    }
}

impl<'a> Batch<'a> {
    /// Decodes the orders and events in the entries of a batch. An entry that is neither an order nor an event becomes
    /// a dead letter. All other entries get their outcomes later.
    pub fn decode(
        entries: &'a [Entry],
        fields: &FieldNames,
        partition: &Partition,
        results: Results<'a>,
        trace: Option<&'a mut BatchTrace>,
    ) -> Self {
        let mut batch = Self {
            entries,
            orders: Placed::with_capacity(entries.len()),
            events: Placed::with_capacity(0),
            verdicts: Vec::new(),
            event_verdicts: Vec::new(),
            outcomes: vec![set_aside("undecided", 0); entries.len()],
            results,
            has_events: false,
            waiting: HashSet::new(),
            trace,
        };
        for (at, entry) in entries.iter().enumerate() {
            let message = fields.decode_message(entry);
            let voucher = message.as_ref().ok().map(Message::voucher);
            if let Some(why) = voucher.and_then(|voucher| partition.refuses(voucher)) {
                batch.outcomes[at] = Outcome::Dead(why);
                continue;
            }
            match message {
                Ok(Message::Order(order)) => batch.orders.push(at, Incoming { order, entry: entry.id }),
                Ok(Message::Event(event)) => batch.events.push(at, IncomingEvent { event, entry: entry.id }),
                Err(error) => {
                    let (reason, error) = (error.reason(), error.to_string());
                    batch.outcomes[at] = Outcome::Dead(DeadLetterReason { reason, error });
                }
            }
        }
        batch.has_events = !batch.events.is_empty();
        batch
    }

    /// Whether the batch has no order and no event left to write.
    pub fn is_over(&self) -> bool {
        self.orders.is_empty() && self.events.is_empty()
    }

    /// The order id, the user and the voucher of each order or event that is left in the batch.
    pub fn subjects(&self) -> impl Iterator<Item = OrderIdentity> {
        let of_orders = self.orders.items.iter().map(HasSubject::subject);
        of_orders.chain(self.events.items.iter().map(HasSubject::subject))
    }

    /// Removes the orders and events for which `outcome` returns an outcome, because these orders and events must wait.
    /// Returns the number of removed orders and events.
    pub fn set_aside_where(&mut self, outcome: impl Fn(OrderIdentity) -> Option<Outcome>) -> usize {
        let orders = self.orders.set_aside_where(&mut self.outcomes, |_, subject| outcome(subject));
        let events = self.events.set_aside_where(&mut self.outcomes, |_, subject| outcome(subject));
        let count = orders.len() + events.len();
        if !self.events.is_empty() {
            self.waiting.extend(orders);
        }
        count
    }

    /// Decides the outcome of the order with the index `nth` among the orders that are left in the batch.
    pub fn decide_order(&mut self, nth: usize, outcome: Outcome) {
        if matches!(outcome, Outcome::SetAside(_)) {
            self.waiting.insert(self.orders.items[nth].order.id);
        }
        self.outcomes[self.orders.places[nth]] = outcome;
    }

    /// Removes the events whose orders wait for a later try. The function `outcome` gives the outcome of these events
    /// for each order.
    pub fn set_events_of_waiting_aside(&mut self, outcome: impl Fn(OrderId) -> Outcome) {
        if !self.waiting.is_empty() {
            let waiting = &self.waiting;
            self.events.set_aside_where(&mut self.outcomes, |_, (order, ..)| {
                waiting.contains(&order).then(|| outcome(order))
            });
        }
    }

    /// Records in the batch's trace that the users of the batch were locked, or that locking failed.
    pub fn trace_locking(&mut self, stage: Stage) {
        if let Some(trace) = &mut self.trace {
            trace.locking = Some(stage);
        }
    }

    /// Records in the batch's trace that the orders of the batch were written, and the decision on each order. If there
    /// are no decisions, the trace says that writing failed.
    pub fn trace_writing(&mut self, stage: Stage, verdicts: &[Verdict]) {
        if let Some(trace) = &mut self.trace {
            trace.writing = Some(stage);
            trace.wrote(&self.orders.places, verdicts);
        }
    }
}

//! The sequences of events in a request with many events: earlier events decide whether a later event is appended.

use std::collections::HashMap;

use tidegate_orders::{Event, OrderId, VoucherId};

use super::{
    members::{BadBody, Fault},
    problem::{Problem, ProblemKind},
};

/// The earlier events of a request: their vouchers and their problems.
#[derive(Debug, Default)]
pub struct EventSequences {
    /// The first event of each order, with its voucher.
    vouchers: HashMap<OrderId, (usize, VoucherId)>,
    /// For each order with a failed event, the problem for its later events.
    failed: HashMap<OrderId, Problem>,
    /// The problem that holds back the events of every order: an event names no order, or Redis does not answer.
    failed_for_all: Option<Problem>,
}

impl EventSequences {
    /// Fails if the event names a different voucher from the first event of its order. A different voucher may belong to
    /// another partition, and partitions append at the same time.
    pub fn check_and_note(&mut self, number: usize, event: &Event) -> Result<(), Problem> {
        let (first, voucher) = *self.vouchers.entry(event.order).or_insert((number, event.voucher));
        if voucher == event.voucher {
            return Ok(());
        }
        let first = first + 1;
        let detail = format!("must be the voucher of event {first}, which names the same order");
        Err(BadBody::Faults(vec![Fault { pointer: "/voucherId".to_owned(), detail }]).into())
    }

    /// Fails if an earlier event holds back the events of this order.
    pub fn check_not_held(&self, order: OrderId) -> Result<(), Problem> {
        self.failed.get(&order).or(self.failed_for_all.as_ref()).map_or(Ok(()), |held| Err(held.clone()))
    }

    /// Notes that an event itself failed. If it names no order, it holds back all later events.
    pub fn note_failed(&mut self, order: Option<OrderId>, number: usize, answered: &Problem) {
        let number = number + 1;
        let held = || {
            let why = format!(
                "event {number} failed, so the gate did not append this later event: correct event {number} if it is \
                 wrong, then send both again"
            );
            answered.kind.because(why)
        };
        match order {
            Some(order) => _ = self.failed.entry(order).or_insert_with(held),
            None => _ = self.failed_for_all.get_or_insert_with(held),
        }
    }

    /// Notes that Redis does not answer, so that no later event is tried.
    pub fn note_redis_away(&mut self) {
        self.failed_for_all = Some(ProblemKind::RedisAway.into());
    }
}

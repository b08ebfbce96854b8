//! Reports events of orders: appends events to the stream, and waits until workers have recorded them.
//!
//! A worker decides when it handles an event. The plan predicts that decision from the orders as they are now.

mod expectation;
mod file;
mod plan;
mod report;
mod run;
mod sender;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use tidegate_orders::{
    EventKind, OrderId, UserId, VoucherId,
    event::{Event, EventText},
};

pub use expectation::Expectation;
pub use plan::{EventBlocker, OrderEventPlan, PlannedEvent};
pub use report::{OrderEventReport, SentEvent, SentEventOutcome};

pub(crate) use sender::{EventSender, PAGE};

use crate::{Stores, change::InvalidInput};

/// The request to append an event for one order or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderEventRequest {
    /// The kind of the event.
    pub kind: EventKind,
    /// The orders that the event is about.
    pub orders: EventOrders,
    /// The `ref` of the payment that is refunded, if the event is a refund.
    pub payment: Option<EventText>,
    /// The reason of the event, in one word.
    pub reason: Option<EventText>,
    /// The time to wait until the events are recorded.
    pub wait: Duration,
}

/// The orders of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventOrders {
    /// A single order, given directly.
    One(OneOrder),
    /// The orders of a file: one id a line, or an id, a comma and a `ref`.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The first line that is used, counted from 1.
        from_line: u64,
    },
}

/// A single order with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrder {
    /// The order that the event is about.
    pub order: OrderId,
    /// The id that the other system gave to the event.
    pub reference: Option<EventText>,
    /// The user of the order, needed if MySQL does not know the order yet.
    pub user: Option<UserId>,
    /// The voucher of the order, needed if MySQL does not know the order yet.
    pub voucher: Option<VoucherId>,
}

/// An order that the request names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedOrder {
    line: Option<u64>,
    order: OrderId,
    reference: Option<EventText>,
    payment: Option<EventText>,
}

/// Appends events, and waits until workers have recorded them.
#[derive(Debug)]
pub struct OrderEvents<'a> {
    sender: EventSender<'a>,
    request: OrderEventRequest,
}

impl<'a> OrderEvents<'a> {
    /// Connects to Redis and MySQL of the partition.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn connect(stores: &'a Stores, request: OrderEventRequest) -> anyhow::Result<Self> {
        Ok(Self { sender: EventSender::connect(stores).await?, request })
    }

    /// Reads the orders, and predicts the outcome of the events.
    ///
    /// # Errors
    /// If the file is malformed, or a store does not answer.
    pub async fn plan(&self) -> anyhow::Result<OrderEventPlan> {
        let orders = match &self.request.orders {
            EventOrders::One(OneOrder { order, reference, .. }) => {
                vec![NamedOrder { line: None, order: *order, reference: reference.clone(), payment: None }]
            }
            EventOrders::File { path, from_line } => file::read(path, *from_line)?,
        };
        if let Some(named) = orders.iter().find(|it| it.payment.is_some() && !self.request.kind.is_refund()) {
            let line = named.line.unwrap_or_default();
            let wrong =
                format!("line {line} names a payment to refund, but {} is no refund", self.request.kind);
            return Err(InvalidInput(wrong).into());
        }
        let ids: Vec<OrderId> = orders.iter().map(|named| named.order).collect();
        let found = plan::Found::read(self.sender.records(), &ids, self.sender.statement_timeout()).await;
        let found = found.context("Failed to read the orders in MySQL")?;
        let older_workers = self.sender.older_workers().await?;
        Ok(OrderEventPlan::of(&self.request, orders, found, older_workers))
    }
}

impl OrderEventRequest {
    fn event(
        &self,
        order: OrderId,
        (user, voucher): (UserId, VoucherId),
        (reference, payment): (Option<EventText>, Option<EventText>),
    ) -> Event {
        let (payment, reason) = (payment.or_else(|| self.payment.clone()), self.reason.clone());
        Event { kind: self.kind, order, user, voucher, reference, payment, reason }
    }
}

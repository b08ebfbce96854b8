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

/// The request to append an event, such as a payment, for one or several orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderEventRequest {
    /// The kind of the event, such as `paid`.
    pub kind: EventKind,
    /// The orders that the events are about, one event for each order.
    pub orders: EventOrders,
    /// The id (`ref`) of the payment to refund; None: the event is not a refund.
    pub payment: Option<EventText>,
    /// The reason of the event, in one word.
    pub reason: Option<EventText>,
    /// The longest time to wait until workers have recorded the events.
    pub wait: Duration,
}

/// The orders for which events are appended: one order, or the orders of a file.
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

/// An order for which an event is appended, with its user and its voucher if the caller knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrder {
    /// The order that the event is about.
    pub order: OrderId,
    /// The id (`ref`) that the sender of the event gave to the event.
    pub reference: Option<EventText>,
    /// The user of the order, which is necessary if MySQL does not know the order yet.
    pub user: Option<UserId>,
    /// The voucher of the order, which is necessary if MySQL does not know the order yet.
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

/// The operation that appends order events to the stream, and waits until workers have recorded the events in MySQL.
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

    /// Reads the orders from MySQL, and predicts the outcome of each event.
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
            let wrong = format!(
                "line {line} names a payment to refund, but the event {} is not a refund",
                self.request.kind
            );
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

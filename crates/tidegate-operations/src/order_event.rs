//! Says of orders what happened to them: appends events to the stream, and waits until workers have recorded them.
//!
//! A worker decides, when it comes to an event. What the plan expects is what it would decide of the orders as they are now.

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
pub use plan::{EventObstacle, OrderEventPlan, PlannedEvent};
pub use report::{EventFate, OrderEventReport, SentEvent};

pub(crate) use sender::{EventSender, PAGE};

use crate::{Stores, change::InvalidInput};

/// What happened, and to which orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderEventRequest {
    /// What happened.
    pub kind: EventKind,
    /// To which orders.
    pub orders: EventOrders,
    /// Of a refund: the `ref` of the payment that is refunded.
    pub payment: Option<EventText>,
    /// Why, in a word.
    pub reason: Option<EventText>,
    /// How long to wait until it is recorded.
    pub wait: Duration,
}

/// The orders of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventOrders {
    /// A single one.
    One(OneOrder),
    /// Those of a file: one id a line, or an id, a comma and a `ref`.
    File {
        /// The file.
        path: PathBuf,
        /// The first line that counts, from 1.
        from_line: u64,
    },
}

/// A single order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrder {
    /// The order.
    pub order: OrderId,
    /// The outside's own id of what happened.
    pub reference: Option<EventText>,
    /// Its user, where MySQL does not know it yet.
    pub user: Option<UserId>,
    /// Its voucher, where MySQL does not know it yet.
    pub voucher: Option<VoucherId>,
}

/// An order that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedOrder {
    line: Option<u64>,
    order: OrderId,
    reference: Option<EventText>,
    payment: Option<EventText>,
}

/// Appends events and waits for them.
#[derive(Debug)]
pub struct OrderEvents<'a> {
    sender: EventSender<'a>,
    request: OrderEventRequest,
}

impl<'a> OrderEvents<'a> {
    /// With these stores, both of which are needed.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub async fn connect(stores: &'a Stores, request: OrderEventRequest) -> anyhow::Result<Self> {
        Ok(Self { sender: EventSender::connect(stores).await?, request })
    }

    /// Reads the orders, and what would become of the events.
    ///
    /// # Errors
    /// When the file is none of this shape, or a store does not answer.
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
                "line {line} names a payment that is refunded, but {} is no refund",
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

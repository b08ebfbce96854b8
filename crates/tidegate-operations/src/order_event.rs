//! Says of orders what happened to them: appends events to the stream, and waits until workers have recorded them.
//!
//! A worker decides, when it comes to an event. What the plan expects is what it would decide of the orders as they are now.

mod expectation;
mod file;
mod plan;
mod report;
mod run;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_orders::{
    EventKind, Keys, OrderId, UserId, VoucherId,
    event::{Event, EventText},
};
use tidegate_stream::Stream;

pub use expectation::Expectation;
pub use plan::{Obstacle, OrderEventPlan, PlannedEvent};
pub use report::{EventFate, OrderEventReport, SentEvent};

use crate::{connect, consumers::Consumers, settings::SystemSettings};

/// What happened, and to which orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderEventRequest {
    /// What happened.
    pub kind: EventKind,
    /// To which orders.
    pub orders: EventOrders,
    /// Of a refund: the `ref` of the payment that is given back.
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
}

/// Appends events and waits for them.
#[derive(Debug)]
pub struct OrderEvents<'a> {
    settings: &'a SystemSettings,
    redis: Pool,
    mysql: MySqlPool,
    stream: Stream,
    request: OrderEventRequest,
}

impl<'a> OrderEvents<'a> {
    /// With the stores of these settings, both of which are needed.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub async fn connect(settings: &'a SystemSettings, request: OrderEventRequest) -> anyhow::Result<Self> {
        // Events of one order are to stand in the stream as they stand in a file.
        let (redis, mysql) = tokio::try_join!(connect::redis_in_order(settings), connect::mysql(settings))?;
        let stream = Stream::new(redis.clone(), settings.stream_names());
        Ok(Self { settings, redis, mysql, stream, request })
    }

    /// Reads the orders, and what would become of the events.
    ///
    /// # Errors
    /// When the file is none of this shape, or a store does not answer.
    pub async fn plan(&self) -> anyhow::Result<OrderEventPlan> {
        let orders = match &self.request.orders {
            EventOrders::One(OneOrder { order, reference, .. }) => {
                vec![NamedOrder { line: None, order: *order, reference: reference.clone() }]
            }
            EventOrders::File { path, from_line } => file::read(path, *from_line)?,
        };
        let ids: Vec<OrderId> = orders.iter().map(|named| named.order).collect();
        let found = plan::Found::read(&self.mysql, &ids, self.settings.mysql.statement_timeout).await;
        let found = found.context("Failed to read the orders in MySQL")?;
        let keys = Keys::new(self.settings.keys.clone());
        let consumers = Consumers::read(&self.redis, &keys, self.stream.names()).await?;
        Ok(OrderEventPlan::of(&self.request, orders, found, consumers.without_events()))
    }
}

impl OrderEventRequest {
    fn event(
        &self,
        order: OrderId,
        (user, voucher): (UserId, VoucherId),
        reference: Option<EventText>,
    ) -> Event {
        let (payment, reason) = (self.payment.clone(), self.reason.clone());
        Event { kind: self.kind, order, user, voucher, reference, payment, reason }
    }
}

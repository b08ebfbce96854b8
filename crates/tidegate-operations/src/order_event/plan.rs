//! The events that would be appended, and their predicted outcomes.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde::Serialize;
use tidegate_compare::text::counted;
use tidegate_orders::{
    EventKind, OrderId, Partition, Records, UserId, VoucherId,
    event::{Event, EventText, History},
    ledger::read_histories,
    records::EventRow,
};
use tokio::time::timeout;

use super::{EventOrders, Expectation, NamedOrder, OneOrder, OrderEventRequest, expectation};
use crate::change::{Next, Plan};

/// The plan to append order events.
#[derive(Clone, Debug, Serialize)]
pub struct OrderEventPlan {
    /// The kind that all planned events have, such as `paid`.
    pub event: EventKind,
    /// The planned events, one event for each order of the request.
    pub orders: Vec<PlannedEvent>,
    /// The living workers that have an old version, and so would move events to the dead letters. If there are any, the
    /// command appends no event.
    pub older_workers: Vec<String>,
}

/// An order event that would be appended.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedEvent {
    /// The line number in the file that names the order; None: the order does not come from a file.
    pub line: Option<u64>,
    /// The order that the event is about.
    pub order: OrderId,
    /// The id (`ref`) that the sender gave to the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
    /// The user of the order.
    pub user: Option<UserId>,
    /// The voucher of the order.
    pub voucher: Option<VoucherId>,
    /// The status of the order in MySQL; None: MySQL has no row of the order.
    pub status: Option<i64>,
    /// The predicted outcome of the event for the current status of the order.
    pub expected: Option<Expectation>,
    /// The reason why no event can be appended for this order; None: the event can be appended.
    pub obstacle: Option<EventBlocker>,
    /// The event to append; None if there is an obstacle.
    #[serde(skip)]
    pub(super) to_append: Option<Event>,
}

/// The reason why an event cannot be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum EventBlocker {
    /// MySQL does not know the order, and the request does not name its user and voucher.
    #[error("MySQL does not know the order: name its user and its voucher")]
    UnknownOrder,
    /// The order belongs to another user or voucher than the request names.
    #[error("the order belongs to user {user} and voucher {voucher}")]
    OtherOwner {
        /// The user of the order.
        user: i64,
        /// The voucher of the order.
        voucher: i64,
    },
}

impl Plan for OrderEventPlan {
    fn next(&self) -> Next {
        if self.obstacles().next().is_some() || !self.older_workers.is_empty() {
            return Next::Refused;
        }
        let orders = match self.orders.as_slice() {
            [one] => format!("order {}", one.order),
            many => counted(many.len() as u64, "order"),
        };
        Next::Ask(format!("Append the event {} for {orders}?", self.event))
    }
}

impl OrderEventPlan {
    /// Removes orders that belong to other partitions from the plan. An order that MySQL does not know stays in the
    /// plan unless another MySQL shard knows the order.
    pub fn narrow(&mut self, partition: &Partition, known_elsewhere: &HashSet<OrderId>) {
        self.orders.retain(|planned| match planned.voucher {
            Some(voucher) => partition.owns(voucher),
            None => {
                planned.obstacle != Some(EventBlocker::UnknownOrder)
                    || !known_elsewhere.contains(&planned.order)
            }
        });
    }

    /// Returns the planned events whose user and voucher are known.
    pub fn known(&self) -> impl Iterator<Item = OrderId> {
        self.orders.iter().filter(|planned| planned.voucher.is_some()).map(|planned| planned.order)
    }

    /// Returns the planned events that cannot be appended. If there are any, the command appends no event at all.
    pub fn obstacles(&self) -> impl Iterator<Item = (&PlannedEvent, EventBlocker)> {
        self.orders.iter().filter_map(|planned| Some((planned, planned.obstacle?)))
    }

    pub(super) fn of(
        request: &OrderEventRequest,
        orders: Vec<NamedOrder>,
        mut found: Found,
        older_workers: Vec<String>,
    ) -> Self {
        let orders = orders.into_iter().map(|named| planned(request, named, &mut found)).collect();
        Self { event: request.kind, orders, older_workers }
    }
}

fn planned(request: &OrderEventRequest, named: NamedOrder, found: &mut Found) -> PlannedEvent {
    let NamedOrder { line, order, reference, payment } = named;
    let said_by_events = found.said_by_events.get(&order).copied().flatten();
    let history = found.histories.entry(order).or_default();
    let (owner, obstacle) = match owner(request, history, said_by_events) {
        Ok(owner) => (Some(owner), None),
        Err(obstacle) => (None, Some(obstacle)),
    };
    let status = history.row.map(|row| row.status);
    let to_append = owner.map(|owner| request.event(order, owner, (reference.clone(), payment)));
    let expected = to_append.as_ref().map(|event| expectation::expect(event, history));
    let (user, voucher) = owner.unzip();
    PlannedEvent { line, order, reference, user, voucher, status, expected, obstacle, to_append }
}

/// Returns the user and the voucher of an order: from MySQL, otherwise from the request, otherwise from earlier events
/// of an order that was never written.
fn owner(
    request: &OrderEventRequest,
    history: &History,
    said_by_events: Option<(i64, i64)>,
) -> Result<(UserId, VoucherId), EventBlocker> {
    let said = match &request.orders {
        EventOrders::One(OneOrder { user, voucher, .. }) => (*user, *voucher),
        EventOrders::File { .. } => (None, None),
    };
    let known = history.row.map(|row| (row.user, row.voucher)).or(history.refused);
    let Some((user, voucher)) = known.or(said_by_events.filter(|_| said == (None, None))) else {
        return said.0.zip(said.1).ok_or(EventBlocker::UnknownOrder);
    };
    let is_other =
        said.0.is_some_and(|said| said.get() != user) || said.1.is_some_and(|said| said.get() != voucher);
    match (UserId::try_from(user), VoucherId::try_from(voucher)) {
        (Ok(user), Ok(voucher)) if !is_other => Ok((user, voucher)),
        _ => Err(EventBlocker::OtherOwner { user, voucher }),
    }
}

/// The rows and events of the orders in MySQL.
#[derive(Debug, Default)]
pub(super) struct Found {
    histories: HashMap<OrderId, History>,
    /// The user and the voucher of orders that have only events in MySQL; None: their events disagree.
    said_by_events: HashMap<OrderId, Option<(i64, i64)>>,
}

impl Found {
    /// Reads MySQL within a bounded time.
    pub(super) async fn read(
        records: Records<'_>,
        ids: &[OrderId],
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let all = async {
            let histories = read_histories(records.mysql(), ids).await?;
            let unowned = histories.iter().filter(|(_, history)| {
                history.row.is_none() && history.refused.is_none() && !history.events.is_empty()
            });
            let unowned: Vec<OrderId> = unowned.map(|(order, _)| *order).collect();
            let said_by_events = said_by(&records.events().by_orders(&unowned).await?);
            Ok(Self { histories, said_by_events })
        };
        timeout(patience, all).await?
    }
}

fn said_by(events: &[EventRow]) -> HashMap<OrderId, Option<(i64, i64)>> {
    let mut said_by_events = HashMap::new();
    for event in events {
        let said = Some((event.user, event.voucher));
        let of_all = *said_by_events.entry(event.order).or_insert(said);
        said_by_events.insert(event.order, said.filter(|_| of_all == said));
    }
    said_by_events
}

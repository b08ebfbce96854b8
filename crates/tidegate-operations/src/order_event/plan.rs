//! What would be appended, and what would come of it.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    EventKind, OrderId, UserId, VoucherId,
    event::{Event, EventText, History},
};

use super::{EventOrders, Expectation, NamedOrder, OneOrder, OrderEventRequest, expectation};
use crate::{
    change::{Next, Plan},
    order_show::{EventRow, OrderRow, RefusalRow, find_events, find_refusals, find_rows},
    text::counted,
};

/// What would be appended.
#[derive(Clone, Debug, Serialize)]
pub struct OrderEventPlan {
    /// What happened.
    pub event: EventKind,
    /// One for each order that was named.
    pub orders: Vec<PlannedEvent>,
    /// Workers that live and would bury events, because they are of an older version: then nothing is appended.
    pub older_workers: Vec<String>,
}

/// An event that would be appended.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedEvent {
    /// The line of the file that names the order.
    pub line: Option<u64>,
    /// The order.
    pub order: OrderId,
    /// Its `ref`.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
    /// Whose order it is.
    pub user: Option<UserId>,
    /// What was bought.
    pub voucher: Option<VoucherId>,
    /// The status of its row; None: it has none.
    pub status: Option<i64>,
    /// What would come of the event, as the order is now.
    pub expected: Option<Expectation>,
    /// Why nothing is appended.
    pub obstacle: Option<Obstacle>,
    /// The event itself; None: there is an obstacle.
    #[serde(skip)]
    pub(super) to_append: Option<Event>,
}

/// Why an event cannot be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// MySQL does not know the order, and nobody said whose it is.
    #[error("MySQL does not know it, so whose it is has to be said")]
    UnknownOrder,
    /// The order belongs to another user, or is for another voucher, than was said.
    #[error("it belongs to user {user}, for voucher {voucher}")]
    OtherOwner {
        /// Its user.
        user: i64,
        /// Its voucher.
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
    /// Those that cannot be appended: then none is.
    pub fn obstacles(&self) -> impl Iterator<Item = (&PlannedEvent, Obstacle)> {
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
    let NamedOrder { line, order, reference } = named;
    let history = found.histories.entry(order).or_default();
    let (owner, obstacle) = match owner(request, history) {
        Ok(owner) => (Some(owner), None),
        Err(obstacle) => (None, Some(obstacle)),
    };
    let status = history.row.map(|row| row.status);
    let to_append = owner.map(|owner| request.event(order, owner, reference.clone()));
    let expected = to_append.as_ref().map(|event| expectation::expect(event, history));
    let (user, voucher) = owner.unzip();
    PlannedEvent { line, order, reference, user, voucher, status, expected, obstacle, to_append }
}

/// Whose order it is: by MySQL, or else as it was said.
fn owner(request: &OrderEventRequest, history: &History) -> Result<(UserId, VoucherId), Obstacle> {
    let said = match &request.orders {
        EventOrders::One(OneOrder { user, voucher, .. }) => (*user, *voucher),
        EventOrders::File { .. } => (None, None),
    };
    let known = history.row.map(|row| (row.user, row.voucher)).or(history.refused);
    let Some((user, voucher)) = known else { return said.0.zip(said.1).ok_or(Obstacle::UnknownOrder) };
    let is_other =
        said.0.is_some_and(|said| said.get() != user) || said.1.is_some_and(|said| said.get() != voucher);
    match (UserId::try_from(user), VoucherId::try_from(voucher)) {
        (Ok(user), Ok(voucher)) if !is_other => Ok((user, voucher)),
        _ => Err(Obstacle::OtherOwner { user, voucher }),
    }
}

/// What MySQL knows of the orders.
#[derive(Debug, Default)]
pub(super) struct Found {
    histories: HashMap<OrderId, History>,
}

impl Found {
    /// Asks MySQL, a bounded time.
    pub(super) async fn read(mysql: &MySqlPool, ids: &[OrderId], patience: Duration) -> anyhow::Result<Self> {
        let all = async {
            tokio::try_join!(find_rows(mysql, ids), find_refusals(mysql, ids), find_events(mysql, ids))
        };
        let (rows, refusals, events) = tokio::time::timeout(patience, all).await??;
        Ok(Self::of(&rows, &refusals, &events))
    }

    fn of(rows: &[OrderRow], refusals: &[RefusalRow], events: &[EventRow]) -> Self {
        let rows: HashMap<OrderId, &OrderRow> = rows.iter().map(|row| (row.order, row)).collect();
        let refusals: HashMap<OrderId, &RefusalRow> = refusals.iter().map(|it| (it.order, it)).collect();
        let mut events_of: HashMap<OrderId, Vec<&EventRow>> = HashMap::new();
        for event in events {
            events_of.entry(event.order).or_default().push(event);
        }
        let ids = rows.keys().chain(refusals.keys()).chain(events_of.keys());
        let history = |id: &OrderId| {
            let events = events_of.get(id).map_or(&[][..], Vec::as_slice);
            expectation::history(rows.get(id).copied(), refusals.get(id).copied(), events)
        };
        Self { histories: ids.map(|id| (*id, history(id))).collect() }
    }
}

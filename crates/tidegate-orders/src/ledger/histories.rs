//! Reads the histories of orders in MySQL, for other programs than the workers. It uses the same look-up that decides
//! events.

use std::collections::{BTreeSet, HashMap};

use sqlx::MySqlPool;

use super::{IncomingEvent, sql};
use crate::{
    RecordsError,
    event::{History, is_decided},
    order::OrderId,
};

/// The number of orders in one look-up.
const LOOKUP: usize = 1_000;

/// Reads the rows and events of the given orders, and the rows of those that were refused. Orders that MySQL does not
/// know are left out. For up to a thousand orders, the call takes one round trip, reads by primary keys, and takes no
/// locks.
///
/// # Errors
/// Fails if MySQL does not answer or the tables are not ready.
pub async fn read_histories(
    pool: &MySqlPool,
    orders: &[OrderId],
) -> Result<HashMap<OrderId, History>, RecordsError> {
    let mut histories = HashMap::new();
    for orders in orders.chunks(LOOKUP) {
        let orders: BTreeSet<OrderId> = orders.iter().copied().collect();
        let mut connection = pool.acquire().await?;
        histories.extend(sql::look_up_histories(&mut connection, &orders).await?);
    }
    Ok(histories)
}

/// The indexes of those events that are not recorded in MySQL yet, so that a worker must still apply them. For up to a
/// thousand orders, the call takes one round trip, reads by the primary key, and takes no locks.
///
/// # Errors
/// Fails if MySQL does not answer or the tables are not ready.
pub async fn unrecorded(pool: &MySqlPool, events: &[IncomingEvent]) -> Result<Vec<usize>, RecordsError> {
    let orders: BTreeSet<OrderId> = events.iter().map(|incoming| incoming.event.order).collect();
    let orders: Vec<OrderId> = orders.into_iter().collect();
    let mut recorded = HashMap::new();
    for orders in orders.chunks(LOOKUP) {
        let mut connection = pool.acquire().await?;
        recorded.extend(sql::look_up_recorded(&mut connection, &orders.iter().copied().collect()).await?);
    }
    let is_recorded = |IncomingEvent { event, entry }: &IncomingEvent| {
        let of_order = recorded.get(&event.order);
        of_order.is_some_and(|of_order| of_order.iter().any(|past| is_decided(*past, event.kind, *entry)))
    };
    let places = events.iter().enumerate().filter(|(_, incoming)| !is_recorded(incoming));
    Ok(places.map(|(place, _)| place).collect())
}

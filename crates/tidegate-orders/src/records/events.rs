//! The events of orders in the table `tidegate_event`.

use std::collections::HashMap;

use serde::Serialize;
use sqlx::{Row, mysql::MySqlRow};

use super::{Records, Result, as_text, parsed};
use crate::{
    event::{EventKind, EventOutcome, EventText, PastEvent, Step},
    order::OrderId,
};

/// The columns that [`EventRow`] needs.
const COLUMNS: &str = "order_id, CAST(step AS SIGNED), CAST(event AS CHAR), CAST(outcome AS CHAR), user_id, \
    voucher_id, CAST(ref AS CHAR), CAST(payment AS CHAR), CAST(reason AS CHAR), CAST(from_status AS SIGNED), \
    CAST(to_status AS SIGNED), CAST(released AS SIGNED), CAST(entry_id AS CHAR), \
    CAST(UNIX_TIMESTAMP(at) * 1000 AS SIGNED)";
/// The columns that [`EventSum`] needs, for the events of one order.
const SUMS: &str = "order_id, CAST(SUM(released > 0) AS SIGNED), CAST(SUM(released) AS SIGNED), \
    CAST(MAX(IF(to_status IS NULL, 0, step * 16 + to_status)) AS SIGNED), \
    CAST(MAX(IF(to_status IS NULL, 0, CAST(SUBSTRING_INDEX(entry_id, '-', 1) AS UNSIGNED))) AS SIGNED)";

/// The row of an event in the table `tidegate_event`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// The id of the order that the event is about.
    pub order: OrderId,
    /// The sequence number of the event among the events of its order, from 1.
    pub step: i64,
    /// The kind of the event as a word, such as `paid`.
    pub event: String,
    /// The outcome of the event: `applied`, `unchanged`, `refund_due`, or the reason for the rejection.
    pub outcome: String,
    /// The id of the user in the event.
    #[serde(serialize_with = "as_text")]
    pub user: i64,
    /// The id of the voucher in the event.
    #[serde(serialize_with = "as_text")]
    pub voucher: i64,
    /// The id that the sender gave to the payment or refund in the event.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// The sender's id (`ref`) of the payment that a refund event returns: the payment that the event names, or else
    /// the order's only payment.
    pub payment: Option<String>,
    /// The reason that the sender gave for the event, in a word.
    pub reason: Option<String>,
    /// The change of the order's status by the event, and the number of units that returned to the stock.
    #[serde(flatten)]
    pub moved: StatusChange,
    /// The id of the stream entry that brought the event.
    pub entry: String,
    /// The time at which the event was recorded, in Unix milliseconds.
    pub at_ms: Option<i64>,
}

/// A change of an order's status by an event, and the number of units that the event returned to the stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusChange {
    /// The status of the order before the event. `None` if the status did not change, or if the order had no row.
    pub from: Option<i64>,
    /// The status of the order after the event. `None` if the status did not change.
    pub to: Option<i64>,
    /// The number of units that the event returned to the stock.
    pub released: i64,
}

/// The totals of all events of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSum {
    /// The number of events of the order that returned units to the stock.
    pub releases: i64,
    /// The number of units that all events of the order returned to the stock.
    pub released: i64,
    /// The status of the order after the last event that changed the status. `None` if no event changed the status.
    pub status: Option<i64>,
    /// The time at which the last event that changed the order's status came into the stream, in Unix milliseconds.
    /// Events without a change do not count, because they may be sent again at any time.
    pub last_ms: i64,
}

impl EventRow {
    /// Converts the row to a [`PastEvent`], the form in which events are decided.
    #[must_use]
    pub fn past_event(&self) -> PastEvent {
        let text = |text: &Option<String>| -> Option<EventText> { text.as_ref()?.parse().ok() };
        PastEvent {
            number: u32::try_from(self.step).unwrap_or_default(),
            kind: EventKind::from_word(self.event.as_bytes()),
            reference: text(&self.reference),
            payment: text(&self.payment),
            reason: text(&self.reason),
            outcome: EventOutcome::from_word(&self.outcome),
            step: self.moved.to.map(|to| Step { from: self.moved.from, to }),
            released: self.moved.released,
            entry: self.entry.parse().unwrap_or_default(),
        }
    }

    /// Parses a row. `None` if the id is not a valid order id.
    fn parse(row: &MySqlRow) -> sqlx::Result<Option<Self>> {
        let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
        Ok(Some(Self {
            order,
            step: row.try_get(1)?,
            event: row.try_get(2)?,
            outcome: row.try_get(3)?,
            user: row.try_get(4)?,
            voucher: row.try_get(5)?,
            reference: row.try_get(6)?,
            payment: row.try_get(7)?,
            reason: row.try_get(8)?,
            moved: StatusChange { from: row.try_get(9)?, to: row.try_get(10)?, released: row.try_get(11)? },
            entry: row.try_get(12)?,
            at_ms: row.try_get(13)?,
        }))
    }
}

/// Parses an order and the sum of its events.
fn sum(row: &MySqlRow) -> sqlx::Result<Option<(OrderId, EventSum)>> {
    let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
    let last: i64 = row.try_get(3)?;
    let status = Some(last % 16).filter(|_| last > 0);
    let (releases, released, last_ms) = (row.try_get(1)?, row.try_get(2)?, row.try_get(4)?);
    Ok(Some((order, EventSum { releases, released, status, last_ms })))
}

/// Access to the rows of events in MySQL: reads and deletes them.
#[derive(Clone, Copy, Debug)]
pub struct EventRows<'a>(pub(super) Records<'a>);

impl EventRows<'_> {
    /// Reads the events of the given orders. The events of each order are in the sequence in which they were recorded.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn by_orders(self, orders: &[OrderId]) -> Result<Vec<EventRow>> {
        let table = self.0.tables.events;
        // Read by the primary key, so that the server sorts nothing.
        let sql = |ids: &str| {
            format!("SELECT {COLUMNS} FROM {table} WHERE order_id IN ({ids}) ORDER BY order_id, step")
        };
        parsed(&self.0.rows_of(orders, sql).await?, EventRow::parse)
    }

    /// Reads the totals of the events of the given orders.
    ///
    /// # Errors
    /// Fails like [`EventRows::by_orders`].
    pub async fn sums<I: Into<i64> + Copy>(self, orders: &[I]) -> Result<HashMap<OrderId, EventSum>> {
        let table = self.0.tables.events;
        let sql =
            |ids: &str| format!("SELECT {SUMS} FROM {table} WHERE order_id IN ({ids}) GROUP BY order_id");
        Ok(parsed(&self.0.rows_of(orders, sql).await?, sum)?.into_iter().collect())
    }

    /// Reads the totals of the events for all orders with ids greater than the first given id, up to and including the
    /// last given id.
    ///
    /// # Errors
    /// Fails like [`EventRows::by_orders`].
    pub async fn sums_between(self, (after, last): (i64, i64)) -> Result<HashMap<OrderId, EventSum>> {
        let range = format!("order_id > {after} AND order_id <= {last}");
        let sql = format!("SELECT {SUMS} FROM {} WHERE {range} GROUP BY order_id", self.0.tables.events);
        Ok(parsed(&self.0.rows(sql).await?, sum)?.into_iter().collect())
    }

    /// Reads the ids of up to `limit` orders of the partition that have events, in ascending order. All ids are greater
    /// than the given order id.
    ///
    /// # Errors
    /// Fails like [`EventRows::by_orders`].
    pub async fn orders_after(self, after: i64, limit: usize) -> Result<Vec<i64>> {
        // An event may name another voucher than its order's: the order decides to which partition it belongs.
        let own = self.0.partition.condition("COALESCE(o.voucher_id, e.voucher_id)");
        let sql = format!(
            "SELECT DISTINCT e.order_id FROM {} e LEFT JOIN {} o ON o.id = e.order_id \
             WHERE e.order_id > {after}{own} ORDER BY e.order_id LIMIT {limit}",
            self.0.tables.events, self.0.tables.orders
        );
        let rows = self.0.rows(sql).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?)
    }

    /// Deletes the given events. Each event is named by its order and its sequence number.
    ///
    /// # Errors
    /// Fails like [`EventRows::by_orders`].
    pub async fn delete(self, steps: &[(OrderId, Vec<u32>)]) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let of_order = |(order, steps): &(OrderId, Vec<u32>)| {
            format!("order_id = {order} AND step IN ({})", super::listed(steps))
        };
        // Each condition is a range of the primary key. Some servers do not use the key for a list of pairs.
        let ranges: Vec<String> = steps.iter().map(of_order).collect();
        self.0.execute(format!("DELETE FROM {} WHERE {}", self.0.tables.events, ranges.join(" OR "))).await
    }
}

//! The refused orders in the table `tidegate_refusal`.

use serde::Serialize;
use sqlx::{Row, mysql::MySqlRow};
use tidegate_stream::EntryId;

use super::{Records, Result, as_text, listed, parsed};
use crate::order::{OrderId, UserId, VoucherId};

/// The columns that [`RefusalRow`] needs. Reasons and entry ids may have any character set.
pub(super) const COLUMNS: &str = "order_id, user_id, voucher_id, CAST(quantity AS SIGNED), CAST(reason AS CHAR), \
    CAST(entry_id AS CHAR), CAST(UNIX_TIMESTAMP(at) * 1000 AS SIGNED)";

/// The row of a refused order in the table `tidegate_refusal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalRow {
    /// The id of the refused order.
    pub order: OrderId,
    /// The user of the order.
    #[serde(serialize_with = "as_text")]
    pub user: i64,
    /// The voucher of the order.
    #[serde(serialize_with = "as_text")]
    pub voucher: i64,
    /// The number of units in the refused order.
    pub quantity: i64,
    /// The reason for the refusal: `user_has_order` or `out_of_stock`.
    pub reason: String,
    /// The id of the stream entry that brought the order.
    pub entry: Option<EntryId>,
    /// The time of the refusal, in Unix milliseconds by MySQL's clock.
    pub at_ms: Option<i64>,
}

impl RefusalRow {
    /// Parses a row of the refusal table. `None` if the id is not a valid order id.
    pub(super) fn parse(row: &MySqlRow) -> sqlx::Result<Option<Self>> {
        let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
        Ok(Some(Self {
            order,
            user: row.try_get(1)?,
            voucher: row.try_get(2)?,
            quantity: row.try_get(3)?,
            reason: row.try_get(4)?,
            entry: row.try_get::<Option<String>, _>(5)?.and_then(|entry| entry.parse().ok()),
            at_ms: row.try_get(6)?,
        }))
    }
}

/// Access to the rows of refused orders: reads and deletes them.
#[derive(Clone, Copy, Debug)]
pub struct RefusalRows<'a>(pub(super) Records<'a>);

impl RefusalRows<'_> {
    async fn select_refusals(&self, rest: &str) -> Result<Vec<RefusalRow>> {
        let sql = format!("SELECT {COLUMNS} FROM {} WHERE {rest}", self.0.tables.refusals);
        parsed(&self.0.rows(sql).await?, RefusalRow::parse)
    }

    /// Reads the rows of refused orders with the given ids. Orders that were not refused are left out.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn by_ids<I: Into<i64> + Copy>(self, orders: &[I]) -> Result<Vec<RefusalRow>> {
        let table = self.0.tables.refusals;
        let sql = |ids: &str| format!("SELECT {COLUMNS} FROM {table} WHERE order_id IN ({ids})");
        parsed(&self.0.rows_of(orders, sql).await?, RefusalRow::parse)
    }

    /// Reads up to `limit` refused orders of the partition, sorted by order id. The ids are greater than the given
    /// order id. An empty page means that there are no more refused orders.
    ///
    /// # Errors
    /// Fails like [`RefusalRows::by_ids`].
    pub async fn page_after(self, order: i64, limit: usize) -> Result<Vec<RefusalRow>> {
        let own = self.0.partition.condition("voucher_id");
        self.select_refusals(&format!("order_id > {order}{own} ORDER BY order_id LIMIT {limit}")).await
    }

    /// Reads up to `limit` refused orders of the partition, for a user, for a voucher, or for both, the highest order
    /// ids first. Reads the whole table, because no index supports this query.
    ///
    /// # Errors
    /// Fails like [`RefusalRows::by_ids`].
    pub async fn of_user_or_voucher(
        self,
        (user, voucher): (Option<UserId>, Option<VoucherId>),
        limit: usize,
    ) -> Result<Vec<RefusalRow>> {
        let of_user = user.map(|user| format!(" AND user_id = {user}")).unwrap_or_default();
        let of_voucher = voucher.map(|voucher| format!(" AND voucher_id = {voucher}")).unwrap_or_default();
        let own = self.0.partition.condition("voucher_id");
        self.select_refusals(&format!("TRUE{of_user}{of_voucher}{own} ORDER BY order_id DESC LIMIT {limit}"))
            .await
    }

    /// Deletes the rows of the given refused orders.
    ///
    /// # Errors
    /// Fails like [`RefusalRows::by_ids`].
    pub async fn delete(self, orders: &[OrderId]) -> Result<()> {
        if orders.is_empty() {
            return Ok(());
        }
        self.0
            .execute(format!("DELETE FROM {} WHERE order_id IN ({})", self.0.tables.refusals, listed(orders)))
            .await
    }
}

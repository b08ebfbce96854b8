//! The rows of orders in the table `tb_voucher_order`.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use sqlx::{Row, mysql::MySqlRow};
use tidegate_stream::EntryId;

use super::{PAGE, Records, RecordsError, Result, as_text, listed, parsed, voucher_at};
use crate::{
    lists::MOST_LISTED,
    order::{OrderId, UserId, VoucherId},
    row_state::{RowState, RowStatus, status},
};

/// The columns that [`OrderRow`] needs, of a table that is called `o`. Ids may be signed or not: those beyond 2^63-1
/// are no valid ids, and become negative. Entry ids may have any character set.
pub(super) const COLUMNS: &str = "CAST(o.id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.voucher_id AS SIGNED), \
    CAST(o.quantity AS SIGNED), CAST(o.slot AS SIGNED), CAST(COALESCE(o.status, 1) AS SIGNED), \
    CAST(o.entry_id AS CHAR), CAST(UNIX_TIMESTAMP(o.create_time) * 1000 AS SIGNED)";
/// The number of columns in [`COLUMNS`].
pub(super) const WIDTH: usize = 8;
/// The column of [`COLUMNS`] that is missing in some tables that another program made.
const CREATED: &str = "UNIX_TIMESTAMP(o.create_time) * 1000";
/// The tutorial's other time columns, which not every table has either.
const TIMES: [&str; 4] = ["pay_time", "use_time", "refund_time", "update_time"];

/// The row of an order in the table `tb_voucher_order`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrderRow {
    /// The id of the order.
    pub order: OrderId,
    /// The user of the order. In the tables of the tutorial shop hm-dianping, the number may be an invalid id.
    #[serde(serialize_with = "as_text")]
    pub user: i64,
    /// The voucher of the order. In the tables of the tutorial shop hm-dianping, the number may be an invalid id.
    #[serde(serialize_with = "as_text")]
    pub voucher: i64,
    /// The number of units in the order.
    pub quantity: i64,
    /// The slot: the order's number among the user's live orders of the voucher. `None` if the order has ended.
    pub slot: Option<i64>,
    /// The status of the order, in the numbers of the tutorial shop hm-dianping: 1 unpaid (also for NULL), 2 paid, 3
    /// used, 4 cancelled, 5 refunding, 6 refunded.
    pub status: i64,
    /// The id of the stream entry that brought the order. `None` if another program wrote the row.
    pub entry: Option<EntryId>,
    /// The time at which the row was written, in Unix milliseconds by MySQL's clock, in whole seconds. `None` if the
    /// row has no time. 0 if the row has a zero date, which old servers allow and which is older than all other times.
    pub created_ms: Option<i64>,
}

/// The row of an order, with the times of payment, use, refund and last change, in Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrderDetails {
    /// The row of the order.
    #[serde(flatten)]
    pub row: OrderRow,
    /// The time at which the order was paid, in Unix milliseconds.
    pub paid_ms: Option<i64>,
    /// The time at which the order was used (redeemed), in Unix milliseconds.
    pub used_ms: Option<i64>,
    /// The time at which the order was refunded, in Unix milliseconds.
    pub refunded_ms: Option<i64>,
    /// The time at which the row was last changed, in Unix milliseconds.
    pub updated_ms: Option<i64>,
}

impl OrderRow {
    /// The status number of an order that was used (redeemed).
    pub const USED: i64 = status::USED;

    /// The state of the row: live, cancelled, or contradictory.
    #[must_use]
    pub fn state(&self) -> RowState {
        RowState::of(self.slot, Some(self.status))
    }

    /// The status of the order, as the number in its row says it.
    #[must_use]
    pub fn row_status(&self) -> RowStatus {
        RowStatus::of(self.slot, Some(self.status))
    }

    /// The time at which the row was written, as it is shown to people. `None` if the row has no time or a zero date.
    #[must_use]
    pub fn shown_ms(&self) -> Option<i64> {
        self.created_ms.filter(|ms| *ms > 0)
    }

    /// Parses a row of the order table. `None` if the id is not a valid order id.
    pub(super) fn parse(row: &MySqlRow) -> sqlx::Result<Option<Self>> {
        let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
        Ok(Some(Self {
            order,
            user: row.try_get(1)?,
            voucher: row.try_get(2)?,
            quantity: row.try_get(3)?,
            slot: row.try_get(4)?,
            status: row.try_get(5)?,
            entry: row.try_get::<Option<String>, _>(6)?.and_then(|entry| entry.parse().ok()),
            created_ms: row.try_get(7)?,
        }))
    }
}

/// Reads a time; a zero date, which old servers allow, counts as no time.
fn time(row: &MySqlRow, at: usize) -> sqlx::Result<Option<i64>> {
    Ok(row.try_get::<Option<i64>, _>(at)?.filter(|ms| *ms > 0))
}

fn details(row: &MySqlRow) -> sqlx::Result<Option<OrderDetails>> {
    let Some(parsed) = OrderRow::parse(row)? else { return Ok(None) };
    Ok(Some(OrderDetails {
        row: OrderRow { created_ms: parsed.shown_ms(), ..parsed },
        paid_ms: time(row, WIDTH)?,
        used_ms: time(row, WIDTH + 1)?,
        refunded_ms: time(row, WIDTH + 2)?,
        updated_ms: time(row, WIDTH + 3)?,
    }))
}

/// Access to the rows of orders in MySQL.
#[derive(Clone, Copy, Debug)]
pub struct OrderRows<'a>(pub(super) Records<'a>);

impl OrderRows<'_> {
    /// Reads the rows of the table `o` that the rest of a statement selects.
    async fn orders_where(&self, rest: &str) -> Result<Vec<OrderRow>> {
        parsed(&self.order_rows(rest).await?, OrderRow::parse)
    }

    /// Reads the same rows, including those whose ids are no valid order ids.
    async fn order_rows(&self, rest: &str) -> Result<Vec<MySqlRow>> {
        let sql = |columns: &str| format!("SELECT {columns} FROM {} o {rest}", self.0.tables.orders);
        match self.0.rows(sql(COLUMNS)).await {
            Err(RecordsError::NotMigrated(why)) if why.contains("create_time") => {
                self.0.rows(sql(&COLUMNS.replace(CREATED, "NULL"))).await
            }
            rows => rows,
        }
    }

    /// Reads which columns of [`OrderRow`] the table has, and the names of all its columns.
    pub(super) async fn columns(&self) -> Result<(String, Vec<String>)> {
        let sql = "SELECT CAST(LOWER(column_name) AS CHAR) FROM information_schema.columns \
                   WHERE table_schema = DATABASE() AND table_name = ?";
        let names: Vec<String> =
            sqlx::query_scalar(sql).bind(self.0.tables.orders).fetch_all(self.0.mysql).await?;
        let has_created = names.iter().any(|name| name == "create_time");
        Ok((if has_created { COLUMNS.to_owned() } else { COLUMNS.replace(CREATED, "NULL") }, names))
    }

    /// Reads the row of an order, with the times of payment, use, refund and last change.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn find(self, order: OrderId) -> Result<Option<OrderDetails>> {
        let (columns, names) = self.columns().await?;
        let time = |name: &str| match names.iter().any(|column| column == name) {
            true => format!(", CAST(UNIX_TIMESTAMP(o.{name}) * 1000 AS SIGNED)"),
            false => ", CAST(NULL AS SIGNED)".to_owned(),
        };
        let times: String = TIMES.iter().map(|name| time(name)).collect();
        let sql = format!("SELECT {columns}{times} FROM {} o WHERE o.id = {order}", self.0.tables.orders);
        Ok(parsed(&self.0.rows(sql).await?, details)?.pop())
    }

    /// Reads the rows of the given orders. Orders without a row are left out.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn by_ids<I: Into<i64> + Copy>(self, orders: &[I]) -> Result<Vec<OrderRow>> {
        let mut rows = Vec::new();
        for orders in orders.chunks(MOST_LISTED) {
            rows.append(&mut self.orders_where(&format!("WHERE o.id IN ({})", listed(orders))).await?);
        }
        Ok(rows)
    }

    /// Reads a page of the partition's orders, sorted by order id. The ids are greater than the given order id. An
    /// empty page means that there are no more rows.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn page_after(self, id: i64) -> Result<Vec<OrderRow>> {
        let (own, most) = (self.0.partition.condition("o.voucher_id"), i64::MAX);
        let page = format!("WHERE o.id > {id} AND o.id <= {most}{own} ORDER BY o.id LIMIT {PAGE}");
        self.orders_where(&page).await
    }

    /// Reads a page of a voucher's orders, sorted by user. The ids of the users are greater than the given user id. The
    /// page holds all orders of its last user.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn of_voucher_after(self, voucher: VoucherId, user: i64) -> Result<Vec<OrderRow>> {
        let of_voucher = format!("WHERE o.voucher_id = {voucher} AND o.user_id");
        let mut after = user;
        loop {
            // The rows come in the order of the unique key.
            let page =
                format!("{of_voucher} > {after} ORDER BY o.voucher_id, o.user_id, o.slot LIMIT {PAGE}");
            let mut rows = self.order_rows(&page).await?;
            let Some(last) = rows.last() else { return Ok(Vec::new()) };
            let last: i64 = last.try_get(1)?;
            if rows.len() == PAGE {
                rows.retain(|row| row.try_get::<i64, _>(1).ok() != Some(last));
                rows.append(&mut self.order_rows(&format!("{of_voucher} = {last}")).await?);
            }
            let orders = parsed(&rows, OrderRow::parse)?;
            // A page of rows without valid ids is not the end; users beyond 2^63-1 are.
            if !orders.is_empty() || last <= after {
                return Ok(orders);
            }
            after = last;
        }
    }

    /// Reads a page of a voucher's used (redeemed) orders, sorted by id. The ids are greater than the given id.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn used_after(self, voucher: VoucherId, id: i64) -> Result<Vec<OrderRow>> {
        let page = format!(
            "FORCE INDEX (PRIMARY) WHERE o.id > {id} AND o.voucher_id = {voucher} AND o.status = {} \
             AND o.slot IS NOT NULL ORDER BY o.id LIMIT {PAGE}",
            OrderRow::USED
        );
        self.orders_where(&page).await
    }

    /// Reads up to `limit` orders of a user, or those with the highest ids, for the given vouchers.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn of_vouchers(
        self,
        user: Option<UserId>,
        vouchers: &[VoucherId],
        limit: usize,
    ) -> Result<Vec<OrderRow>> {
        if vouchers.is_empty() {
            return Ok(Vec::new());
        }
        // One range of the unique key for each voucher: the table has no index of the user alone.
        let vouchers = format!("WHERE o.voucher_id IN ({})", listed(vouchers));
        // A user has few rows. With ORDER BY, the server might read all orders from the last on, to find them sorted.
        let rest = match user {
            Some(user) => format!("{vouchers} AND o.user_id = {user} LIMIT {limit}"),
            None => format!("{vouchers} ORDER BY o.id DESC LIMIT {limit}"),
        };
        self.orders_where(&rest).await
    }

    /// Reads the few live orders (their rows still have a slot) of each given pair of user and voucher.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn live_of_buyers(self, buyers: &[(VoucherId, UserId)]) -> Result<Vec<OrderRow>> {
        let mut rows = Vec::new();
        for buyers in buyers.chunks(MOST_LISTED) {
            let pairs = buyers.iter().map(|(voucher, user)| format!("({voucher},{user})"));
            let pairs = pairs.collect::<Vec<_>>().join(",");
            let live = format!("WHERE (o.voucher_id, o.user_id) IN ({pairs}) AND o.slot IS NOT NULL");
            rows.append(&mut self.orders_where(&live).await?);
        }
        Ok(rows)
    }

    /// Finds those given users who have a live order of the voucher, each with the id of one such order. The order
    /// still has its slot, a number in the unique key, so MySQL refuses the user another order with the same slot.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn live_of_users(self, voucher: VoucherId, users: &[i64]) -> Result<HashMap<i64, i64>> {
        self.live_of(voucher, users, "").await
    }

    /// Finds the same users as [`OrderRows::live_of_users`], but always by the unique key, whatever the table
    /// statistics say. A repair waits for this query, so the query must be fast.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn still_live_of_users(self, voucher: VoucherId, users: &[i64]) -> Result<HashMap<i64, i64>> {
        self.live_of(voucher, users, " FORCE INDEX (uk_voucher_user_slot)").await
    }

    async fn live_of(&self, voucher: VoucherId, users: &[i64], hint: &str) -> Result<HashMap<i64, i64>> {
        let sql = |users: &str| {
            format!(
                "SELECT CAST(user_id AS SIGNED), CAST(id AS SIGNED) FROM {}{hint} \
                 WHERE voucher_id = {voucher} AND user_id IN ({users}) AND slot IS NOT NULL",
                self.0.tables.orders
            )
        };
        let rows = self.0.rows_of(users, sql).await?;
        let pairs = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        Ok(pairs.collect::<sqlx::Result<_>>()?)
    }

    /// Finds the given orders that MySQL does not know: it has neither a row of the order nor a row of its refusal, for
    /// any voucher. Returns the orders in the given sequence.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn unknown(self, orders: &[OrderId]) -> Result<Vec<OrderId>> {
        let sql = |ids: &str| {
            format!(
                "SELECT CAST(id AS SIGNED) FROM {} WHERE id IN ({ids}) UNION ALL \
                 SELECT order_id FROM {} WHERE order_id IN ({ids})",
                self.0.tables.orders, self.0.tables.refusals
            )
        };
        let rows = self.0.rows_of(orders, sql).await?;
        let known = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<HashSet<i64>>>()?;
        Ok(orders.iter().copied().filter(|order| !known.contains(&order.get())).collect())
    }

    /// Reads the voucher of an order from the order's row, or from the row of its refusal.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn voucher_of(self, order: OrderId) -> Result<Option<VoucherId>> {
        let sql = format!(
            "SELECT CAST(voucher_id AS SIGNED) FROM {} WHERE id = {order} UNION ALL \
             SELECT CAST(voucher_id AS SIGNED) FROM {} WHERE order_id = {order} LIMIT 1",
            self.0.tables.orders, self.0.tables.refusals
        );
        Ok(parsed(&self.0.rows(sql).await?, |row| voucher_at(row, 0))?.pop())
    }

    /// Finds up to `limit` vouchers of the partition that have orders, with or without a row, highest ids first.
    ///
    /// # Errors
    /// Fails like [`OrderRows::find`].
    pub async fn vouchers(self, limit: usize) -> Result<Vec<VoucherId>> {
        let (mut vouchers, mut below) = (Vec::new(), String::new());
        while vouchers.len() < limit {
            // Each query is one look-up in the unique key. DISTINCT would read all orders of a voucher.
            let sql = format!("SELECT CAST(MAX(voucher_id) AS SIGNED) FROM {}{below}", self.0.tables.orders);
            let row = self.0.rows(sql).await?;
            let next: Option<i64> = row.first().map(|row| row.try_get(0)).transpose()?.flatten();
            let Some(Ok(voucher)) = next.map(VoucherId::try_from) else { break };
            vouchers.extend(Some(voucher).filter(|voucher| self.0.partition.owns(*voucher)));
            below = format!(" WHERE voucher_id < {voucher}");
        }
        Ok(vouchers)
    }
}

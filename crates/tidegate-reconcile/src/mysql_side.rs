//! What MySQL knows of the orders, in pages by primary key. Every statement of the reconcile stands here.
//!
//! No page is locked, and none belongs to a snapshot that is held from the first page to the last: that would keep the server
//! from purging what a busy sale deletes. What moves between two pages is seen by the second look at each difference. Only a
//! voucher's stock and the units of its live orders must be of one moment: they are read by a single statement.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, MySqlPool, Row, mysql::MySqlRow};
use tidegate_orders::{
    Partition, RowState, VoucherId,
    lists::MOST_LISTED,
    row_state::{CANCELLED, LIVE},
};
use tidegate_stream::EntryId;

/// Rows a page.
const PAGE: u32 = 1_000;
/// The status of an order that was used.
pub(crate) const USED: i64 = 3;

// Ids may be signed or not; those beyond 2^63-1 are none of ours and become negative here. Entry ids are of any character set.
const ROWS: &str = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
    CAST(quantity AS SIGNED), CAST(slot AS SIGNED), CAST(COALESCE(status, 1) AS SIGNED), CAST(entry_id AS CHAR), \
    CAST(UNIX_TIMESTAMP(create_time) * 1000 AS SIGNED) FROM tb_voucher_order";
const REFUSALS: &str = "SELECT order_id, user_id, voucher_id, CAST(quantity AS SIGNED), CAST(entry_id AS CHAR) \
    FROM tidegate_refusal";
/// An order a row: how often and how much it was given back, the status that its last move led to, and when the entry of a
/// move came last.
const EVENTS: &str = "SELECT order_id, CAST(SUM(released > 0) AS SIGNED), CAST(SUM(released) AS SIGNED), \
    CAST(MAX(IF(to_status IS NULL, 0, step * 16 + to_status)) AS SIGNED), \
    CAST(MAX(IF(to_status IS NULL, 0, CAST(SUBSTRING_INDEX(entry_id, '-', 1) AS UNSIGNED))) AS SIGNED) FROM tidegate_event";
const STOCKS: &str = "SELECT CAST(v.voucher_id AS SIGNED), CAST(v.stock AS SIGNED), CAST(v.initial_stock AS SIGNED), \
    CAST(COALESCE(o.units, 0) AS SIGNED), CAST(COALESCE(o.orders, 0) AS SIGNED), CAST(COALESCE(o.others, 0) AS SIGNED), \
    CAST(COALESCE(o.earlier, 0) AS SIGNED) \
    FROM tb_seckill_voucher v LEFT JOIN (SELECT voucher_id, ";
const VOUCHERS: &str = "SELECT CAST(voucher_id AS SIGNED) FROM tb_seckill_voucher";

/// A row of `tb_voucher_order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderRow {
    pub(crate) id: i64,
    pub(crate) user: i64,
    pub(crate) voucher: i64,
    pub(crate) quantity: i64,
    pub(crate) slot: Option<i64>,
    pub(crate) status: i64,
    /// The entry of the stream that it came from; None: another program wrote it.
    pub(crate) entry: Option<EntryId>,
    /// When it was written, in Unix milliseconds by MySQL's clock, to the second; None: it does not say.
    pub(crate) created_ms: Option<i64>,
}

impl OrderRow {
    pub(crate) fn state(&self) -> RowState {
        RowState::of(self.slot, Some(self.status))
    }
}

/// A row of `tidegate_refusal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusalRow {
    pub(crate) id: i64,
    pub(crate) user: i64,
    pub(crate) voucher: i64,
    pub(crate) quantity: i64,
    pub(crate) entry: Option<EntryId>,
}

/// What the events of an order add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventSum {
    pub(crate) releases: i64,
    pub(crate) released: i64,
    /// None: no event has moved it.
    pub(crate) status: Option<i64>,
    /// When the last entry that moved it came into the stream, in Unix milliseconds. Those that changed nothing do not count: they
    /// may be sent again at any time.
    pub(crate) last_ms: i64,
}

/// What MySQL says of a voucher, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StockRow {
    pub(crate) stock: Option<i64>,
    pub(crate) initial: Option<i64>,
    pub(crate) live_units: i64,
    pub(crate) live_orders: u64,
    /// Units of live rows that are older than the journal.
    pub(crate) earlier_units: i64,
    /// Units of rows whose slot and status contradict each other: nobody can tell whether they went back to the stock.
    pub(crate) contradictory_units: i64,
}

/// Reads MySQL.
#[derive(Debug)]
pub(crate) struct MysqlSide<'a>(pub(super) &'a MySqlPool, pub(super) &'a Partition);

impl MysqlSide<'_> {
    /// The vouchers of the partition that are, or were, on sale.
    pub(crate) async fn vouchers(&self) -> sqlx::Result<Vec<VoucherId>> {
        let sql = format!("{VOUCHERS} WHERE TRUE{}", self.1.condition("voucher_id"));
        let rows = self.rows(sql).await?;
        let id = |row: &MySqlRow| row.try_get::<i64, _>(0);
        let ids: sqlx::Result<Vec<i64>> = rows.iter().map(id).collect();
        Ok(ids?.into_iter().filter_map(|id| id.try_into().ok()).collect())
    }

    /// The stock of each voucher, with the units of its live orders. With each voucher comes since when its journal is complete, in
    /// Unix milliseconds; 0: it knows all.
    pub(crate) async fn stocks(
        &self,
        vouchers: &[(VoucherId, i64)],
    ) -> sqlx::Result<HashMap<VoucherId, StockRow>> {
        let mut stocks = HashMap::new();
        for vouchers in vouchers.chunks(MOST_LISTED) {
            let ids = list(vouchers.iter().map(|(voucher, _)| voucher.get()));
            let since = vouchers.iter().filter(|(_, since_ms)| *since_ms > 0);
            let since: Vec<String> =
                since.map(|(voucher, since_ms)| format!("WHEN {voucher} THEN {since_ms}")).collect();
            let since = match since.is_empty() {
                true => "0".to_owned(),
                false => format!("CASE voucher_id {} ELSE 0 END", since.join(" ")),
            };
            let at_ms = "IF(entry_id IS NULL, UNIX_TIMESTAMP(create_time) * 1000, CAST(SUBSTRING_INDEX(entry_id, '-', 1) AS SIGNED))";
            let sql = format!(
                "{STOCKS} SUM(IF({LIVE}, quantity, 0)) AS units, SUM(IF({LIVE}, 1, 0)) AS orders, \
                 SUM(IF({LIVE} OR {CANCELLED}, 0, quantity)) AS others, \
                 SUM(IF({LIVE} AND {since} > 0 AND {at_ms} < {since}, quantity, 0)) AS earlier FROM tb_voucher_order \
                 WHERE voucher_id IN ({ids}) GROUP BY voucher_id) o ON o.voucher_id = v.voucher_id \
                 WHERE v.voucher_id IN ({ids})"
            );
            for row in self.rows(sql).await? {
                let Ok(voucher) = row.try_get::<i64, _>(0)?.try_into() else { continue };
                let live_orders = row.try_get::<i64, _>(4)?.cast_unsigned();
                let (stock, initial, live_units) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
                let (contradictory_units, earlier_units) = (row.try_get(5)?, row.try_get(6)?);
                let row =
                    StockRow { stock, initial, live_units, live_orders, earlier_units, contradictory_units };
                stocks.insert(voucher, row);
            }
        }
        Ok(stocks)
    }

    /// The rows of the partition after this id, in its order.
    pub(crate) async fn orders_after(&self, id: i64) -> sqlx::Result<Vec<OrderRow>> {
        let own = self.1.condition("voucher_id");
        let sql = format!("{ROWS} WHERE id > {id}{own} ORDER BY id LIMIT {PAGE}");
        self.rows(sql).await?.iter().map(order_row).collect()
    }

    /// The rows of a voucher, of users after this one: a page, and with the last user's all of that user. Others' rows are not
    /// touched.
    pub(crate) async fn orders_of_voucher(
        &self,
        voucher: VoucherId,
        user: i64,
    ) -> sqlx::Result<Vec<OrderRow>> {
        let of_voucher = format!("{ROWS} WHERE voucher_id = {voucher}");
        // In the order of the unique key.
        let page =
            format!("{of_voucher} AND user_id > {user} ORDER BY voucher_id, user_id, slot LIMIT {PAGE}");
        let rows: sqlx::Result<Vec<OrderRow>> = self.rows(page).await?.iter().map(order_row).collect();
        let mut rows = rows?;
        let Some(last) = rows.last().filter(|_| rows.len() == PAGE as usize).map(|row| row.user) else {
            return Ok(rows);
        };
        rows.retain(|row| row.user != last);
        for row in self.rows(format!("{of_voucher} AND user_id = {last}")).await? {
            rows.push(order_row(&row)?);
        }
        Ok(rows)
    }

    /// The rows of these orders.
    pub(crate) async fn orders(&self, ids: &[i64]) -> sqlx::Result<Vec<OrderRow>> {
        let rows = self.rows_of(ids, |ids| format!("{ROWS} WHERE id IN ({ids})")).await?;
        rows.iter().map(order_row).collect()
    }

    /// The rows of a voucher that are used, after this id, in its order.
    pub(crate) async fn used_after(&self, voucher: VoucherId, id: i64) -> sqlx::Result<Vec<OrderRow>> {
        let sql = format!(
            "{ROWS} FORCE INDEX (PRIMARY) WHERE id > {id} AND voucher_id = {voucher} AND status = {USED} \
             AND slot IS NOT NULL ORDER BY id LIMIT {PAGE}"
        );
        self.rows(sql).await?.iter().map(order_row).collect()
    }

    /// The refusals of the partition after this id, in its order.
    pub(crate) async fn refusals_after(&self, id: i64) -> sqlx::Result<Vec<RefusalRow>> {
        let own = self.1.condition("voucher_id");
        let sql = format!("{REFUSALS} WHERE order_id > {id}{own} ORDER BY order_id LIMIT {PAGE}");
        self.rows(sql).await?.iter().map(refusal_row).collect()
    }

    /// The refusals of these orders.
    pub(crate) async fn refusals(&self, ids: &[i64]) -> sqlx::Result<Vec<RefusalRow>> {
        let rows = self.rows_of(ids, |ids| format!("{REFUSALS} WHERE order_id IN ({ids})")).await?;
        rows.iter().map(refusal_row).collect()
    }

    /// What the events add up to, of the orders after the first id up to the last one.
    pub(crate) async fn events_between(
        &self,
        (after, last): (i64, i64),
    ) -> sqlx::Result<HashMap<i64, EventSum>> {
        let sql = format!("{EVENTS} WHERE order_id > {after} AND order_id <= {last} GROUP BY order_id");
        self.rows(sql).await?.iter().map(event_sum).collect()
    }

    /// What the events of these orders add up to.
    pub(crate) async fn events(&self, ids: &[i64]) -> sqlx::Result<HashMap<i64, EventSum>> {
        let sql = |ids: &str| format!("{EVENTS} WHERE order_id IN ({ids}) GROUP BY order_id");
        self.rows_of(ids, sql).await?.iter().map(event_sum).collect()
    }

    /// Which of these users have an order of the voucher that holds a slot, and one of its ids: MySQL lets none of them have
    /// another.
    pub(crate) async fn live_of_users(
        &self,
        voucher: VoucherId,
        users: &[i64],
    ) -> sqlx::Result<HashMap<i64, i64>> {
        self.live_of(("tb_voucher_order", voucher), users).await
    }

    /// The same for a repair, by the index whatever the statistics say: a step of it waits for this.
    pub(crate) async fn still_live_of_users(
        &self,
        voucher: VoucherId,
        users: &[i64],
    ) -> sqlx::Result<HashMap<i64, i64>> {
        self.live_of(("tb_voucher_order FORCE INDEX (uk_voucher_user_slot)", voucher), users).await
    }

    async fn live_of(
        &self,
        (table, voucher): (&str, VoucherId),
        users: &[i64],
    ) -> sqlx::Result<HashMap<i64, i64>> {
        let sql = |users: &str| {
            format!(
                "SELECT CAST(user_id AS SIGNED), CAST(id AS SIGNED) FROM {table} \
                 WHERE voucher_id = {voucher} AND user_id IN ({users}) AND slot IS NOT NULL"
            )
        };
        self.rows_of(users, sql).await?.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// By lists that are short enough. None at all is not asked for.
    async fn rows_of(&self, ids: &[i64], sql: impl Fn(&str) -> String) -> sqlx::Result<Vec<MySqlRow>> {
        let mut rows = Vec::new();
        for ids in ids.chunks(MOST_LISTED) {
            rows.append(&mut self.rows(sql(&list(ids.iter().copied()))).await?);
        }
        Ok(rows)
    }

    async fn rows(&self, sql: String) -> sqlx::Result<Vec<MySqlRow>> {
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.0).await
    }
}

fn list(ids: impl Iterator<Item = i64>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
}

fn order_row(row: &MySqlRow) -> sqlx::Result<OrderRow> {
    Ok(OrderRow {
        id: row.try_get(0)?,
        user: row.try_get(1)?,
        voucher: row.try_get(2)?,
        quantity: row.try_get(3)?,
        slot: row.try_get(4)?,
        status: row.try_get(5)?,
        entry: entry(row.try_get(6)?),
        created_ms: row.try_get(7)?,
    })
}

fn refusal_row(row: &MySqlRow) -> sqlx::Result<RefusalRow> {
    Ok(RefusalRow {
        id: row.try_get(0)?,
        user: row.try_get(1)?,
        voucher: row.try_get(2)?,
        quantity: row.try_get(3)?,
        entry: entry(row.try_get(4)?),
    })
}

fn event_sum(row: &MySqlRow) -> sqlx::Result<(i64, EventSum)> {
    let last: i64 = row.try_get(3)?;
    let status = Some(last % 16).filter(|_| last > 0);
    let (releases, released, last_ms) = (row.try_get(1)?, row.try_get(2)?, row.try_get(4)?);
    Ok((row.try_get(0)?, EventSum { releases, released, status, last_ms }))
}

fn entry(text: Option<String>) -> Option<EntryId> {
    text?.parse().ok()
}

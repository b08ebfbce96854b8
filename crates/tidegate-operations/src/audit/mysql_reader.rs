//! What MySQL knows of the orders. Every statement of the audit stands here.

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, Row, mysql::MySqlRow};

use super::{admission::AuditRow, admissions::OrderKey, input::AuditInput, surplus::StockRow};
use tidegate_orders::{
    Partition, VoucherId,
    row_state::{LIVE, RowState, RowStatus},
};

/// Ids a lookup.
const LOOKUP: usize = 1_000;

// Ids may be signed or not; those beyond 2^63-1 are none of ours and become negative here.
const ORDERS: &str = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
    CAST(quantity AS SIGNED), CAST(slot AS SIGNED), CAST(status AS SIGNED), CAST(entry_id AS CHAR) \
    FROM tb_voucher_order";
const VOUCHERS: &str = "SELECT CAST(voucher_id AS SIGNED), CAST(stock AS SIGNED), CAST(initial_stock AS SIGNED), \
    CAST(COALESCE(begin_time <= NOW(), 1) AS SIGNED), CAST(COALESCE(end_time > NOW(), 1) AS SIGNED) \
    FROM tb_seckill_voucher";
/// Of vouchers whose journals are removed, or will be.
const REFUSALS: &str = "SELECT r.order_id, r.user_id, r.voucher_id FROM tidegate_refusal r JOIN tb_seckill_voucher v \
    ON v.voucher_id = r.voucher_id AND v.delisted_at IS NOT NULL";
const SHARED_SLOTS: &str =
    "SELECT CAST(voucher_id AS SIGNED), CAST(CONCAT(user_id, '/', slot) AS CHAR) FROM tb_voucher_order";
const SHARED_SLOTS_END: &str = " GROUP BY voucher_id, user_id, slot HAVING COUNT(*) > 1 ORDER BY 1, 2";
const UNIQUE_KEY: &str = "SELECT COUNT(*) FROM information_schema.statistics \
    WHERE table_schema = DATABASE() AND table_name = 'tb_voucher_order' \
    AND index_name = 'uk_voucher_user_slot' AND non_unique = 0";

/// Reads MySQL.
pub(super) struct MysqlReader<'a> {
    pool: &'a MySqlPool,
    partition: &'a Partition,
    only: Option<VoucherId>,
}

impl<'a> MysqlReader<'a> {
    pub(super) fn new(pool: &'a MySqlPool, partition: &'a Partition, only: Option<VoucherId>) -> Self {
        Self { pool, partition, only }
    }

    /// The vouchers that are, or were, on sale.
    pub(super) async fn vouchers(&self) -> sqlx::Result<Vec<VoucherId>> {
        let rows =
            sqlx::raw_sql(AssertSqlSafe(self.of_voucher(VOUCHERS, "WHERE"))).fetch_all(self.pool).await?;
        rows.iter().filter_map(|row| voucher(row, 0).transpose()).collect()
    }

    /// Those of them that are sold by programs which keep no journal in Redis.
    pub(super) async fn vouchers_without_journal(&self) -> sqlx::Result<Vec<VoucherId>> {
        let sql = self.of_voucher(&format!("{VOUCHERS} WHERE keeps_journal = 0"), "AND");
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.pool).await?;
        rows.iter().filter_map(|row| voucher(row, 0).transpose()).collect()
    }

    /// The stocks as they are now.
    pub(super) async fn stocks(&self) -> sqlx::Result<Vec<StockRow>> {
        let rows =
            sqlx::raw_sql(AssertSqlSafe(self.of_voucher(VOUCHERS, "WHERE"))).fetch_all(self.pool).await?;
        rows.iter().filter_map(|row| stock_row(row).transpose()).collect()
    }

    /// Stocks and orders, all as they were at one moment: their sums must agree.
    pub(super) async fn read(&self, input: &mut AuditInput) -> sqlx::Result<()> {
        // Off the pool: its open transaction ends with it, on every way out of here.
        let mut connection = self.pool.acquire().await?.detach();
        let snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
            START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
        sqlx::raw_sql(snapshot).execute(&mut connection).await?;
        self.read_stocks(&mut connection, input).await?;
        self.read_orders(&mut connection, input).await?;
        let unique_keys: i64 = sqlx::query_scalar(UNIQUE_KEY).fetch_one(&mut connection).await?;
        if unique_keys == 0 {
            self.read_shared_slots(&mut connection, input).await?;
        }
        connection.close().await
    }

    /// Looks for orders that were nowhere: they may have been written since.
    pub(super) async fn look_again(
        &self,
        input: &mut AuditInput,
        unresolved: &[OrderKey],
    ) -> sqlx::Result<()> {
        for unresolved in unresolved.chunks(LOOKUP) {
            let ids: Vec<String> = unresolved.iter().map(|(_, order)| order.to_string()).collect();
            let sql = format!("{ORDERS} WHERE id IN ({})", ids.join(","));
            for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.pool).await? {
                if let Some(row) = order_row(&row)? {
                    input.add_row_again(&row);
                }
            }
            let sql = format!("{REFUSALS} WHERE r.order_id IN ({})", ids.join(","));
            for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.pool).await? {
                if let (Some(voucher), Ok(order)) = (voucher(&row, 2)?, row.try_get::<i64, _>(0)?.try_into())
                {
                    input.add_refusal((voucher, order), row.try_get(1)?);
                }
            }
        }
        Ok(())
    }

    async fn read_stocks(
        &self,
        connection: &mut MySqlConnection,
        input: &mut AuditInput,
    ) -> sqlx::Result<()> {
        let sql = self.of_voucher(VOUCHERS, "WHERE");
        for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await? {
            if let Some(row) = stock_row(&row)? {
                input.add_stock(&row);
            }
        }
        Ok(())
    }

    /// One statement, row by row: pages would need an order that no index of all databases has.
    async fn read_orders(
        &self,
        connection: &mut MySqlConnection,
        input: &mut AuditInput,
    ) -> sqlx::Result<()> {
        let sql = self.of_voucher(ORDERS, "WHERE");
        let mut rows = sqlx::query(AssertSqlSafe(sql)).fetch(connection);
        while let Some(row) = rows.try_next().await? {
            if let Some(row) = order_row(&row)? {
                input.add_row(&row);
            }
        }
        Ok(())
    }

    async fn read_shared_slots(
        &self,
        connection: &mut MySqlConnection,
        input: &mut AuditInput,
    ) -> sqlx::Result<()> {
        let sql = self.of_voucher(&format!("{SHARED_SLOTS} WHERE {LIVE}"), "AND") + SHARED_SLOTS_END;
        for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await? {
            if let Some(voucher) = voucher(&row, 0)? {
                input.voucher(voucher).shared_slots.add(row.try_get::<String, _>(1)?);
            }
        }
        Ok(())
    }

    /// Of the one voucher, or of all vouchers of the partition.
    fn of_voucher(&self, sql: &str, word: &str) -> String {
        match self.only {
            Some(voucher) => format!("{sql} {word} voucher_id = {voucher}"),
            None => format!("{sql} {word} TRUE{}", self.partition.condition("voucher_id")),
        }
    }
}

fn voucher(row: &MySqlRow, at: usize) -> sqlx::Result<Option<VoucherId>> {
    Ok(row.try_get::<i64, _>(at)?.try_into().ok())
}

fn stock_row(row: &MySqlRow) -> sqlx::Result<Option<StockRow>> {
    let Some(voucher) = voucher(row, 0)? else { return Ok(None) };
    let (stock, initial_stock) = (row.try_get(1)?, row.try_get(2)?);
    let (has_begun, may_go_on) = (row.try_get::<i64, _>(3)? == 1, row.try_get::<i64, _>(4)? == 1);
    Ok(Some(StockRow { voucher, stock, initial_stock, has_begun, is_over: !may_go_on }))
}

/// `None` for ids that no order of ours can have.
fn order_row(row: &MySqlRow) -> sqlx::Result<Option<AuditRow>> {
    let (Ok(id), Some(voucher)) = (row.try_get::<i64, _>(0)?.try_into(), voucher(row, 2)?) else {
        return Ok(None);
    };
    let (slot, status) = (row.try_get(4)?, row.try_get(5)?);
    let (state, order_state) = (RowState::of(slot, status), RowStatus::of(slot, status));
    let entry = row.try_get::<Option<String>, _>(6)?.and_then(|entry| entry.parse().ok());
    let (user, quantity) = (row.try_get(1)?, row.try_get(3)?);
    Ok(Some(AuditRow { id, user, voucher, quantity, state, order_state, entry }))
}

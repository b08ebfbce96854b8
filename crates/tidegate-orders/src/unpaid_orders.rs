//! Orders that must be paid in time: finds those that are due, by the clock of MySQL, and sets when they are checked
//! again.
//!
//! The ledger writes and deletes the rows, in the transactions of their orders. This module only reads them and puts
//! them off. It also assigns them to the partition of their voucher if the program that wrote them did not. All queries
//! read by an index that begins with the partition, so they cost the same however many rows the other partitions have.

use std::time::Duration;

use serde::Serialize;
use sqlx::{AssertSqlSafe, MySqlConnection, Row, mysql::MySqlRow};

use crate::{
    order::{OrderId, UserId, VoucherId},
    partition::Partition,
};

/// SQL: the server's clock in milliseconds since 1970, whatever the time zone of the session.
pub(crate) const NOW_MS: &str =
    "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000";

/// SQL: the table, read by the index that begins with the partition.
const TABLE: &str = "tidegate_unpaid_order FORCE INDEX (idx_ask)";

/// The maximum number of unpaid orders that [`summary`] reads. The function reads the orders with the earliest time
/// limits.
pub const SUMMED_UP: u32 = 100_000;

/// The most rows that one call of [`assign`] changes.
const ASSIGNED_AT_ONCE: usize = 1_000;

/// An order that must be paid within its time limit, with the order's values in MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpaidOrder {
    /// The id of the order.
    pub order: OrderId,
    /// The user who placed the order.
    pub user: UserId,
    /// The voucher that was bought.
    pub voucher: VoucherId,
}

/// The number of orders that must be paid within a time limit, and the delay of the oldest order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UnpaidSummary {
    /// The number of unpaid orders with a time limit. If the value is at least [`SUMMED_UP`], there may be more orders.
    pub orders: u64,
    /// The number of unpaid orders whose time limit is over.
    pub overdue: u64,
    /// The end of the earliest time limit of any unpaid order, in Unix milliseconds by MySQL's clock. This time may be
    /// in the past.
    pub oldest_due_ms: Option<i64>,
    /// The number of seconds since the earliest time limit ended. 0 if it has not ended.
    pub overdue_s: f64,
}

/// Whether there are more rows of unpaid orders that do not contain their partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// No rows are left, or only rows that other sessions hold.
    All,
    /// Rows may be left; repeat the call.
    Some,
}

/// Sets the partition in rows of unpaid orders that do not contain their partition, for all partitions. Such rows are
/// from workers of earlier versions, or from before a change of the list of partitions. The call skips rows that other
/// sessions have locked, so that one lock does not delay all partitions.
///
/// # Errors
/// Fails if MySQL does not answer. A transaction may then be open, so the session must be closed.
pub async fn assign(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<Assigned> {
    for range in ranges_of_others(partition) {
        let select = format!("SELECT order_id FROM {TABLE} WHERE {range} LIMIT");
        // Nearly always no row is found, and then no transaction is needed.
        let first = sqlx::query(AssertSqlSafe(format!("{select} 1")));
        if first.fetch_optional(&mut *mysql).await?.is_none() {
            continue;
        }
        sqlx::raw_sql("START TRANSACTION").execute(&mut *mysql).await?;
        let lock = format!("{select} {ASSIGNED_AT_ONCE} FOR UPDATE SKIP LOCKED");
        let orders: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(lock)).fetch_all(&mut *mysql).await?;
        let number = orders.len();
        if number > 0 {
            let code = partition.code_in_sql("u.voucher_id");
            let sql = format!("UPDATE {} SET u.partition_code = {code}", joined(orders));
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *mysql).await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut *mysql).await?;
        if number == ASSIGNED_AT_ONCE {
            return Ok(Assigned::Some);
        }
    }
    Ok(Assigned::All)
}

/// The conditions for rows that lack their partition, each a range of the index.
fn ranges_of_others(partition: &Partition) -> [String; 2] {
    let codes = partition.codes();
    [format!("partition_code < {}", codes.start()), format!("partition_code > {}", codes.end())]
}

/// SQL: the rows `u` of these orders, in the order in which the ledger deletes them.
fn joined(mut orders: Vec<i64>) -> String {
    orders.sort_unstable();
    let orders: Vec<String> = orders.iter().map(i64::to_string).collect();
    format!(
        "JSON_TABLE('[{}]', '$[*]' COLUMNS (id BIGINT PATH '$')) n \
         STRAIGHT_JOIN tidegate_unpaid_order u FORCE INDEX (PRIMARY) ON u.order_id = n.id",
        orders.join(",")
    )
}

/// The time until the next order of a partition must be checked. Zero if an order is due now. `None` if no order has a
/// time limit.
///
/// # Errors
/// Fails if MySQL does not answer.
pub async fn next_in(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<Option<Duration>> {
    let sql = format!(
        "SELECT CAST(ask_ms AS SIGNED) - ({NOW_MS}) FROM {TABLE} WHERE partition_code = {} ORDER BY ask_ms LIMIT 1",
        partition.code()
    );
    let left_ms: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(mysql).await?;
    Ok(left_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}

/// Reads up to `most` unpaid orders of a partition that are due, in the order in which they became due.
///
/// # Errors
/// Fails if MySQL does not answer.
pub async fn due(
    mysql: &mut MySqlConnection,
    partition: &Partition,
    most: usize,
) -> sqlx::Result<Vec<UnpaidOrder>> {
    let sql = format!(
        "SELECT order_id, user_id, voucher_id FROM {TABLE} \
         WHERE partition_code = {} AND ask_ms <= {NOW_MS} ORDER BY ask_ms LIMIT {most}",
        partition.code()
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(mysql).await?;
    let orders = rows.iter().map(parse).collect::<sqlx::Result<Vec<_>>>()?;
    Ok(orders.into_iter().flatten().collect())
}

/// Moves the next check of the given unpaid orders into the future by `pause`. Orders that were paid or ended are not
/// checked again.
///
/// # Errors
/// Fails if MySQL does not answer.
pub async fn ask_again(mysql: &mut MySqlConnection, orders: &[OrderId], pause: Duration) -> sqlx::Result<()> {
    if orders.is_empty() {
        return Ok(());
    }
    let named = joined(orders.iter().map(|order| order.get()).collect());
    let sql = format!("UPDATE {named} SET u.ask_ms = {NOW_MS} + {}", pause.as_millis());
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(mysql).await?;
    Ok(())
}

/// Makes all overdue orders of a partition due at once. This includes orders for which an expiry event is already in
/// the stream, because the event may be lost.
///
/// # Errors
/// Fails if MySQL does not answer.
pub async fn ask_at_once(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<()> {
    let sql = format!(
        "UPDATE {TABLE} SET ask_ms = due_ms \
         WHERE partition_code = {} AND ask_ms > due_ms AND due_ms <= {NOW_MS}",
        partition.code()
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(mysql).await?;
    Ok(())
}

/// Counts the unpaid orders of a partition, and finds the delay of the oldest order. The call reads only the index,
/// from the earliest time limit on. So an overdue order is found even among many orders with a long time limit. Rows of
/// the partition that do not contain their partition are included.
///
/// # Errors
/// Fails if MySQL does not answer.
pub async fn summary(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<UnpaidSummary> {
    let (code, own) = (partition.code(), partition.code_in_sql("voucher_id"));
    let [below, above] = ranges_of_others(partition)
        .map(|range| format!("{range} AND {own} = {code} ORDER BY partition_code, ask_ms"));
    let rows = [format!("partition_code = {code} ORDER BY ask_ms"), below, above]
        .map(|wanted| format!("(SELECT due_ms FROM {TABLE} WHERE {wanted} LIMIT {SUMMED_UP})"))
        .join(" UNION ALL ");
    let sql = format!(
        "SELECT COUNT(*), CAST(COALESCE(SUM(u.due_ms <= {NOW_MS}), 0) AS SIGNED), CAST(MIN(u.due_ms) AS SIGNED), \
         CAST({NOW_MS} AS SIGNED) FROM ({rows}) u"
    );
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(mysql).await?;
    let number = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let (oldest_due_ms, now_ms): (Option<i64>, i64) = (row.try_get(2)?, row.try_get(3)?);
    let overdue_ms = oldest_due_ms.map_or(0, |due_ms| u64::try_from(now_ms - due_ms).unwrap_or_default());
    Ok(UnpaidSummary {
        orders: number(0)?,
        overdue: number(1)?,
        oldest_due_ms,
        overdue_s: Duration::from_millis(overdue_ms).as_secs_f64(),
    })
}

/// Parses a row. `None` if another program wrote the row, with numbers that are not valid ids.
fn parse(row: &MySqlRow) -> sqlx::Result<Option<UnpaidOrder>> {
    let numbers: (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (order, user, voucher) =
        (OrderId::try_from(numbers.0), UserId::try_from(numbers.1), VoucherId::try_from(numbers.2));
    Ok(match (order, user, voucher) {
        (Ok(order), Ok(user), Ok(voucher)) => Some(UnpaidOrder { order, user, voucher }),
        _ => None,
    })
}

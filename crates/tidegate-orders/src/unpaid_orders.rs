//! Orders that have to be paid in time: which are due, by the clock of MySQL, and when to look at them again.
//!
//! The rows are written and deleted by the ledger, in the transactions of their orders. Here they are only read, and put off.

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

/// Orders that [`summary`] looks at, those that are to be looked at first.
pub const SUMMED_UP: u32 = 100_000;

/// An order that has to be paid in time, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpaidOrder {
    /// The order.
    pub order: OrderId,
    /// Whose it is.
    pub user: UserId,
    /// Of what.
    pub voucher: VoucherId,
}

/// How many orders have to be paid in time, and how late they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UnpaidSummary {
    /// Orders that are not paid yet and have a limit; of more than [`SUMMED_UP`], so many.
    pub orders: u64,
    /// Of these, the ones whose time is over.
    pub overdue: u64,
    /// When the first of them has to be paid, or had to be: milliseconds since 1970, by the clock of MySQL.
    pub oldest_due_ms: Option<i64>,
    /// Since when its time is over, in seconds; 0: it is not.
    pub overdue_s: f64,
}

/// In how long the next order of a partition is to be looked at; zero: one is due now. None: there is no order with a limit.
///
/// # Errors
/// When MySQL does not answer.
pub async fn next_in(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<Option<Duration>> {
    let own = partition.condition("voucher_id");
    let sql = format!(
        "SELECT CAST(ask_ms AS SIGNED) - ({NOW_MS}) FROM tidegate_unpaid_order FORCE INDEX (idx_ask) \
         WHERE TRUE{own} ORDER BY ask_ms LIMIT 1"
    );
    let left_ms: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(mysql).await?;
    Ok(left_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}

/// Up to `most` orders of a partition that are due, in the order in which they became so.
///
/// # Errors
/// When MySQL does not answer.
pub async fn due(
    mysql: &mut MySqlConnection,
    partition: &Partition,
    most: usize,
) -> sqlx::Result<Vec<UnpaidOrder>> {
    let own = partition.condition("voucher_id");
    let sql = format!(
        "SELECT order_id, user_id, voucher_id FROM tidegate_unpaid_order FORCE INDEX (idx_ask) \
         WHERE ask_ms <= {NOW_MS}{own} ORDER BY ask_ms LIMIT {most}"
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(mysql).await?;
    let orders = rows.iter().map(parse).collect::<sqlx::Result<Vec<_>>>()?;
    Ok(orders.into_iter().flatten().collect())
}

/// Looks at these orders again after `pause`, unless they are paid or ended by then.
///
/// # Errors
/// When MySQL does not answer.
pub async fn ask_again(mysql: &mut MySqlConnection, orders: &[OrderId], pause: Duration) -> sqlx::Result<()> {
    if orders.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
    // In the order in which the ledger deletes them.
    ids.sort_unstable();
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    let sql = format!(
        "UPDATE JSON_TABLE('[{}]', '$[*]' COLUMNS (id BIGINT PATH '$')) n \
         STRAIGHT_JOIN tidegate_unpaid_order u FORCE INDEX (PRIMARY) ON u.order_id = n.id \
         SET u.ask_ms = {NOW_MS} + {}",
        ids.join(","),
        pause.as_millis()
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(mysql).await?;
    Ok(())
}

/// Looks at all orders of a partition whose time is over at once, also at those whose event is on its way: it may be lost.
///
/// # Errors
/// When MySQL does not answer.
pub async fn ask_at_once(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<()> {
    let own = partition.condition("voucher_id");
    let sql = format!(
        "UPDATE tidegate_unpaid_order SET ask_ms = due_ms WHERE ask_ms > due_ms AND due_ms <= {NOW_MS}{own}"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(mysql).await?;
    Ok(())
}

/// How many a partition has, and how late they are. By the index alone, from the end where the late ones are: many that have a long
/// time do not hide one whose short time is over.
///
/// # Errors
/// When MySQL does not answer.
pub async fn summary(mysql: &mut MySqlConnection, partition: &Partition) -> sqlx::Result<UnpaidSummary> {
    let own = partition.condition("voucher_id");
    let sql = format!(
        "SELECT COUNT(*), CAST(COALESCE(SUM(u.due_ms <= {NOW_MS}), 0) AS SIGNED), CAST(MIN(u.due_ms) AS SIGNED), \
         CAST({NOW_MS} AS SIGNED) \
         FROM (SELECT due_ms FROM tidegate_unpaid_order FORCE INDEX (idx_ask) \
         WHERE TRUE{own} ORDER BY ask_ms LIMIT {SUMMED_UP}) u"
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

/// None: somebody else wrote the row, with numbers that are none of ours.
fn parse(row: &MySqlRow) -> sqlx::Result<Option<UnpaidOrder>> {
    let numbers: (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (order, user, voucher) =
        (OrderId::try_from(numbers.0), UserId::try_from(numbers.1), VoucherId::try_from(numbers.2));
    Ok(match (order, user, voucher) {
        (Ok(order), Ok(user), Ok(voucher)) => Some(UnpaidOrder { order, user, voucher }),
        _ => None,
    })
}

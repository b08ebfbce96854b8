//! The unpaid orders of a voucher, in MySQL. Every statement of this operation stands here.
//!
//! All go by the unique key (voucher, user, slot): they read the rows of the voucher, and none of another one.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, MySqlPool, prelude::*};
use tidegate_orders::{OrderId, UserId, VoucherId, row_state::UNPAID_LIVE};

/// MySQL's clock makes `create_time`, so it also says what is old.
const NOW: &str = "SELECT CAST(UNIX_TIMESTAMP() AS SIGNED)";
// Ids beyond 2^63-1 are none of ours.
const OURS: &str = "id BETWEEN 1 AND 9223372036854775807 AND user_id BETWEEN 1 AND 9223372036854775807";

/// Orders of a voucher that are unpaid, hold units, and were written by a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnpaidOrders<'a> {
    mysql: &'a MySqlPool,
    voucher: VoucherId,
    until_s: i64,
}

/// All of them, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnpaidSum {
    pub(super) orders: u64,
    pub(super) units: i64,
    /// When the first of them was written.
    pub(super) oldest: Option<Timestamp>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnpaidOrder {
    pub(super) order: OrderId,
    pub(super) user: UserId,
}

impl<'a> UnpaidOrders<'a> {
    /// Those that are so old now.
    pub(super) async fn older_than(
        mysql: &'a MySqlPool,
        voucher: VoucherId,
        age: Duration,
    ) -> sqlx::Result<Self> {
        let now_s: i64 = sqlx::query_scalar(NOW).fetch_one(mysql).await?;
        let age_s = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        Ok(Self { mysql, voucher, until_s: now_s.saturating_sub(age_s).max(0) })
    }

    /// Those that were written by then.
    pub(super) fn until_moment(mysql: &'a MySqlPool, voucher: VoucherId, until: Timestamp) -> Self {
        Self { mysql, voucher, until_s: until.as_second() }
    }

    pub(super) fn until(&self) -> Timestamp {
        Timestamp::from_second(self.until_s).unwrap_or(Timestamp::MIN)
    }

    fn condition(&self) -> String {
        let Self { voucher, until_s, .. } = self;
        format!(
            "voucher_id = {voucher} AND {UNPAID_LIVE} AND create_time <= FROM_UNIXTIME({until_s}) AND {OURS}"
        )
    }

    pub(super) async fn count(&self) -> sqlx::Result<UnpaidSum> {
        let sql = format!(
            "SELECT CAST(COUNT(*) AS SIGNED), CAST(COALESCE(SUM(quantity), 0) AS SIGNED), \
             CAST(UNIX_TIMESTAMP(MIN(create_time)) AS SIGNED) FROM tb_voucher_order WHERE {}",
            self.condition()
        );
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(self.mysql).await?;
        let (orders, oldest_s) = (row.try_get::<i64, _>(0)?, row.try_get::<Option<i64>, _>(2)?);
        Ok(UnpaidSum {
            orders: orders.unsigned_abs(),
            units: row.try_get(1)?,
            oldest: oldest_s.and_then(|s| Timestamp::from_second(s).ok()),
        })
    }

    /// Begins to read them, in the order of the key. One that leaves them meanwhile is passed over.
    pub(super) fn pages(self) -> UnpaidPages<'a> {
        UnpaidPages { orders: self, after: (0, 0) }
    }
}

/// Reads unpaid orders page by page.
#[derive(Debug)]
pub(super) struct UnpaidPages<'a> {
    orders: UnpaidOrders<'a>,
    /// User and slot of the last that was read.
    after: (i64, i64),
}

impl UnpaidPages<'_> {
    /// Up to `limit` more; empty at the end.
    pub(super) async fn next(&mut self, limit: usize) -> sqlx::Result<Vec<UnpaidOrder>> {
        let ((user, slot), condition) = (self.after, self.orders.condition());
        // Not as a comparison of pairs: servers do not find their place in the key by these.
        let sql = format!(
            "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(slot AS SIGNED) FROM tb_voucher_order \
             FORCE INDEX (uk_voucher_user_slot) WHERE {condition} AND user_id >= {user} \
             AND (user_id > {user} OR slot > {slot}) ORDER BY voucher_id, user_id, slot LIMIT {limit}"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.orders.mysql).await?;
        let mut page = Vec::with_capacity(rows.len());
        for row in rows {
            let (order, user, slot): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            self.after = (user, slot);
            if let (Ok(order), Ok(user)) = (OrderId::try_from(order), UserId::try_from(user)) {
                page.push(UnpaidOrder { order, user });
            }
        }
        Ok(page)
    }
}

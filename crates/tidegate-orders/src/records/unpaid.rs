//! The unpaid orders of a voucher that hold units. All queries use the unique key (voucher, user, slot): they read the
//! rows of this voucher only.

use sqlx::{Row, mysql::MySqlRow};

use super::{Records, Result, parsed};
use crate::{
    order::{OrderId, UserId, VoucherId},
    row_state::UNPAID_LIVE,
};

/// The condition for valid ids: ids beyond 2^63-1 are none.
const OURS: &str = "id BETWEEN 1 AND 9223372036854775807 AND user_id BETWEEN 1 AND 9223372036854775807";

/// The number of a voucher's unpaid orders, and the number of units in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpaidSum {
    /// The number of unpaid orders.
    pub orders: u64,
    /// The total number of units in the unpaid orders.
    pub units: i64,
    /// The time at which the oldest unpaid order was written, in Unix seconds by MySQL's clock.
    pub oldest_s: Option<i64>,
}

/// The user and the slot of an order: its position in the unique key of voucher, user and slot.
pub type UnpaidKey = (i64, i64);

/// An unpaid order that still takes units of the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpaidLive {
    /// The id of the order.
    pub order: OrderId,
    /// The user of the order.
    pub user: UserId,
    /// The position of the order in the unique key of voucher, user and slot: its user and its slot.
    pub key: UnpaidKey,
}

fn condition(voucher: VoucherId, until_s: i64) -> String {
    format!("voucher_id = {voucher} AND {UNPAID_LIVE} AND create_time <= FROM_UNIXTIME({until_s}) AND {OURS}")
}

/// Access to the unpaid orders of vouchers in MySQL.
#[derive(Clone, Copy, Debug)]
pub struct UnpaidRows<'a>(pub(super) Records<'a>);

impl UnpaidRows<'_> {
    /// Counts the unpaid orders of a voucher that were written in or before the given second.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn count(self, voucher: VoucherId, until_s: i64) -> Result<UnpaidSum> {
        let sql = format!(
            "SELECT CAST(COUNT(*) AS SIGNED), CAST(COALESCE(SUM(quantity), 0) AS SIGNED), \
             CAST(UNIX_TIMESTAMP(MIN(create_time)) AS SIGNED) FROM {} WHERE {}",
            self.0.tables.orders,
            condition(voucher, until_s)
        );
        let rows = self.0.rows(sql).await?;
        let Some(row) = rows.first() else { return Ok(UnpaidSum::default()) };
        let orders = row.try_get::<i64, _>(0)?.unsigned_abs();
        Ok(UnpaidSum { orders, units: row.try_get(1)?, oldest_s: row.try_get(2)? })
    }

    /// Reads up to `limit` unpaid orders of a voucher, sorted by their keys (user and slot). The page begins after the
    /// given user and slot. An empty page means that there are no more orders.
    ///
    /// # Errors
    /// Fails like [`UnpaidRows::count`].
    pub async fn page_after(
        self,
        (voucher, until_s): (VoucherId, i64),
        (user, slot): UnpaidKey,
        limit: usize,
    ) -> Result<Vec<UnpaidLive>> {
        // Not a comparison of pairs: servers do not use the key for it.
        let sql = format!(
            "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(slot AS SIGNED) FROM {} \
             FORCE INDEX (uk_voucher_user_slot) WHERE {} AND user_id >= {user} \
             AND (user_id > {user} OR slot > {slot}) ORDER BY voucher_id, user_id, slot LIMIT {limit}",
            self.0.tables.orders,
            condition(voucher, until_s)
        );
        let unpaid = |row: &MySqlRow| {
            let key: UnpaidKey = (row.try_get(1)?, row.try_get(2)?);
            let ids = row.try_get::<i64, _>(0)?.try_into().ok().zip(key.0.try_into().ok());
            Ok(ids.map(|(order, user)| UnpaidLive { order, user, key }))
        };
        parsed(&self.0.rows(sql).await?, unpaid)
    }
}

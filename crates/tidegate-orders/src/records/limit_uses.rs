//! What orders used of limits, by MySQL: `tidegate_limit_use`. It knows whatever the journals do not know any more.

use std::collections::HashMap;

use sqlx::{Row, mysql::MySqlRow};

use super::{PAGE, Records, Result, parsed};
use crate::{
    order::{OrderId, Slot, UserId, Uses, VoucherId},
    records::journal::UnderLimits,
    row_state::LIVE,
};

/// A live order of a voucher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOrder {
    /// The order.
    pub order: OrderId,
    /// The user.
    pub user: UserId,
    /// Units.
    pub units: u64,
    /// The slot.
    pub slot: Slot,
    /// What the order used of limits; None: it was admitted under none.
    pub uses: Option<Uses>,
    /// When it was written, in Unix milliseconds by MySQL's clock, to the second; None: the row does not say.
    pub created_ms: Option<i64>,
}

fn uses_at(row: &MySqlRow, at: usize) -> sqlx::Result<Option<Uses>> {
    Ok(row.try_get::<Option<Vec<u8>>, _>(at)?.and_then(|uses| Uses::parse(&uses)))
}

/// An order and what it used, of the columns `order_id, uses`.
fn uses_of(row: &MySqlRow) -> sqlx::Result<Option<(OrderId, Uses)>> {
    Ok(row.try_get::<i64, _>(0)?.try_into().ok().zip(uses_at(row, 1)?))
}

/// What orders used of limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitUseRows<'a>(pub(super) Records<'a>);

impl LimitUseRows<'_> {
    /// A page of the live orders of a voucher, after this user and slot, in their order. Empty: there are no more.
    ///
    /// # Errors
    /// When MySQL does not answer or the tables are not ready.
    pub async fn live_page(self, voucher: VoucherId, (user, slot): (i64, i64)) -> Result<Vec<LiveOrder>> {
        // In the order of the unique key.
        let sql = format!(
            "SELECT CAST(o.id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.quantity AS SIGNED), CAST(o.slot AS SIGNED), \
             u.uses, CAST(UNIX_TIMESTAMP(o.create_time) * 1000 AS SIGNED) FROM {} o \
             LEFT JOIN {} u ON u.order_id = o.id WHERE o.voucher_id = {voucher} AND o.user_id >= {user} \
             AND (o.user_id > {user} OR o.slot > {slot}) AND {LIVE} \
             ORDER BY o.voucher_id, o.user_id, o.slot LIMIT {PAGE}",
            self.0.tables.orders, self.0.tables.limit_uses
        );
        let live = |row: &MySqlRow| {
            let number = |at| row.try_get::<i64, _>(at);
            let (order, user, slot) = (number(0)?.try_into(), number(1)?.try_into(), number(3)?.try_into());
            let (Ok(order), Ok(user), Ok(slot)) = (order, user, slot) else { return Ok(None) };
            let (units, uses, created_ms) = (number(2)?.unsigned_abs(), uses_at(row, 4)?, row.try_get(5)?);
            Ok(Some(LiveOrder { order, user, units, slot, uses, created_ms }))
        };
        parsed(&self.0.rows(sql).await?, live)
    }

    /// What these orders used of limits, whatever became of them since.
    ///
    /// # Errors
    /// As [`LimitUseRows::live_page`].
    pub async fn by_orders(self, orders: &[OrderId]) -> Result<HashMap<OrderId, Uses>> {
        let table = self.0.tables.limit_uses;
        let sql = |ids: &str| format!("SELECT order_id, uses FROM {table} WHERE order_id IN ({ids})");
        Ok(parsed(&self.0.rows_of(orders, sql).await?, uses_of)?.into_iter().collect())
    }

    /// What these orders used of limits, with their slots: of those that were admitted under some and hold a slot.
    ///
    /// # Errors
    /// As [`LimitUseRows::live_page`].
    pub async fn held(self, orders: &[OrderId]) -> Result<HashMap<OrderId, UnderLimits>> {
        let sql = |ids: &str| {
            format!(
                "SELECT u.order_id, u.uses, CAST(o.slot AS SIGNED) FROM {} u JOIN {} o ON o.id = u.order_id \
                 WHERE u.order_id IN ({ids}) AND o.slot IS NOT NULL",
                self.0.tables.limit_uses, self.0.tables.orders
            )
        };
        let held = |row: &MySqlRow| {
            let slot = row.try_get::<i64, _>(2)?.try_into().ok();
            Ok(uses_of(row)?.zip(slot).map(|((order, uses), slot)| (order, UnderLimits { slot, uses })))
        };
        Ok(parsed(&self.0.rows_of(orders, sql).await?, held)?.into_iter().collect())
    }
}

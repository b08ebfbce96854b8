//! The uses of limits by orders, in the table `tidegate_limit_use`. It also holds uses that the journals no longer
//! hold.

use std::collections::HashMap;

use sqlx::{Row, mysql::MySqlRow};

use super::{PAGE, Records, Result, parsed};
use crate::{
    order::{OrderId, Slot, UserId, Uses, VoucherId},
    records::journal::UnderLimits,
    row_state::LIVE,
};

/// A live order of a voucher (not cancelled, refunded or refused), with the limits that it counts against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOrder {
    /// The id of the order.
    pub order: OrderId,
    /// The user of the order.
    pub user: UserId,
    /// The number of units in the order.
    pub units: u64,
    /// The slot of the order: its number, from 1, among the user's orders of the voucher.
    pub slot: Slot,
    /// The limits that the order counts against. `None` if the voucher had no limits when the order was placed.
    pub uses: Option<Uses>,
    /// The time at which the row was written, in Unix milliseconds by MySQL's clock, in whole seconds. `None` if the
    /// row does not have this time.
    pub created_ms: Option<i64>,
}

fn uses_at(row: &MySqlRow, at: usize) -> sqlx::Result<Option<Uses>> {
    Ok(row.try_get::<Option<Vec<u8>>, _>(at)?.and_then(|uses| Uses::parse(&uses)))
}

/// Parses an order and its uses from the columns `order_id, uses`.
fn uses_of(row: &MySqlRow) -> sqlx::Result<Option<(OrderId, Uses)>> {
    Ok(row.try_get::<i64, _>(0)?.try_into().ok().zip(uses_at(row, 1)?))
}

/// Access to the rows in MySQL with the limits that an order counts against.
#[derive(Clone, Copy, Debug)]
pub struct LimitUseRows<'a>(pub(super) Records<'a>);

impl LimitUseRows<'_> {
    /// Reads a page of a voucher's live orders (not cancelled, refunded or refused), sorted by user and slot. A slot is
    /// the order's number among the user's live orders. The page begins after the given user and slot. An empty page
    /// means that there are no more orders.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn live_page(self, voucher: VoucherId, (user, slot): (i64, i64)) -> Result<Vec<LiveOrder>> {
        // The rows come in the order of the unique key.
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

    /// Reads for each given order the limits that it counts against. The state of the order does not matter.
    ///
    /// # Errors
    /// Fails like [`LimitUseRows::live_page`].
    pub async fn by_orders(self, orders: &[OrderId]) -> Result<HashMap<OrderId, Uses>> {
        let table = self.0.tables.limit_uses;
        let sql = |ids: &str| format!("SELECT order_id, uses FROM {table} WHERE order_id IN ({ids})");
        Ok(parsed(&self.0.rows_of(orders, sql).await?, uses_of)?.into_iter().collect())
    }

    /// Reads the slots of the given orders (their numbers among the user's orders), and the limits that the orders
    /// count against. Ended orders, and orders of vouchers without limits, are left out.
    ///
    /// # Errors
    /// Fails like [`LimitUseRows::live_page`].
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

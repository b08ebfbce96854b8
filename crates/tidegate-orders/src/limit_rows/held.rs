//! What orders used of limits, by MySQL: whatever the journals do not know any more.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, MySqlPool};

use super::owner_columns;
use crate::{
    limits::LimitOwner,
    lists::MOST_LISTED,
    order::{OrderId, Slot, UserId, Uses, VoucherId},
    row_state::LIVE,
    vouchers::VoucherError,
};

/// Rows a page.
const PAGE: u32 = 1_000;

/// A live row of a voucher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOrder {
    /// The order.
    pub order: OrderId,
    /// Whose.
    pub user: UserId,
    /// Its units.
    pub units: u64,
    /// Its slot.
    pub slot: Slot,
    /// What it used of limits; None: it was admitted under none.
    pub uses: Option<Uses>,
    /// When it was written, in Unix milliseconds by MySQL's clock, to the second; None: it does not say.
    pub created_ms: Option<i64>,
}

/// A page of the live rows of a voucher, behind this user and slot, in their order. Empty: there are no more.
///
/// # Errors
/// When MySQL does not answer or the tables are not ready.
pub async fn live_page(
    pool: &MySqlPool,
    voucher: VoucherId,
    (user, slot): (i64, i64),
) -> Result<Vec<LiveOrder>, VoucherError> {
    // In the order of the unique key.
    let sql = format!(
        "SELECT CAST(o.id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.quantity AS SIGNED), CAST(o.slot AS SIGNED), u.uses, \
         CAST(UNIX_TIMESTAMP(o.create_time) * 1000 AS SIGNED) FROM tb_voucher_order o \
         LEFT JOIN tidegate_limit_use u ON u.order_id = o.id WHERE o.voucher_id = {voucher} AND o.user_id >= {user} \
         AND (o.user_id > {user} OR o.slot > {slot}) AND {LIVE} \
         ORDER BY o.voucher_id, o.user_id, o.slot LIMIT {PAGE}"
    );
    type Row = (i64, i64, i64, i64, Option<Vec<u8>>, Option<i64>);
    let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_all(pool).await?;
    let read = |(order, user, units, slot, uses, created_ms): Row| {
        let uses = uses.and_then(|uses| Uses::parse(&uses));
        let (order, user, slot) = (order.try_into().ok()?, user.try_into().ok()?, slot.try_into().ok()?);
        Some(LiveOrder { order, user, units: units.unsigned_abs(), slot, uses, created_ms })
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// What these orders used of limits, whatever became of them since.
///
/// # Errors
/// As [`live_page`].
pub async fn used_by(pool: &MySqlPool, orders: &[OrderId]) -> Result<HashMap<OrderId, Uses>, VoucherError> {
    let mut used = HashMap::new();
    for orders in orders.chunks(MOST_LISTED) {
        let ids: Vec<String> = orders.iter().map(OrderId::to_string).collect();
        let sql =
            format!("SELECT order_id, uses FROM tidegate_limit_use WHERE order_id IN ({})", ids.join(","));
        let rows: Vec<(i64, Vec<u8>)> =
            sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_all(pool).await?;
        used.extend(
            rows.into_iter().filter_map(|(id, uses)| Some((id.try_into().ok()?, Uses::parse(&uses)?))),
        );
    }
    Ok(used)
}

/// When each limit of an owner, by its number, was given the numbers that it has, in Unix milliseconds by MySQL's clock.
///
/// # Errors
/// As [`live_page`].
pub async fn set_at_ms(pool: &MySqlPool, owner: LimitOwner) -> Result<HashMap<u32, i64>, VoucherError> {
    let (kind, id) = owner_columns(owner);
    let sql = "SELECT CAST(number AS SIGNED), CAST(UNIX_TIMESTAMP(set_at) * 1000 AS SIGNED) FROM tidegate_limit \
               WHERE owner_kind = ? AND owner_id = ?";
    let rows: Vec<(i64, i64)> = sqlx::query_as(sql).bind(kind).bind(id).fetch_all(pool).await?;
    Ok(rows.into_iter().filter_map(|(number, set_ms)| Some((number.try_into().ok()?, set_ms))).collect())
}

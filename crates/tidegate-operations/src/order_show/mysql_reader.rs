//! What MySQL holds of single orders: their rows and refusals.

use std::collections::{HashMap, HashSet};

use serde::{Serialize, Serializer};
use sqlx::{AssertSqlSafe, MySqlPool, mysql::MySqlRow, prelude::*};
use tidegate_stream::EntryId;

use tidegate_orders::{
    OrderFacts, OrderStatus, Partition,
    order::{OrderId, UserId, VoucherId},
    order_status::RowFact,
    row_state::RowState,
    vouchers::VoucherError,
};

/// Ids a lookup.
pub(super) const LOOKUP: usize = 1_000;

// Ids may be signed or not, entry ids and reasons of any character set. A zero date, which old servers allow, is 0.
const ROWS: &str = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
    CAST(quantity AS SIGNED), CAST(slot AS SIGNED), CAST(COALESCE(status, 1) AS SIGNED), CAST(entry_id AS CHAR)";
/// The tutorial's moments. Not every table that was taken over has them, and the worker needs none of them.
const MOMENTS: [&str; 5] = ["create_time", "pay_time", "use_time", "refund_time", "update_time"];
const COLUMNS: &str = "SELECT CAST(LOWER(column_name) AS CHAR) FROM information_schema.columns \
    WHERE table_schema = DATABASE() AND table_name = 'tb_voucher_order'";
const REFUSALS: &str = "SELECT order_id, user_id, voucher_id, CAST(quantity AS SIGNED), CAST(reason AS CHAR), \
    CAST(entry_id AS CHAR), CAST(UNIX_TIMESTAMP(at) * 1000 AS SIGNED) FROM tidegate_refusal";

/// A row of `tb_voucher_order`. Times are Unix milliseconds; MySQL keeps whole seconds of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrderRow {
    /// Its id.
    pub order: OrderId,
    /// Whose it is; a number of the tutorial's may be none that we know as an id.
    #[serde(serialize_with = "as_text")]
    pub user: i64,
    /// What was bought.
    #[serde(serialize_with = "as_text")]
    pub voucher: i64,
    /// How many units.
    pub quantity: i64,
    /// NULL once it is given up.
    pub slot: Option<i64>,
    /// As the tutorial counts: 1 unpaid, 2 paid, 3 used, 4 cancelled, 5 refunding, 6 refunded.
    pub status: i64,
    /// The entry that brought it, as it is written there.
    pub entry: Option<String>,
    /// When it was written.
    pub created_ms: Option<i64>,
    /// When it was paid.
    pub paid_ms: Option<i64>,
    /// When it was used.
    pub used_ms: Option<i64>,
    /// When it was refunded.
    pub refunded_ms: Option<i64>,
    /// When it was last changed.
    pub updated_ms: Option<i64>,
}

/// A row of `tidegate_refusal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalRow {
    /// The order that was refused.
    pub order: OrderId,
    /// Whose it was.
    #[serde(serialize_with = "as_text")]
    pub user: i64,
    /// What was to be bought.
    #[serde(serialize_with = "as_text")]
    pub voucher: i64,
    /// How many units.
    pub quantity: i64,
    /// `user_has_order` or `out_of_stock`.
    pub reason: String,
    /// The entry that brought it.
    pub entry: String,
    /// When, in Unix milliseconds.
    pub at_ms: Option<i64>,
}

/// JSON numbers lose digits above 2^53.
pub(super) fn as_text<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The row of an order.
///
/// # Errors
/// When MySQL does not answer or the tables are not ready.
pub async fn find_row(pool: &MySqlPool, order: OrderId) -> Result<Option<OrderRow>, VoucherError> {
    Ok(rows(pool, &format!("WHERE id = {order}")).await?.pop())
}

/// The refusal of an order.
///
/// # Errors
/// As [`find_row`].
pub async fn find_refusal(pool: &MySqlPool, order: OrderId) -> Result<Option<RefusalRow>, VoucherError> {
    Ok(refusals(pool, &format!("{REFUSALS} WHERE order_id = {order}")).await?.pop())
}

/// The rows of these orders, those that there are.
///
/// # Errors
/// As [`find_row`].
pub async fn find_rows(pool: &MySqlPool, orders: &[OrderId]) -> Result<Vec<OrderRow>, VoucherError> {
    let mut found = Vec::new();
    for orders in orders.chunks(LOOKUP) {
        found.extend(rows(pool, &format!("WHERE id IN ({})", listed(orders))).await?);
    }
    Ok(found)
}

/// The refusals of these orders, those that there are.
///
/// # Errors
/// As [`find_row`].
pub async fn find_refusals(pool: &MySqlPool, orders: &[OrderId]) -> Result<Vec<RefusalRow>, VoucherError> {
    let mut found = Vec::new();
    for orders in orders.chunks(LOOKUP) {
        let sql = format!("{REFUSALS} WHERE order_id IN ({})", listed(orders));
        found.extend(refusals(pool, &sql).await?);
    }
    Ok(found)
}

/// Ids for SQL.
pub(super) fn listed(orders: &[OrderId]) -> String {
    orders.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Up to `limit` rows of a user, of these vouchers. Without a user, those of the vouchers with the highest ids.
///
/// # Errors
/// As [`find_row`].
pub async fn rows_of(
    pool: &MySqlPool,
    user: Option<UserId>,
    vouchers: &[VoucherId],
    limit: usize,
) -> Result<Vec<OrderRow>, VoucherError> {
    let Some(condition) = condition(user, vouchers) else { return Ok(Vec::new()) };
    // A user has few. With an order, the server might go through all orders from the last on, to find them sorted.
    let order = if user.is_some() { "" } else { "ORDER BY id DESC" };
    rows(pool, &format!("WHERE {condition} {order} LIMIT {limit}")).await
}

/// The rows that count of these users, each for a voucher: a few for each.
///
/// # Errors
/// As [`find_row`].
pub async fn live_rows_of(
    pool: &MySqlPool,
    buyers: &[(VoucherId, UserId)],
) -> Result<Vec<OrderRow>, VoucherError> {
    let mut found = Vec::new();
    for buyers in buyers.chunks(LOOKUP) {
        let pairs: Vec<String> = buyers.iter().map(|(voucher, user)| format!("({voucher},{user})")).collect();
        let condition = format!("WHERE (voucher_id, user_id) IN ({}) AND slot IS NOT NULL", pairs.join(","));
        found.extend(rows(pool, &condition).await?);
    }
    Ok(found)
}

/// Up to `limit` refusals of a partition, of a user, of a voucher, or of both. Reads the whole table, which has no index for this.
///
/// # Errors
/// As [`find_row`].
pub async fn refusals_of(
    pool: &MySqlPool,
    partition: &Partition,
    (user, voucher): (Option<UserId>, Option<VoucherId>),
    limit: usize,
) -> Result<Vec<RefusalRow>, VoucherError> {
    let of_user = user.map(|user| format!(" AND user_id = {user}")).unwrap_or_default();
    let of_voucher = voucher.map(|voucher| format!(" AND voucher_id = {voucher}")).unwrap_or_default();
    let condition = format!("TRUE{of_user}{of_voucher}{}", partition.condition("voucher_id"));
    refusals(pool, &format!("{REFUSALS} WHERE {condition} ORDER BY order_id DESC LIMIT {limit}")).await
}

/// Where these orders are by MySQL alone, if it has decided on them. An id that belongs to another user or voucher is not decided.
///
/// # Errors
/// As [`find_row`].
pub async fn decided(
    pool: &MySqlPool,
    orders: &[(OrderId, UserId, VoucherId)],
) -> Result<HashMap<OrderId, OrderStatus>, VoucherError> {
    let mut facts: HashMap<OrderId, OrderFacts> = HashMap::new();
    let ids: Vec<OrderId> = orders.iter().map(|(order, ..)| *order).collect();
    let owners: HashSet<(OrderId, i64, i64)> =
        orders.iter().map(|(order, user, voucher)| (*order, user.get(), voucher.get())).collect();
    for it in find_refusals(pool, &ids).await? {
        if owners.contains(&(it.order, it.user, it.voucher)) {
            facts.entry(it.order).or_insert(OrderFacts::NOTHING).is_refused = true;
        }
    }
    for row in find_rows(pool, &ids).await? {
        if owners.contains(&(row.order, row.user, row.voucher)) {
            facts.entry(row.order).or_insert(OrderFacts::NOTHING).row = RowFact::Own(row.state());
        }
    }
    Ok(facts.into_iter().map(|(order, facts)| (order, facts.status())).collect())
}

/// One range of the unique key a voucher: the orders have no index of the user alone.
fn condition(user: Option<UserId>, vouchers: &[VoucherId]) -> Option<String> {
    if vouchers.is_empty() {
        return None;
    }
    let vouchers: Vec<String> = vouchers.iter().map(ToString::to_string).collect();
    let vouchers = format!("voucher_id IN ({})", vouchers.join(","));
    Some(user.map_or_else(|| vouchers.clone(), |user| format!("{vouchers} AND user_id = {user}")))
}

async fn rows(pool: &MySqlPool, condition: &str) -> Result<Vec<OrderRow>, VoucherError> {
    let columns: Vec<String> = sqlx::query_scalar(COLUMNS).fetch_all(pool).await?;
    let moment = |name: &str| match columns.iter().any(|column| column == name) {
        true => format!(", CAST(UNIX_TIMESTAMP({name}) * 1000 AS SIGNED)"),
        false => ", CAST(NULL AS SIGNED)".to_owned(),
    };
    let moments: String = MOMENTS.iter().map(|name| moment(name)).collect();
    let sql = format!("{ROWS}{moments} FROM tb_voucher_order {condition}");
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(pool).await?;
    Ok(rows.iter().filter_map(|row| order_row(row).transpose()).collect::<sqlx::Result<_>>()?)
}

async fn refusals(pool: &MySqlPool, sql: &str) -> Result<Vec<RefusalRow>, VoucherError> {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(pool).await?;
    Ok(rows.iter().filter_map(|row| refusal_row(row).transpose()).collect::<sqlx::Result<_>>()?)
}

/// None for ids that no order of ours can have.
fn order_row(row: &MySqlRow) -> sqlx::Result<Option<OrderRow>> {
    let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
    let moment = |at: usize| row.try_get::<Option<i64>, _>(at).map(|ms| ms.filter(|ms| *ms > 0));
    Ok(Some(OrderRow {
        order,
        user: row.try_get(1)?,
        voucher: row.try_get(2)?,
        quantity: row.try_get(3)?,
        slot: row.try_get(4)?,
        status: row.try_get(5)?,
        entry: row.try_get(6)?,
        created_ms: moment(7)?,
        paid_ms: moment(8)?,
        used_ms: moment(9)?,
        refunded_ms: moment(10)?,
        updated_ms: moment(11)?,
    }))
}

fn refusal_row(row: &MySqlRow) -> sqlx::Result<Option<RefusalRow>> {
    let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
    Ok(Some(RefusalRow {
        order,
        user: row.try_get(1)?,
        voucher: row.try_get(2)?,
        quantity: row.try_get(3)?,
        reason: row.try_get(4)?,
        entry: row.try_get(5)?,
        at_ms: row.try_get(6)?,
    }))
}

impl OrderRow {
    /// The entry that brought it.
    #[must_use]
    pub fn entry_id(&self) -> Option<EntryId> {
        self.entry.as_deref()?.parse().ok()
    }

    /// Whether it counts.
    #[must_use]
    pub fn state(&self) -> RowState {
        RowState::of(self.slot, Some(self.status))
    }
}

//! The MySQL rows of vouchers: the statements that read, insert and change single rows.

mod locked_rows;
pub mod upcoming;
mod voucher_lock;
pub mod windows;

use serde::Serialize;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, MySqlPool, mysql::MySqlRow, prelude::*};

use super::{RecordsError, Tables, listed};
use crate::{
    lists::MOST_LISTED,
    mysql_error::{is_duplicate_key, is_value_out_of_range},
    order::VoucherId,
    partition::Partition,
    sale_window::{NO_END_FROM_MS, SaleWindow},
};

pub use crate::sale_window::NO_END_MS;

pub use locked_rows::RowRefusal;
pub(crate) use locked_rows::{LockedRows, lock_rows};
pub use voucher_lock::{KnownOrder, VoucherLock, VoucherLockError};

/// The statement that creates the view; this module uses its SELECT, too.
const UNITS_VIEW: &str = include_str!("../../../../migrations/0020_voucher_units_view.sql");

/// The latest time that a TIMESTAMP column can hold: 2038-01-19T03:14:07Z, in Unix milliseconds.
pub const LATEST_MS: i64 = 2_147_483_647_000;

/// The row of a voucher: its stock and the times of its sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherRow {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The number of units that the voucher has left.
    pub stock: i64,
    /// The number of units that the sale of the voucher has had in total. `None` if this number is unknown.
    pub initial_stock: Option<i64>,
    /// The beginning of the sale, in Unix milliseconds.
    pub begin_ms: Option<i64>,
    /// The end of the sale, in Unix milliseconds. `None` if the row has no end, or one from the last day of 2037 on.
    pub end_ms: Option<i64>,
    /// The time limit for the payment of an order, in seconds. 0 if the order never expires. `None` if the
    /// configuration decides.
    pub pay_within_s: Option<i64>,
    /// The time at which the voucher was delisted (its sale ended permanently), in Unix milliseconds. `None` if the
    /// voucher is not delisted.
    pub delisted_ms: Option<i64>,
}

impl VoucherRow {
    /// The window of the sale.
    #[must_use]
    pub fn window(&self) -> SaleWindow {
        SaleWindow::of_ms(self.begin_ms, self.end_ms)
    }
}

/// The numbers of a voucher's units in MySQL by the status of their orders: a row of the view `tidegate_voucher_units`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VoucherUnits {
    /// The number of units that the sale had in total. `None` if this number is unknown.
    pub loaded: Option<i64>,
    /// The number of units that no order has taken.
    pub unsold: Option<i64>,
    /// The number of units in orders that are not paid yet.
    pub unpaid: i64,
    /// The number of units in paid orders.
    pub paid: i64,
    /// The number of units in used (redeemed) orders.
    pub used: i64,
    /// The number of units in orders whose payment is being refunded. The units return to the stock when the refund is
    /// done.
    pub refunding: i64,
    /// The number of units that ended orders returned to the stock. These units are unsold, or sold again.
    pub released: i64,
    /// The loaded units minus the units in used (redeemed) orders. If a shop hands out goods when an order is used, the
    /// shop still has this number of goods.
    pub on_hand: Option<i64>,
    /// The number of units in contradictory rows: status and slot of the row do not agree whether the order has ended.
    pub contradictory: i64,
    /// The loaded units minus the unsold units and the units of all orders. The number is 0, unless another program
    /// changed orders without changing the stock, or the stock without changing orders.
    pub unaccounted: Option<i64>,
}

/// A voucher to put on sale. MySQL stores its times in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewVoucher {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The number of units to sell.
    pub stock: i64,
    /// The beginning of the sale, in Unix milliseconds. `None` if the sale begins now.
    pub begin_ms: Option<i64>,
    /// The end of the sale, in Unix milliseconds. `None` if the sale has no end: the row then gets [`NO_END_MS`].
    pub end_ms: Option<i64>,
    /// The time limit for the payment of an order, in seconds. 0 if the order never expires. `None` if the
    /// configuration decides.
    pub pay_within_s: Option<i64>,
    /// Whether the programs that sell the voucher keep a journal (the changes of its stock) in Redis.
    pub keeps_journal: bool,
}

/// The result of inserting the row of a voucher: inserted, or already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The row was inserted.
    New,
    /// The row existed already, and nothing was changed.
    Existed,
    /// The insert was refused, because the column cannot hold that number of units.
    TooMany,
}

/// SQL: the sale has begun, by the clock of MySQL.
pub(super) const HAS_BEGUN: &str = "COALESCE(begin_time <= NOW(), 1)";
/// SQL: the sale has not ended, by the clock of MySQL. A zero date, which old servers allow, is no end.
pub(super) const NOT_OVER: &str = "COALESCE(end_time + 0 = 0 OR end_time > NOW(), 1)";
/// SQL: the sale is within its time, and not delisted.
const IS_OPEN: &str = "{has_begun} AND {not_over} AND delisted_at IS NULL";
/// SQL: the begin of the sale as the row has it, in Unix milliseconds. The server gives 0 for a time that it cannot
/// convert.
const BEGIN_MS: &str = "NULLIF(CAST(UNIX_TIMESTAMP(begin_time) * 1000 AS SIGNED), 0)";
/// SQL: the end of the sale, likewise. NULL also if the row says that the sale has no end.
const END_MS: &str = "IF(UNIX_TIMESTAMP(end_time) * 1000 < {no_end_from_ms}, \
    NULLIF(CAST(UNIX_TIMESTAMP(end_time) * 1000 AS SIGNED), 0), NULL)";
/// SQL: the columns that [`VoucherRow`] needs.
const COLUMNS: &str = "CAST(voucher_id AS SIGNED) AS voucher, CAST(stock AS SIGNED) AS stock, initial_stock, \
    {begin_ms} AS begin_ms, {end_ms} AS end_ms, CAST(pay_within AS SIGNED) AS pay_within_s, \
    CAST(UNIX_TIMESTAMP(delisted_at) * 1000 AS SIGNED) AS delisted_ms";

/// The statement that reads rows of vouchers, for [`named`].
fn select_rows(rest: &str) -> String {
    format!("SELECT {COLUMNS} FROM {{vouchers}} {rest}")
}

/// `sql` with the names of the tables, at `{vouchers}` and `{orders}`, and with the expressions for times.
fn named(sql: &str) -> AssertSqlSafe<String> {
    let Tables { vouchers, orders, .. } = Tables::DEFAULT;
    let no_end_from_ms = NO_END_FROM_MS.to_string();
    let expressions = [
        ("{has_begun}", HAS_BEGUN),
        ("{not_over}", NOT_OVER),
        ("{begin_ms}", BEGIN_MS),
        ("{end_ms}", END_MS),
        ("{no_end_from_ms}", &no_end_from_ms),
        ("{vouchers}", vouchers),
        ("{orders}", orders),
    ];
    let replaced = expressions.iter().fold(sql.to_owned(), |sql, (name, text)| sql.replace(name, text));
    AssertSqlSafe(replaced)
}

/// The same, with a condition at `{own}` that selects only the vouchers of a partition.
fn of_partition(sql: &str, partition: &Partition) -> AssertSqlSafe<String> {
    named(&sql.replace("{own}", &partition.condition("voucher_id")))
}

/// Reads the row of a voucher.
///
/// # Errors
/// Fails if MySQL does not answer or the tables are not ready.
pub async fn find(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<VoucherRow>, RecordsError> {
    let row = sqlx::query(named(&select_rows("WHERE voucher_id = ?")))
        .bind(voucher.get())
        .fetch_optional(pool)
        .await?;
    row.map(|row| parse(&row)).transpose()
}

/// Locks the row of a voucher and reads it, with the number of its refused orders.
async fn find_for_update(
    session: &mut MySqlConnection,
    voucher: VoucherId,
) -> Result<Option<(VoucherRow, i64)>, RecordsError> {
    let row = sqlx::query(named(&select_rows("WHERE voucher_id = ? FOR UPDATE")));
    let Some(row) = row.bind(voucher.get()).fetch_optional(&mut *session).await? else { return Ok(None) };
    let refusals = "SELECT CAST(refusals AS SIGNED) FROM {vouchers} WHERE voucher_id = ?";
    let refusals = sqlx::query_scalar(named(refusals)).bind(voucher.get()).fetch_one(session).await?;
    Ok(Some((parse(&row)?, refusals)))
}

/// Reads up to `limit` vouchers of a partition, the highest ids first.
///
/// # Errors
/// Fails like [`find`].
pub async fn latest(
    db: impl Executor<'_, Database = MySql>,
    partition: &Partition,
    limit: u32,
) -> Result<Vec<VoucherRow>, RecordsError> {
    let sql = select_rows(
        "WHERE voucher_id BETWEEN 1 AND 9223372036854775807{own} ORDER BY voucher_id DESC LIMIT ?",
    );
    let rows = sqlx::query(of_partition(&sql, partition));
    rows.bind(limit).fetch_all(db).await?.iter().map(parse).collect()
}

/// Reads up to `limit` vouchers of a partition that have orders and can be sold now, the highest ids first. This
/// includes sold-out vouchers.
///
/// # Errors
/// Fails like [`find`].
pub async fn on_sale_with_orders(
    pool: &MySqlPool,
    partition: &Partition,
    limit: u32,
) -> Result<Vec<VoucherRow>, RecordsError> {
    let sql = select_rows(&format!(
        "v WHERE voucher_id BETWEEN 1 AND 9223372036854775807{{own}} AND stock IS NOT NULL AND {IS_OPEN} \
         AND EXISTS (SELECT 1 FROM {{orders}} o WHERE o.voucher_id = v.voucher_id) ORDER BY voucher_id DESC LIMIT ?"
    ));
    let rows = sqlx::query(of_partition(&sql, partition));
    rows.bind(limit).fetch_all(pool).await?.iter().map(parse).collect()
}

/// Reads up to `limit` vouchers of a partition that can be sold now, with or without orders, the highest ids first.
///
/// # Errors
/// Fails like [`find`].
pub async fn open(
    pool: &MySqlPool,
    partition: &Partition,
    limit: u32,
) -> Result<Vec<VoucherRow>, RecordsError> {
    let sql = select_rows(&format!(
        "WHERE voucher_id BETWEEN 1 AND 9223372036854775807{{own}} AND {IS_OPEN} ORDER BY voucher_id DESC LIMIT ?"
    ));
    let rows = sqlx::query(of_partition(&sql, partition));
    rows.bind(limit).fetch_all(pool).await?.iter().map(parse).collect()
}

/// A voucher in MySQL whose sale has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenVoucher {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// Whether the voucher was ever sold through Redis: the command `tidegate voucher load` has loaded it, or it has
    /// orders.
    pub is_used: bool,
}

/// The numbers of vouchers in MySQL that are no longer on sale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedVouchers {
    /// The number of vouchers whose sale time is over.
    pub ended: u64,
    /// The number of vouchers that are delisted: their sale ended permanently.
    pub delisted: u64,
}

/// Reads a partition's vouchers whose sale has not ended, the lowest ids first, and the number of vouchers whose sale
/// has ended. Uses the times in the rows and MySQL's clock.
///
/// # Errors
/// Fails like [`find`].
pub async fn not_ended(
    pool: &MySqlPool,
    partition: &Partition,
) -> Result<(Vec<OpenVoucher>, EndedVouchers), RecordsError> {
    let sql = "SELECT CAST(voucher_id AS SIGNED), CAST(initial_stock IS NOT NULL \
         OR EXISTS (SELECT 1 FROM {orders} o WHERE o.voucher_id = v.voucher_id) AS SIGNED), \
         CAST({not_over} AS SIGNED), CAST(delisted_at IS NOT NULL AS SIGNED) FROM {vouchers} v \
         WHERE voucher_id BETWEEN 1 AND 9223372036854775807{own} ORDER BY voucher_id";
    let rows = sqlx::query(of_partition(sql, partition));
    let (mut open, mut ended) = (Vec::new(), EndedVouchers::default());
    for row in rows.fetch_all(pool).await? {
        let Ok(voucher) = VoucherId::try_from(row.try_get::<i64, _>(0)?) else { continue };
        if row.try_get::<i64, _>(3)? == 1 {
            ended.delisted += 1;
        } else if row.try_get::<i64, _>(2)? == 1 {
            open.push(OpenVoucher { voucher, is_used: row.try_get::<i64, _>(1)? == 1 });
        } else {
            ended.ended += 1;
        }
    }
    Ok((open, ended))
}

/// Reads a partition's vouchers whose sale has neither ended by time nor permanently (delisted). Uses the times in the
/// rows and MySQL's clock.
///
/// # Errors
/// Fails like [`find`].
pub async fn on_sale(pool: &MySqlPool, partition: &Partition) -> Result<Vec<VoucherId>, RecordsError> {
    let sql = "SELECT CAST(voucher_id AS SIGNED) FROM {vouchers} WHERE delisted_at IS NULL \
         AND {not_over}{own}";
    let ids: Vec<i64> = sqlx::query_scalar(of_partition(sql, partition)).fetch_all(pool).await?;
    Ok(ids.into_iter().filter_map(|id| id.try_into().ok()).collect())
}

/// Reads the numbers of a voucher's units by the status of their orders. `None` if the voucher has no row. The result
/// is the same as from the view `tidegate_voucher_units`, but only the rows of this voucher are read.
///
/// # Errors
/// Fails like [`find`].
pub async fn units(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<VoucherUnits>, RecordsError> {
    let select = UNITS_VIEW.split_once("_units AS").map_or(UNITS_VIEW, |(_, select)| select);
    // Not the view itself: some servers read all vouchers for it.
    let sql = select.replace("GROUP BY", "WHERE v.voucher_id = ? GROUP BY").replace(';', "");
    let row = sqlx::query(AssertSqlSafe(sql)).bind(voucher.get()).fetch_optional(pool).await?;
    Ok(row.map(|row| parse_units(&row)).transpose()?)
}

/// Inserts the row of a voucher, unless the voucher has a row already.
///
/// # Errors
/// Fails like [`find`].
pub async fn insert(pool: &MySqlPool, new: &NewVoucher) -> Result<Inserted, RecordsError> {
    let inserted = sqlx::query(named(
        "INSERT INTO {vouchers} (voucher_id, stock, initial_stock, begin_time, end_time, pay_within, keeps_journal) \
         VALUES (?, ?, ?, COALESCE(FROM_UNIXTIME(?), CURRENT_TIMESTAMP), FROM_UNIXTIME(?), ?, ?)",
    ))
    .bind(new.voucher.get())
    .bind(new.stock)
    .bind(new.stock)
    .bind(new.begin_ms.map(to_seconds))
    .bind(to_seconds(new.end_ms.unwrap_or(NO_END_MS)))
    .bind(new.pay_within_s)
    .bind(new.keeps_journal)
    .execute(pool)
    .await;
    match inserted {
        Ok(_) => Ok(Inserted::New),
        Err(error) if is_duplicate_key(&error) => Ok(Inserted::Existed),
        Err(error) if is_value_out_of_range(&error) => Ok(Inserted::TooMany),
        Err(error) => Err(error.into()),
    }
}

/// Completes a voucher's row that another program inserted, if the row has the stock of `new`. Sets the times, and the
/// initial stock if it is unknown. Returns whether there was a row to complete.
///
/// # Errors
/// Fails like [`find`].
pub async fn complete(pool: &MySqlPool, new: &NewVoucher) -> Result<bool, RecordsError> {
    let completed = sqlx::query(named(
        "UPDATE {vouchers} SET initial_stock = stock, \
         begin_time = COALESCE(FROM_UNIXTIME(?), CURRENT_TIMESTAMP), end_time = FROM_UNIXTIME(?), pay_within = COALESCE(?, pay_within), \
         keeps_journal = ? WHERE voucher_id = ? AND stock = ? AND COALESCE(initial_stock, stock) = stock AND delisted_at IS NULL",
    ))
    .bind(new.begin_ms.map(to_seconds))
    .bind(to_seconds(new.end_ms.unwrap_or(NO_END_MS)))
    .bind(new.pay_within_s)
    .bind(new.keeps_journal)
    .bind(new.voucher.get())
    .bind(new.stock)
    .execute(pool)
    .await?;
    // This counts the rows found, changed or not: sqlx always asks for that.
    Ok(completed.rows_affected() > 0)
}

/// Reads whether the programs that sell a voucher keep a journal (the changes of its stock) in Redis. `None` if the row
/// does not say this, or if the voucher has no row.
///
/// # Errors
/// Fails like [`find`].
pub async fn keeps_journal(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<bool>, RecordsError> {
    let sql = "SELECT CAST(keeps_journal AS SIGNED) FROM {vouchers} WHERE voucher_id = ?";
    let noted: Option<Option<i64>> =
        sqlx::query_scalar(named(sql)).bind(voucher.get()).fetch_optional(pool).await?;
    Ok(noted.flatten().map(|keeps| keeps != 0))
}

/// Finds those given vouchers whose rows do not say whether a journal (the changes of the stock) is kept in Redis.
///
/// # Errors
/// Fails like [`find`].
pub async fn without_journal_note(
    pool: &MySqlPool,
    vouchers: &[VoucherId],
) -> Result<Vec<VoucherId>, RecordsError> {
    let mut found = Vec::new();
    for vouchers in vouchers.chunks(MOST_LISTED) {
        let sql = format!(
            "SELECT CAST(voucher_id AS SIGNED) FROM {} WHERE voucher_id IN ({}) AND keeps_journal IS NULL",
            Tables::DEFAULT.vouchers,
            listed(vouchers)
        );
        let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(pool).await?;
        found.extend(vouchers.iter().filter(|voucher| ids.contains(&voucher.get())));
    }
    Ok(found)
}

/// Writes into the rows of the given vouchers that their journals in Redis were found complete: they have every change
/// of the stock. A row that already says whether a journal is kept does not change.
///
/// # Errors
/// Fails like [`find`].
pub async fn note_complete_journals(pool: &MySqlPool, vouchers: &[VoucherId]) -> Result<(), RecordsError> {
    for vouchers in vouchers.chunks(MOST_LISTED) {
        let note = format!(
            "UPDATE {} SET keeps_journal = 1 WHERE voucher_id IN ({}) AND keeps_journal IS NULL",
            Tables::DEFAULT.vouchers,
            listed(vouchers)
        );
        sqlx::query(AssertSqlSafe(note)).persistent(false).execute(pool).await?;
    }
    Ok(())
}

/// Reads all delisted vouchers of a partition: vouchers whose sale ended permanently.
///
/// # Errors
/// Fails like [`find`].
pub async fn delisted(pool: &MySqlPool, partition: &Partition) -> Result<Vec<VoucherId>, RecordsError> {
    let ids = "SELECT CAST(voucher_id AS SIGNED) FROM {vouchers} WHERE delisted_at IS NOT NULL{own}";
    let ids: Vec<i64> = sqlx::query_scalar(of_partition(ids, partition)).fetch_all(pool).await?;
    Ok(ids.into_iter().filter_map(|id| id.try_into().ok()).collect())
}

/// The time since which a voucher has limits, as the voucher's row holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsSince {
    /// The time since which the voucher has limits, in Unix milliseconds by the clock of Redis. `None` if the voucher
    /// has no limits.
    pub since_ms: Option<i64>,
}

/// Reads from the row of a voucher since when the voucher has limits. `None` if the voucher has no row.
///
/// # Errors
/// Fails like [`find`].
pub async fn limits_since(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<LimitsSince>, RecordsError> {
    let sql = "SELECT limits_since FROM {vouchers} WHERE voucher_id = ?";
    let row: Option<Option<i64>> =
        sqlx::query_scalar(named(sql)).bind(voucher.get()).fetch_optional(pool).await?;
    Ok(row.map(|since_ms| LimitsSince { since_ms }))
}

/// Writes into the row of a voucher since when the voucher has limits. Does nothing if the voucher has no row.
///
/// # Errors
/// Fails like [`find`].
pub async fn set_limits_since(
    pool: &MySqlPool,
    voucher: VoucherId,
    since_ms: Option<i64>,
) -> Result<(), RecordsError> {
    let sql = "UPDATE {vouchers} SET limits_since = ? WHERE voucher_id = ? AND NOT (limits_since <=> ?)";
    sqlx::query(named(sql)).bind(since_ms).bind(voucher.get()).bind(since_ms).execute(pool).await?;
    Ok(())
}

fn parse(row: &MySqlRow) -> Result<VoucherRow, RecordsError> {
    let id: i64 = row.try_get("voucher")?;
    let bad_id = |error| RecordsError::Sql(sqlx::Error::Decode(Box::new(error)));
    Ok(VoucherRow {
        voucher: VoucherId::try_from(id).map_err(bad_id)?,
        // NULL sells nothing.
        stock: row.try_get::<Option<i64>, _>("stock")?.unwrap_or_default(),
        initial_stock: row.try_get("initial_stock")?,
        begin_ms: row.try_get("begin_ms")?,
        end_ms: row.try_get("end_ms")?,
        pay_within_s: row.try_get("pay_within_s")?,
        delisted_ms: row.try_get("delisted_ms")?,
    })
}

fn parse_units(row: &MySqlRow) -> sqlx::Result<VoucherUnits> {
    Ok(VoucherUnits {
        loaded: row.try_get("loaded")?,
        unsold: row.try_get("unsold")?,
        unpaid: row.try_get("unpaid")?,
        paid: row.try_get("paid")?,
        used: row.try_get("used")?,
        refunding: row.try_get("refunding")?,
        released: row.try_get("given_back")?,
        on_hand: row.try_get("on_hand")?,
        contradictory: row.try_get("contradictory")?,
        unaccounted: row.try_get("unaccounted")?,
    })
}

fn to_seconds(ms: i64) -> i64 {
    ms.div_euclid(1000)
}

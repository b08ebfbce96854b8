//! The facts of orders: their rows in MySQL, and the notes of journals and the dead letters in Redis. Only this folder,
//! the ledger and the schema have queries on the tables of orders, vouchers, refusals, events and uses of limits. The
//! ledger writes the rows.

mod dead_letter;
mod events;
pub mod journal;
mod limit_uses;
pub mod manual_sql;
mod order_counts;
mod orders;
mod owners;
mod refusals;
mod sequences;
mod stocks;
mod tables;
mod unpaid;
pub mod vouchers;

use serde::Serializer;
use sqlx::{AssertSqlSafe, MySqlPool, Row, mysql::MySqlRow};

pub(crate) use self::tables::Tables;
pub use self::{
    dead_letter::{BuriedEvent, DeadLetterRecord, EntryContent},
    events::{EventRow, EventRows, EventSum, StatusChange},
    limit_uses::{LimitUseRows, LiveOrder},
    order_counts::{OrderCount, OrderCounting},
    orders::{OrderDetails, OrderRow, OrderRows},
    refusals::{RefusalRow, RefusalRows},
    sequences::DaySequences,
    stocks::{StockRow, StockRows, StockSum},
    unpaid::{UnpaidKey, UnpaidLive, UnpaidRows, UnpaidSum},
};
use crate::{lists::MOST_LISTED, mysql_error::is_not_migrated, order::VoucherId, partition::Partition};

/// The number of rows in one page of a scan.
pub const PAGE: usize = 1_000;

/// The reason why the rows about orders could not be read from MySQL.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A table or one of Tidegate's columns is missing.
    #[error("a table or a column is missing in MySQL ({0}); run `tidegate migrate`")]
    NotMigrated(String),
    /// Any other error of MySQL or of the connection.
    #[error(transparent)]
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for RecordsError {
    fn from(error: sqlx::Error) -> Self {
        if is_not_migrated(&error) { Self::NotMigrated(error.to_string()) } else { Self::Sql(error) }
    }
}

/// The result of a query of this module.
pub type Result<T> = std::result::Result<T, RecordsError>;

/// Access to the rows about the orders of one partition in MySQL. A scan returns only rows of this partition. A look-up
/// by order ids, user ids or a voucher returns rows of any partition, so that it finds an order in the wrong partition.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    mysql: &'a MySqlPool,
    partition: &'a Partition,
    tables: &'a Tables,
}

impl<'a> Records<'a> {
    /// Creates access to the rows about orders in a MySQL database.
    #[must_use]
    pub fn new(mysql: &'a MySqlPool, partition: &'a Partition) -> Self {
        Self { mysql, partition, tables: &Tables::DEFAULT }
    }

    /// The pool of connections to the MySQL database.
    #[must_use]
    pub fn mysql(&self) -> &'a MySqlPool {
        self.mysql
    }

    /// Returns access to the rows of orders.
    #[must_use]
    pub fn orders(self) -> OrderRows<'a> {
        OrderRows(self)
    }

    /// Returns access to the rows of refused orders.
    #[must_use]
    pub fn refusals(self) -> RefusalRows<'a> {
        RefusalRows(self)
    }

    /// Returns access to the rows of events, such as payments and refunds of orders.
    #[must_use]
    pub fn events(self) -> EventRows<'a> {
        EventRows(self)
    }

    /// Returns access to the stocks of vouchers in MySQL.
    #[must_use]
    pub fn stocks(self) -> StockRows<'a> {
        StockRows(self)
    }

    /// Returns access to the rows with the limits that an order counts against.
    #[must_use]
    pub fn limit_uses(self) -> LimitUseRows<'a> {
        LimitUseRows(self)
    }

    /// Returns access to the numbers of orders in MySQL.
    #[must_use]
    pub fn counts(self) -> OrderCounting<'a> {
        OrderCounting(self)
    }

    /// Returns access to the unpaid orders of vouchers in MySQL.
    #[must_use]
    pub fn unpaid(self) -> UnpaidRows<'a> {
        UnpaidRows(self)
    }

    /// The time of MySQL's clock, in Unix seconds. This clock also sets the times in rows, so it decides which rows are
    /// old.
    ///
    /// # Errors
    /// Fails if MySQL does not answer.
    pub async fn now_s(self) -> Result<i64> {
        let now = sqlx::query_scalar("SELECT CAST(UNIX_TIMESTAMP() AS SIGNED)");
        Ok(now.fetch_one(self.mysql).await?)
    }

    async fn rows(&self, sql: String) -> Result<Vec<MySqlRow>> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(self.mysql).await?)
    }

    /// Reads the rows of all these ids, by lists that are short enough. Without ids it sends no query.
    async fn rows_of<I: Into<i64> + Copy>(
        &self,
        ids: &[I],
        sql: impl Fn(&str) -> String,
    ) -> Result<Vec<MySqlRow>> {
        let mut rows = Vec::new();
        for ids in ids.chunks(MOST_LISTED) {
            rows.append(&mut self.rows(sql(&listed(ids))).await?);
        }
        Ok(rows)
    }

    async fn execute(&self, sql: String) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.mysql).await?;
        Ok(())
    }

    /// An SQL condition to append to other conditions: the rows of one voucher, or of all vouchers of the partition.
    fn of_voucher(&self, voucher: Option<VoucherId>) -> String {
        match voucher {
            Some(voucher) => format!(" AND voucher_id = {voucher}"),
            None => self.partition.condition("voucher_id"),
        }
    }
}

/// Formats ids as a list in SQL.
fn listed<I: Into<i64> + Copy>(ids: &[I]) -> String {
    ids.iter().map(|id| (*id).into().to_string()).collect::<Vec<_>>().join(",")
}

/// Parses all rows with valid ids: for other ids, the parser returns None.
fn parsed<T>(rows: &[MySqlRow], parse: impl Fn(&MySqlRow) -> sqlx::Result<Option<T>>) -> Result<Vec<T>> {
    Ok(rows.iter().filter_map(|row| parse(row).transpose()).collect::<sqlx::Result<_>>()?)
}

/// Reads the voucher in a column. `None` if the number is not a valid voucher id.
fn voucher_at(row: &MySqlRow, at: usize) -> sqlx::Result<Option<VoucherId>> {
    Ok(row.try_get::<i64, _>(at)?.try_into().ok())
}

/// Serializes an id as text, because JSON numbers lose digits above 2^53.
fn as_text<S: Serializer>(id: &i64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

//! Counts orders by their ids and vouchers.

use std::ops::RangeInclusive;

use sqlx::Row;

use super::{Records, Result};
use crate::{order::VoucherId, row_state::LIVE};

/// The numbers of orders in one time span. The time of an order is the time in its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCount {
    /// The beginning of the time span, in Unix seconds.
    pub from_s: i64,
    /// The number of orders with a row.
    pub orders: i64,
    /// The total number of units in the orders with a row.
    pub units: i64,
    /// The number of orders with a row that still take units of the stock.
    pub live: i64,
    /// The number of refused orders, which have no row.
    pub refused: i64,
}

/// Access to the numbers of orders in MySQL.
#[derive(Clone, Copy, Debug)]
pub struct OrderCounting<'a>(pub(super) Records<'a>);

impl OrderCounting<'_> {
    /// Counts the orders of the partition, or of one voucher, with ids in a range. The counts are for time spans of
    /// `seconds` seconds. `epoch_s` is the Unix second at which the time in order ids begins. If the caller adds an
    /// offset from UTC, days and hours begin at this offset, and their `from_s` contains the offset. A time span has one
    /// item for its orders with a row, and another item for its refused orders.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn by_time(
        self,
        voucher: Option<VoucherId>,
        ids: RangeInclusive<i64>,
        (epoch_s, seconds): (i64, i64),
    ) -> Result<Vec<OrderCount>> {
        let (first, last, own) = (ids.start(), ids.end(), self.0.of_voucher(voucher));
        let select = |id: &str, columns: &str, table: &str| {
            format!(
                "SELECT CAST((({id} >> 32) + {epoch_s}) DIV {seconds} AS SIGNED) AS bucket, {columns} \
                 FROM {table} WHERE {id} BETWEEN {first} AND {last}{own} GROUP BY bucket"
            )
        };
        let columns = format!("COUNT(*), CAST(SUM(quantity) AS SIGNED), CAST(SUM({LIVE}) AS SIGNED)");
        let mut counts = Vec::new();
        for row in self.0.rows(select("id", &columns, self.0.tables.orders)).await? {
            let (orders, units, live) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            let from_s = row.try_get::<i64, _>(0)? * seconds;
            counts.push(OrderCount { from_s, orders, units, live, refused: 0 });
        }
        for row in self.0.rows(select("order_id", "COUNT(*)", self.0.tables.refusals)).await? {
            let (from_s, refused) = (row.try_get::<i64, _>(0)? * seconds, row.try_get(1)?);
            counts.push(OrderCount { from_s, refused, ..OrderCount::default() });
        }
        Ok(counts)
    }

    /// Counts the orders of a voucher that have rows, including cancelled orders.
    ///
    /// # Errors
    /// Fails like [`OrderCounting::by_time`].
    pub async fn of_voucher(self, voucher: VoucherId) -> Result<i64> {
        self.count(&format!("voucher_id = {voucher}")).await
    }

    /// Counts the live orders of a voucher: not cancelled, refunded or refused.
    ///
    /// # Errors
    /// Fails like [`OrderCounting::by_time`].
    pub async fn live_of_voucher(self, voucher: VoucherId) -> Result<i64> {
        self.count(&format!("voucher_id = {voucher} AND {LIVE}")).await
    }

    async fn count(&self, condition: &str) -> Result<i64> {
        let sql = format!("SELECT COUNT(*) FROM {} WHERE {condition}", self.0.tables.orders);
        let rows = self.0.rows(sql).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }
}

//! The vouchers whose sales begin soon.

use std::time::Duration;

use sqlx::{MySqlPool, Row, mysql::MySqlRow};

use super::{COLUMNS, RecordsError, VoucherRow, named, of_partition, parse};
use crate::partition::Partition;

/// The number of vouchers that one query returns.
const PAGE: u32 = 1_000;
/// The time after its begin for which a sale is found.
const FOUND_FOR: &str = "1 DAY";
/// The statement that sets the initial stock of a voucher whose sale has not begun.
pub(super) const BEGIN_WITH_STOCK: &str = "UPDATE {vouchers} v SET initial_stock = stock, \
    keeps_journal = COALESCE(keeps_journal, 1) WHERE voucher_id = ? AND begin_time > NOW() AND delisted_at IS NULL \
    AND NOT EXISTS (SELECT 1 FROM {orders} o WHERE o.voucher_id = v.voucher_id)";

/// A voucher whose sale begins soon, or began a short time ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcomingVoucher {
    /// The row of the voucher.
    pub row: VoucherRow,
    /// Whether the sale has begun, by the clock of MySQL.
    pub has_begun: bool,
    /// Whether MySQL has an order of the voucher, also a cancelled one.
    pub has_orders: bool,
    /// Whether the programs that sell the voucher keep a journal (the changes of its stock) in Redis. `None` if the row
    /// does not say this.
    pub keeps_journal: Option<bool>,
}

/// Reads the vouchers of a partition whose sales begin within this time, or began within the last day and are not over.
/// Skips delisted vouchers. The cost depends only on the number of these vouchers.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn upcoming(
    pool: &MySqlPool,
    partition: &Partition,
    within: Duration,
) -> Result<Vec<UpcomingVoucher>, RecordsError> {
    let sql = format!(
        "SELECT {COLUMNS}, CAST(begin_time <= NOW() AS SIGNED) AS has_begun, \
         EXISTS (SELECT 1 FROM {{orders}} o WHERE o.voucher_id = v.voucher_id) AS has_orders, \
         CAST(keeps_journal AS SIGNED) AS keeps_journal FROM {{vouchers}} v FORCE INDEX (idx_begin_time) \
         WHERE begin_time > NOW() - INTERVAL {FOUND_FOR} AND begin_time <= NOW() + INTERVAL ? SECOND AND {{not_over}} \
         AND NOT (begin_time <=> end_time) AND delisted_at IS NULL \
         AND voucher_id > ? AND voucher_id <= 9223372036854775807{{own}} ORDER BY voucher_id LIMIT ?"
    );
    let (seconds, mut found) = (i64::try_from(within.as_secs()).unwrap_or(i64::MAX), Vec::new());
    loop {
        let after = found.last().map_or(0, |last: &UpcomingVoucher| last.row.voucher.get());
        let page = sqlx::query(of_partition(&sql, partition)).bind(seconds).bind(after).bind(PAGE);
        let page = page.fetch_all(pool).await?;
        for row in &page {
            found.push(upcoming_of(row)?);
        }
        if page.len() < PAGE as usize {
            return Ok(found);
        }
    }
}

fn upcoming_of(row: &MySqlRow) -> Result<UpcomingVoucher, RecordsError> {
    let has_begun = row.try_get::<i64, _>("has_begun")? == 1;
    let has_orders = row.try_get::<i64, _>("has_orders")? == 1;
    let keeps_journal = row.try_get::<Option<i64>, _>("keeps_journal")?.map(|keeps| keeps != 0);
    Ok(UpcomingVoucher { row: parse(row)?, has_begun, has_orders, keeps_journal })
}

impl UpcomingVoucher {
    /// Creates a voucher that has not begun, and has no order.
    #[must_use]
    pub const fn unbegun(row: VoucherRow) -> Self {
        Self { row, has_begun: false, has_orders: false, keeps_journal: None }
    }

    /// Notes in the row that the sale begins with its present stock, if the row still has this stock, the voucher has
    /// no order, and the sale has not begun. Returns whether it is noted.
    ///
    /// # Errors
    /// Fails like [`super::find`].
    pub async fn note_initial_stock(&self, pool: &MySqlPool) -> Result<bool, RecordsError> {
        let sql = [BEGIN_WITH_STOCK, " AND stock = ?"].concat();
        let note = sqlx::query(named(&sql)).bind(self.row.voucher.get()).bind(self.row.stock);
        Ok(note.execute(pool).await?.rows_affected() > 0)
    }
}

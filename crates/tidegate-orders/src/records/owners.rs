//! Whether a database holds what it is to hold.

use super::{OrderRows, RecordsError, Result, parsed, voucher_at};
use crate::order::VoucherId;

impl OrderRows<'_> {
    /// A table that has rows of a voucher of another partition than those of these numbers, and the voucher. None: all rows are of
    /// these.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn outside(self, partitions: &[usize]) -> Result<Option<(&'static str, VoucherId)>> {
        let all = self.0.partition.tags().len();
        for table in [self.0.tables.vouchers, self.0.tables.orders] {
            let sql = format!(
                "SELECT CAST(voucher_id AS SIGNED) FROM {table} WHERE MOD(voucher_id, {all}) NOT IN ({}) LIMIT 1",
                super::listed(partitions)
            );
            let rows = match self.0.rows(sql).await {
                // Before the schema is made there are no rows either.
                Err(RecordsError::NotMigrated(_)) => continue,
                rows => rows?,
            };
            if let Some(voucher) = parsed(&rows, |row| voucher_at(row, 0))?.pop() {
                return Ok(Some((table, voucher)));
            }
        }
        Ok(None)
    }
}

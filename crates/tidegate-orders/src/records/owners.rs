//! Checks that a database holds only rows of its own partitions.

use sqlx::AssertSqlSafe;

use super::{OrderRows, Result};
use crate::mysql_error::is_missing_table;

impl OrderRows<'_> {
    /// Finds a row whose voucher belongs to none of the given partitions. Returns the table of the row and the voucher.
    /// `None` if no table has such a row.
    ///
    /// # Errors
    /// Fails if MySQL does not answer.
    pub async fn outside(self, partitions: &[i64]) -> Result<Option<(&'static str, i64)>> {
        let all = self.0.partition.tags().len();
        for table in [self.0.tables.vouchers, self.0.tables.orders] {
            let sql = format!(
                "SELECT CAST(voucher_id AS SIGNED) FROM {table} WHERE MOD(voucher_id, {all}) NOT IN ({}) LIMIT 1",
                super::listed(partitions)
            );
            let found = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
            match found.fetch_optional(self.0.mysql).await {
                Ok(Some(voucher)) => return Ok(Some((table, voucher))),
                Err(error) if !is_missing_table(&error) => return Err(error.into()),
                // Before the schema is created, there are no rows either.
                Ok(None) | Err(_) => {}
            }
        }
        Ok(None)
    }
}

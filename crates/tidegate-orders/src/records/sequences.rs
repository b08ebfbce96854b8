//! Reads the highest order ids of a day.

use std::ops::RangeInclusive;

use sqlx::Row;

use super::{OrderCounting, Result};
use crate::partition::MOST_PARTITIONS;

/// The highest sequence number in the order ids of one day in MySQL, and the number of these ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaySequences {
    /// The highest sequence number in the order ids of the day. 0 if there are no ids.
    pub highest: i64,
    /// The number of order ids of the day in MySQL.
    pub ids: u64,
}

impl OrderCounting<'_> {
    /// Reads the highest sequence number in the partition's order ids of a range, and the number of these ids. `mask`
    /// selects the bits of the sequence number, and numbers above `most` are ignored. Reads all rows of orders and
    /// refused orders in the range.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn sequences(
        self,
        ids: &RangeInclusive<i64>,
        (mask, most): (i64, i64),
    ) -> Result<DaySequences> {
        let mut found = DaySequences::default();
        for (table, id) in [(self.0.tables.orders, "id"), (self.0.tables.refusals, "order_id")] {
            let own = match self.0.partition.tag() {
                None => String::new(),
                Some(_) => format!(" AND {id} & {} = {}", MOST_PARTITIONS - 1, self.0.partition.index()),
            };
            let sql = format!(
                "SELECT CAST(MAX(IF(({id} & {mask}) <= {most}, {id} & {mask}, 0)) AS SIGNED), COUNT(*) FROM {table} \
                 WHERE {id} BETWEEN {} AND {}{own}",
                ids.start(),
                ids.end()
            );
            for row in self.0.rows(sql).await? {
                found.highest = found.highest.max(row.try_get::<Option<i64>, _>(0)?.unwrap_or_default());
                found.ids += row.try_get::<i64, _>(1)?.unsigned_abs();
            }
        }
        Ok(found)
    }
}

//! The stocks of vouchers, and the units in the rows of their orders.

use std::collections::HashMap;

use sqlx::{Row, mysql::MySqlRow};

use super::{
    Records, Result, parsed, voucher_at,
    vouchers::{HAS_BEGUN, NOT_OVER},
};
use crate::{
    lists::MOST_LISTED,
    order::VoucherId,
    row_state::{CANCELLED, LIVE},
};

/// SQL: the time at which the order of a row was admitted, or else written, in Unix milliseconds.
const CAME_MS: &str = "IF(entry_id IS NULL, UNIX_TIMESTAMP(create_time) * 1000, \
    CAST(SUBSTRING_INDEX(entry_id, '-', 1) AS SIGNED))";

/// The stock and the sale of a voucher, as the voucher's row in MySQL has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockRow {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The number of units that the voucher has left. `None` if the voucher is not for sale.
    pub stock: Option<i64>,
    /// The number of units that the sale of the voucher has had in total. `None` if this number is unknown.
    pub initial_stock: Option<i64>,
    /// Whether the sale has begun, by the clock of MySQL.
    pub has_begun: bool,
    /// Whether the sale is over, by the clock of MySQL.
    pub is_over: bool,
    /// Whether the programs that sell the voucher keep a journal (the changes of its stock) in Redis. `None` if the row
    /// does not say this.
    pub keeps_journal: Option<bool>,
    /// Whether the voucher is delisted, so that its sale has ended permanently.
    pub is_delisted: bool,
}

impl StockRow {
    /// Parses a row. `None` if the number is not a valid voucher id.
    fn parse(row: &MySqlRow) -> sqlx::Result<Option<Self>> {
        let Some(voucher) = voucher_at(row, 0)? else { return Ok(None) };
        let is = |at: usize| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(at)? == 1);
        Ok(Some(Self {
            voucher,
            stock: row.try_get(1)?,
            initial_stock: row.try_get(2)?,
            has_begun: is(3)?,
            is_over: !is(4)?,
            keeps_journal: row.try_get::<Option<i64>, _>(5)?.map(|keeps| keeps != 0),
            is_delisted: is(6)?,
        }))
    }
}

/// The stock of a voucher and the numbers of its orders in MySQL, all read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockSum {
    /// The number of units that the voucher has left. `None` if the voucher is not for sale.
    pub stock: Option<i64>,
    /// The number of units that the sale of the voucher has had in total. `None` if this number is unknown.
    pub initial: Option<i64>,
    /// The number of units in the voucher's live orders (not cancelled, refunded or refused).
    pub live_units: i64,
    /// The number of the voucher's live orders (not cancelled, refunded or refused).
    pub live_orders: u64,
    /// The number of units in the voucher's live orders that are older than the journal, the record of stock changes in
    /// Redis.
    pub earlier_units: i64,
    /// The number of units in contradictory rows: the status says that the order ended, and the slot says that it did
    /// not, or the other way round. Tidegate cannot know whether these units returned to the stock.
    pub contradictory_units: i64,
}

fn sum(row: &MySqlRow) -> sqlx::Result<Option<(VoucherId, StockSum)>> {
    let Some(voucher) = voucher_at(row, 0)? else { return Ok(None) };
    let sum = StockSum {
        stock: row.try_get(1)?,
        initial: row.try_get(2)?,
        live_units: row.try_get(3)?,
        live_orders: row.try_get::<i64, _>(4)?.cast_unsigned(),
        earlier_units: row.try_get(5)?,
        contradictory_units: row.try_get(6)?,
    };
    Ok(Some((voucher, sum)))
}

/// Access to the stocks of vouchers in MySQL.
#[derive(Clone, Copy, Debug)]
pub struct StockRows<'a>(pub(super) Records<'a>);

impl StockRows<'_> {
    fn select_stocks(&self, only: Option<VoucherId>) -> String {
        format!(
            "SELECT CAST(voucher_id AS SIGNED), CAST(stock AS SIGNED), CAST(initial_stock AS SIGNED), \
             CAST({HAS_BEGUN} AS SIGNED), CAST({NOT_OVER} AS SIGNED), CAST(keeps_journal AS SIGNED), \
             CAST(delisted_at IS NOT NULL AS SIGNED) FROM {} WHERE TRUE{}",
            self.0.tables.vouchers,
            self.0.of_voucher(only)
        )
    }

    /// Reads the stocks of all vouchers of the partition, or of one voucher.
    ///
    /// # Errors
    /// Fails if MySQL does not answer or the tables are not ready.
    pub async fn all(self, only: Option<VoucherId>) -> Result<Vec<StockRow>> {
        parsed(&self.0.rows(self.select_stocks(only)).await?, StockRow::parse)
    }

    /// Reads the stock of each given voucher, with the totals of its orders. For each voucher, the caller gives the
    /// time since which the voucher's journal has every change of the stock, in Unix milliseconds. The caller gives 0
    /// if the journal has had every change from the start.
    ///
    /// # Errors
    /// Fails like [`StockRows::all`].
    pub async fn sums(self, vouchers: &[(VoucherId, i64)]) -> Result<HashMap<VoucherId, StockSum>> {
        let mut sums = HashMap::new();
        for vouchers in vouchers.chunks(MOST_LISTED) {
            let ids = super::listed(&vouchers.iter().map(|(voucher, _)| *voucher).collect::<Vec<_>>());
            let since = vouchers.iter().filter(|(_, since_ms)| *since_ms > 0);
            let since: Vec<String> =
                since.map(|(voucher, since_ms)| format!("WHEN {voucher} THEN {since_ms}")).collect();
            let since = match since.is_empty() {
                true => "0".to_owned(),
                false => format!("CASE voucher_id {} ELSE 0 END", since.join(" ")),
            };
            let sql = format!(
                "SELECT CAST(v.voucher_id AS SIGNED), CAST(v.stock AS SIGNED), CAST(v.initial_stock AS SIGNED), \
                 CAST(COALESCE(o.units, 0) AS SIGNED), CAST(COALESCE(o.orders, 0) AS SIGNED), \
                 CAST(COALESCE(o.earlier, 0) AS SIGNED), CAST(COALESCE(o.others, 0) AS SIGNED) \
                 FROM {} v LEFT JOIN (SELECT voucher_id, SUM(IF({LIVE}, quantity, 0)) AS units, \
                 SUM(IF({LIVE}, 1, 0)) AS orders, SUM(IF({LIVE} OR {CANCELLED}, 0, quantity)) AS others, \
                 SUM(IF({LIVE} AND {since} > 0 AND {CAME_MS} < {since}, quantity, 0)) AS earlier FROM {} \
                 WHERE voucher_id IN ({ids}) GROUP BY voucher_id) o ON o.voucher_id = v.voucher_id \
                 WHERE v.voucher_id IN ({ids})",
                self.0.tables.vouchers, self.0.tables.orders
            );
            sums.extend(parsed(&self.0.rows(sql).await?, sum)?);
        }
        Ok(sums)
    }

    /// Finds pairs of user and slot for which a voucher has more than one order, as `user/slot`. A slot is a number in
    /// the unique key. The call finds nothing if a unique key prevents such orders.
    ///
    /// # Errors
    /// Fails like [`StockRows::all`].
    pub async fn shared_slots(self, only: Option<VoucherId>) -> Result<Vec<(VoucherId, String)>> {
        let (table, of) = (self.0.tables.orders, self.0.of_voucher(only));
        let key = "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() \
                   AND table_name = ? AND index_name = 'uk_voucher_user_slot' AND non_unique = 0";
        let keys: i64 = sqlx::query_scalar(key).bind(table).fetch_one(self.0.mysql).await?;
        if keys > 0 {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT CAST(voucher_id AS SIGNED), CAST(CONCAT(user_id, '/', slot) AS CHAR) FROM {table} \
             WHERE {LIVE}{of} GROUP BY voucher_id, user_id, slot HAVING COUNT(*) > 1 ORDER BY 1, 2"
        );
        parsed(&self.0.rows(sql).await?, |row| Ok(voucher_at(row, 0)?.zip(row.try_get(1)?)))
    }
}

//! The rows of one or two vouchers, locked together: no other session changes their stocks, or ends their sales,
//! meanwhile.

use sqlx::{MySqlConnection, MySqlPool};

use super::{RecordsError, named};
use crate::{
    mysql_error::{explain, is_statement_refused, is_value_out_of_range},
    order::VoucherId,
    session::Session,
};

const LOCK_TO_WRITE: &str = "SELECT CAST(stock AS SIGNED), initial_stock, CAST(delisted_at IS NOT NULL AS SIGNED) \
     FROM {vouchers} WHERE voucher_id = ? FOR UPDATE";
const LOCK_TO_READ: &str = "SELECT CAST(stock AS SIGNED), initial_stock, CAST(delisted_at IS NOT NULL AS SIGNED) \
     FROM {vouchers} WHERE voucher_id = ? LOCK IN SHARE MODE";

/// The reason why the locked rows of vouchers are not changed. The rows stay locked after this error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowRefusal {
    /// A row has fewer units than must be taken.
    TooFew,
    /// The column cannot hold that number of units.
    TooMany,
    /// A sale is over for good, as a row that could have been changed shows.
    Delisted,
    /// The server certainly refuses the change, with this message, for example because it is read-only.
    ByMySql(String),
}

/// The contents of a locked row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockedRow {
    /// The number of units that the voucher has left.
    pub stock: i64,
    /// The number of units that the sale of the voucher has had in total. `None` if this number is unknown.
    pub initial: Option<i64>,
    is_delisted: bool,
}

/// Rows of vouchers, locked so that no other session changes them. If this is dropped without a commit, nothing
/// changes.
#[derive(Debug)]
pub(crate) struct LockedRows {
    session: Session,
    vouchers: Vec<VoucherId>,
    /// The reason why the rows cannot be changed, if the server refused.
    refused: Option<String>,
    /// The contents of the locked rows, one for each voucher. `None` for a voucher without a row.
    pub rows: Vec<Option<LockedRow>>,
}

/// Locks the rows of vouchers and reads them, the lower id first, so that two sessions with the same vouchers never
/// deadlock. If the server allows no writes, the rows are still locked against other writers.
///
/// # Errors
/// Fails like [`super::find`], and if other sessions hold a row for longer than a lock wait.
pub(crate) async fn lock_rows(
    pool: &MySqlPool,
    vouchers: Vec<VoucherId>,
) -> Result<LockedRows, RecordsError> {
    let mut session = Session::begin(pool).await?;
    let (mut rows, mut refused) = (vec![None; vouchers.len()], None);
    let mut ascending: Vec<usize> = (0..vouchers.len()).collect();
    ascending.sort_unstable_by_key(|at| vouchers[*at]);
    for at in ascending {
        rows[at] = match select_locked(&mut session, vouchers[at], LOCK_TO_WRITE).await {
            Err(error) if is_statement_refused(&error) => {
                refused = Some(explain(&error));
                select_locked(&mut session, vouchers[at], LOCK_TO_READ).await?
            }
            row => row?,
        };
    }
    Ok(LockedRows { session, vouchers, refused, rows })
}

async fn select_locked(
    session: &mut MySqlConnection,
    voucher: VoucherId,
    sql: &'static str,
) -> sqlx::Result<Option<LockedRow>> {
    let row: Option<(i64, Option<i64>, i64)> =
        sqlx::query_as(named(sql)).bind(voucher.get()).fetch_optional(session).await?;
    Ok(row.map(|(stock, initial, is_delisted)| LockedRow { stock, initial, is_delisted: is_delisted == 1 }))
}

impl LockedRows {
    /// Changes the stock and the initial stock of each voucher by the given number of units. Other sessions see the
    /// change only after [`LockedRows::commit`]. If any voucher is delisted (its sale ended permanently), nothing is
    /// changed.
    ///
    /// # Errors
    /// Fails like [`super::find`]. Whether the rows are still locked is then unknown.
    pub async fn change_by(&mut self, units: &[i64]) -> Result<Result<(), RowRefusal>, RecordsError> {
        let is_alone = units.len() == 1;
        let is_short = |(row, units): (&Option<LockedRow>, &i64)| {
            // The units that a region gets may be fewer than it lacks.
            (*units < 0 || is_alone) && row.is_none_or(|row| row.stock.saturating_add(*units) < 0)
        };
        if let Some(why) = &self.refused {
            return Ok(Err(RowRefusal::ByMySql(why.clone())));
        }
        if self.rows.iter().zip(units).any(is_short) {
            return Ok(Err(RowRefusal::TooFew));
        }
        if self.rows.iter().flatten().any(|row| row.is_delisted) {
            return Ok(Err(RowRefusal::Delisted));
        }
        for (voucher, units) in self.vouchers.iter().zip(units) {
            let updated = sqlx::query(named(
                "UPDATE {vouchers} SET stock = CAST(stock AS SIGNED) + ?, \
                 initial_stock = initial_stock + ? WHERE voucher_id = ?",
            ));
            let updated = updated.bind(units).bind(units).bind(voucher.get());
            match updated.execute(&mut **self.session).await {
                Ok(_) => {}
                Err(error) if is_value_out_of_range(&error) => return Ok(Err(RowRefusal::TooMany)),
                Err(error) if is_statement_refused(&error) => {
                    return Ok(Err(RowRefusal::ByMySql(explain(&error))));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Ok(()))
    }

    /// Sets the initial stock of a single voucher to its stock, if its sale has not begun, and it has no order in MySQL.
    /// Returns whether this is so. Other sessions see the change only after [`LockedRows::commit`].
    ///
    /// # Errors
    /// Fails like [`super::find`]. Whether the row is still locked is then unknown.
    pub async fn begin_with_stock(&mut self, voucher: VoucherId) -> Result<bool, RecordsError> {
        let update = sqlx::query(named(super::upcoming::BEGIN_WITH_STOCK)).bind(voucher.get());
        Ok(update.execute(&mut **self.session).await?.rows_affected() > 0)
    }

    /// The reason why the locked rows cannot be changed. `None` if they can be changed.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Delists the vouchers: ends their sales permanently, and sets the end times to now. Other sessions see the change
    /// only after [`LockedRows::commit`]. Sales that already ended or were already delisted keep their times.
    ///
    /// # Errors
    /// Fails like [`super::find`]. Whether the rows are still locked is then unknown.
    pub async fn delist(&mut self) -> Result<(), RecordsError> {
        for voucher in &self.vouchers {
            let delisted = sqlx::query(named(
                "UPDATE {vouchers} SET delisted_at = COALESCE(delisted_at, CURRENT_TIMESTAMP), \
                 end_time = IF(end_time + 0 > 0 AND end_time <= CURRENT_TIMESTAMP, end_time, CURRENT_TIMESTAMP) WHERE voucher_id = ?",
            ));
            delisted.bind(voucher.get()).execute(&mut **self.session).await?;
            // The sale never changes again, so no query has to read its window.
            let carried = sqlx::query("DELETE FROM tidegate_carried_window WHERE voucher_id = ?");
            carried.bind(voucher.get()).execute(&mut **self.session).await?;
        }
        Ok(())
    }

    /// Commits the changes of the locked rows, with the COMMIT in a packet of its own. A server that replicates by
    /// certification reports a conflict only for such a packet.
    ///
    /// # Errors
    /// Fails like [`super::find`]. Whether the changes were committed is then unknown.
    pub async fn commit(self) -> Result<(), RecordsError> {
        Ok(self.session.commit().await?)
    }

    /// Rolls back the changes of the locked rows. If the server does not get the ROLLBACK, it rolls back when the
    /// session ends.
    pub async fn rollback(self) {
        self.session.roll_back().await;
    }
}

//! The rows of one or two vouchers, locked together: nobody else changes their stocks, or ends their sales, meanwhile.

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

/// What the server says to a change of locked rows. Whatever it says, they stay locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// It is made.
    Made,
    /// The column cannot hold so many.
    TooMany,
    /// A sale is over for good, which was seen in a row that could have been changed.
    Delisted,
    /// It is refused for certain, with these words.
    Refused(String),
}

/// What a locked row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockedRow {
    /// Units left.
    pub stock: i64,
    /// Units at the start; None: unknown.
    pub initial: Option<i64>,
    is_delisted: bool,
}

/// Rows of vouchers, locked so that nobody else changes them. Dropped without a commit, it changes nothing.
#[derive(Debug)]
pub(crate) struct LockedRows<const N: usize> {
    session: Session,
    vouchers: [VoucherId; N],
    /// Why the rows cannot be changed.
    refused: Option<String>,
    /// What they say; None: no row.
    pub rows: [Option<LockedRow>; N],
}

/// Locks the rows of vouchers, the lower id first, so that two who lock the same never wait for each other, and reads them. Where the
/// server lets nobody write, others are kept from writing them all the same.
///
/// # Errors
/// As [`super::find`], and when others hold a row for longer than a lock wait.
pub(crate) async fn lock_rows<const N: usize>(
    pool: &MySqlPool,
    vouchers: [VoucherId; N],
) -> Result<LockedRows<N>, RecordsError> {
    let mut session = Session::begin(pool).await?;
    let (mut rows, mut refused) = ([None; N], None);
    let mut ascending: [usize; N] = std::array::from_fn(|at| at);
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

impl<const N: usize> LockedRows<N> {
    /// Changes stock and initial stock of each by these units, which nobody sees before [`LockedRows::commit`]. A sale that is over for
    /// good is not changed.
    ///
    /// # Errors
    /// As [`super::find`]. Whether the rows are still locked is unknown then.
    pub async fn change_by(&mut self, units: [i64; N]) -> Result<RowChange, RecordsError> {
        if let Some(why) = &self.refused {
            return Ok(RowChange::Refused(why.clone()));
        }
        if self.rows.iter().flatten().any(|row| row.is_delisted) {
            return Ok(RowChange::Delisted);
        }
        for (voucher, units) in self.vouchers.into_iter().zip(units) {
            let changed = change_row(&mut self.session, voucher, units).await?;
            if changed != RowChange::Made {
                return Ok(changed);
            }
        }
        Ok(RowChange::Made)
    }

    /// Why the rows cannot be changed; None: they can.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Ends the sales for good: they are delisted, and over, from now on, which nobody sees before [`LockedRows::commit`]. What was so
    /// before stays.
    ///
    /// # Errors
    /// As [`super::find`]. Whether the rows are still locked is unknown then.
    pub async fn delist(&mut self) -> Result<(), RecordsError> {
        for voucher in self.vouchers {
            let delisted = sqlx::query(named(
                "UPDATE {vouchers} SET delisted_at = COALESCE(delisted_at, CURRENT_TIMESTAMP), \
                 end_time = IF(end_time + 0 > 0 AND end_time <= CURRENT_TIMESTAMP, end_time, CURRENT_TIMESTAMP) WHERE voucher_id = ?",
            ));
            delisted.bind(voucher.get()).execute(&mut **self.session).await?;
        }
        Ok(())
    }

    /// Commits what was changed, in a packet of its own: a server that replicates by certification says only to that what
    /// came of it.
    ///
    /// # Errors
    /// As [`super::find`]. Whether it was committed is unknown then.
    pub async fn commit(self) -> Result<(), RecordsError> {
        Ok(self.session.commit().await?)
    }

    /// Changes nothing. Where the server does not get this, the end of the session rolls back.
    pub async fn rollback(self) {
        self.session.roll_back().await;
    }
}

async fn change_row(
    session: &mut MySqlConnection,
    voucher: VoucherId,
    units: i64,
) -> Result<RowChange, RecordsError> {
    let updated = sqlx::query(named(
        "UPDATE {vouchers} SET stock = CAST(stock AS SIGNED) + ?, \
         initial_stock = initial_stock + ? WHERE voucher_id = ?",
    ));
    match updated.bind(units).bind(units).bind(voucher.get()).execute(session).await {
        Ok(_) => Ok(RowChange::Made),
        Err(error) if is_value_out_of_range(&error) => Ok(RowChange::TooMany),
        Err(error) if is_statement_refused(&error) => Ok(RowChange::Refused(explain(&error))),
        Err(error) => Err(error.into()),
    }
}

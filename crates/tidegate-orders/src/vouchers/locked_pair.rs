//! The stocks of two vouchers, locked together.

use sqlx::{MySql, MySqlPool, Transaction};

use super::{
    LOCK_TO_READ, LOCK_TO_WRITE, RowChange, VoucherError, change_row, explain, is_statement_refused,
    select_locked,
};
use crate::order::VoucherId;

/// The stocks of the rows of two vouchers, locked so that nobody else changes them. Dropped without a commit, it changes nothing.
#[derive(Debug)]
pub(crate) struct LockedPair {
    transaction: Transaction<'static, MySql>,
    vouchers: [VoucherId; 2],
    /// Why the rows cannot be changed.
    refused: Option<String>,
    /// Of each, units left and at the start; None: no row.
    pub stocks: [Option<(i64, Option<i64>)>; 2],
}

/// Locks the rows of two vouchers, the lower id first, and reads their stocks, in one transaction.
///
/// # Errors
/// As [`super::find`], and when others hold a row for longer than a lock wait.
pub(crate) async fn lock_two_stocks(
    pool: &MySqlPool,
    vouchers: [VoucherId; 2],
) -> Result<LockedPair, VoucherError> {
    let mut transaction = pool.begin().await?;
    let (mut stocks, mut refused) = ([None, None], None);
    let ascending = if vouchers[0] <= vouchers[1] { [0, 1] } else { [1, 0] };
    for at in ascending {
        stocks[at] = match select_locked(&mut transaction, vouchers[at], LOCK_TO_WRITE).await {
            Err(error) if is_statement_refused(&error) => {
                refused = Some(explain(&error));
                select_locked(&mut transaction, vouchers[at], LOCK_TO_READ).await?
            }
            stocks => stocks?,
        };
    }
    Ok(LockedPair { transaction, vouchers, refused, stocks })
}

impl LockedPair {
    /// Changes stock and initial stock of both, which nobody sees before [`LockedPair::commit`].
    ///
    /// # Errors
    /// As [`super::find`]. Whether the rows are still locked is unknown then.
    pub async fn change_by(&mut self, units: [i64; 2]) -> Result<RowChange, VoucherError> {
        if let Some(why) = &self.refused {
            return Ok(RowChange::Refused(why.clone()));
        }
        for (voucher, units) in self.vouchers.into_iter().zip(units) {
            let changed = change_row(&mut self.transaction, voucher, units).await?;
            if changed != RowChange::Made {
                return Ok(changed);
            }
        }
        Ok(RowChange::Made)
    }

    /// Commits what was changed, in a packet of its own.
    ///
    /// # Errors
    /// As [`super::find`]. Whether it was committed is unknown then.
    pub async fn commit(self) -> Result<(), VoucherError> {
        Ok(self.transaction.commit().await?)
    }

    /// Changes nothing. Where the server does not get this, the end of the session rolls back.
    pub async fn rollback(self) {
        let _ = self.transaction.rollback().await;
    }
}

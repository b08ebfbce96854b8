//! The middle step of a change of stock: MySQL gets what Redis has noted, once.
//!
//! That the initial stock is the one before the change does not mean that the change is still to be made: others may have
//! completed it, and made the opposite one since. Only the note tells, and only while nobody can end it. So the row is locked
//! first, then the note is read, and what the two say holds until the lock is gone. A statement that comes late finds its
//! session ended, and its lock with it; in a cluster that certifies, it fails at the COMMIT of others.

use sqlx::MySqlPool;

use crate::{
    RecordsError,
    gate::{ChangeState, GateError, RestockReply, Sales, StockChange},
    order::VoucherId,
    records::vouchers::{LockedRows, RowChange, lock_rows},
};

/// Who noted a change in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Whoever asks, just now: nobody but them has tried to change MySQL.
    Now,
    /// Somebody, earlier: MySQL may have it, also where a replica that lags behind does not show it.
    Before,
}

/// What became of a change of the stock in MySQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restocked {
    /// The row has it, now or since before.
    Done,
    /// Refused and cancelled: the row has fewer units than are to be taken.
    TooFew,
    /// Refused and cancelled: the column cannot hold so many.
    TooMany,
    /// Refused and cancelled: its sale is over for good.
    Delisted,
    /// Refused and cancelled: MySQL says why, such as that it is read-only.
    RefusedByMySql(String),
    /// Refused by MySQL with these words. The note stays open: an earlier try may have been made.
    RefusedAgain(String),
    /// Refused, and Redis did not cancel it.
    NotCancelled(RestockReply),
    /// Nothing changed: the initial stock is neither the one before the change nor the one after it. None: unknown, or no row.
    OtherInitialStock(Option<i64>),
    /// Nothing changed: the note is not open any more, or not there.
    NotOpen,
}

/// Why it came to no end.
#[derive(Debug, thiserror::Error)]
pub enum RestockError {
    /// MySQL did not answer, before anything was changed there.
    #[error(transparent)]
    MySql(#[from] RecordsError),
    /// Redis did not answer, before anything was changed in MySQL.
    #[error(transparent)]
    Redis(#[from] GateError),
    /// MySQL did not say what came of the COMMIT.
    #[error("{0}")]
    Commit(RecordsError),
}

/// Changes stock and initial stock in MySQL, if the note of this very change is open and the row does not have it yet. Cancels
/// in Redis what MySQL refuses.
///
/// Locks the voucher's row for a round trip to Redis, and never longer than a session may be silent.
///
/// # Errors
/// See [`RestockError`]. May be called again.
pub async fn apply_to_mysql(
    sales: &Sales,
    pool: &MySqlPool,
    voucher: VoucherId,
    change: &StockChange,
    begun: Begun,
) -> Result<Restocked, RestockError> {
    let mut held = lock_rows(pool, [voucher]).await?;
    let step = apply_once(sales, &mut held, voucher, (change, begun)).await;
    if matches!(step, Ok(Restocked::Done)) {
        held.commit().await.map_err(RestockError::Commit)?;
    } else {
        held.rollback().await;
    }
    step
}

async fn apply_once(
    sales: &Sales,
    held: &mut LockedRows<1>,
    voucher: VoucherId,
    (change, begun): (&StockChange, Begun),
) -> Result<Restocked, RestockError> {
    // After the lock: what was read before it may have changed since.
    if sales.read_change(voucher).await?.as_ref() != Some(&change.with_state(ChangeState::Open)) {
        return Ok(Restocked::NotOpen);
    }
    let [row] = held.rows;
    let refused = match (row, row.and_then(|row| row.initial)) {
        (_, Some(initial)) if initial == change.after() => return Ok(Restocked::Done),
        (Some(row), Some(initial)) if initial == change.before => {
            if row.stock.saturating_add(change.units) < 0 {
                Restocked::TooFew
            } else {
                match held.change_by([change.units]).await? {
                    RowChange::Made => return Ok(Restocked::Done),
                    RowChange::TooMany => Restocked::TooMany,
                    RowChange::Delisted => Restocked::Delisted,
                    RowChange::Refused(why) if begun == Begun::Before => {
                        return Ok(Restocked::RefusedAgain(why));
                    }
                    RowChange::Refused(why) => Restocked::RefusedByMySql(why),
                }
            }
        }
        (_, initial) => return Ok(Restocked::OtherInitialStock(initial)),
    };
    // While the row is locked, too: otherwise somebody else could find the note open in between, and make the change.
    let cancelled = change.with_state(ChangeState::Cancelled);
    Ok(match sales.restock(voucher, Some(change), &cancelled, -change.units.min(0)).await? {
        RestockReply::Done => refused,
        reply => Restocked::NotCancelled(reply),
    })
}

//! The middle step of a change of stock, of one voucher or of two: MySQL gets what Redis has noted, once, in one transaction.
//!
//! That the initial stock is the one before the change does not mean that the change is still to be made: others may have
//! completed it, and made the opposite one since. Only the note tells, and only while nobody can end it. So the row is locked
//! first, then the note is read, and what the two say holds until the lock is gone. A statement that comes late finds its
//! session ended, and its lock with it; in a cluster that certifies, it fails at the COMMIT of others.

use sqlx::MySqlPool;

use crate::{
    RecordsError,
    gate::{ChangeReply, ChangeState, GateError, Sales, StockChange, WholeChange},
    order::VoucherId,
    records::vouchers::{LockedRows, RowRefusal, lock_rows},
};

/// Who noted a change in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Whoever asks, just now: nobody but them has tried to change MySQL.
    Now,
    /// Somebody, earlier: MySQL may have it, also where a replica that lags behind does not show it.
    Before,
}

/// What became of a change in MySQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The rows have it, now or since before.
    Done {
        /// The one of two vouchers whose note Redis has lost.
        lost: Option<VoucherId>,
    },
    /// Refused and cancelled.
    Cancelled(RowRefusal),
    /// Cancelled: MySQL does not have it, and Redis has lost the note of this one of two vouchers.
    CancelledWithout(VoucherId),
    /// Refused by MySQL. The note stays open: an earlier try may have been made.
    RefusedAgain {
        /// What MySQL says.
        why: String,
        /// The one of two vouchers whose note Redis has lost.
        lost: Option<VoucherId>,
    },
    /// Refused, and Redis did not cancel it.
    NotCancelled(ChangeReply),
    /// Nothing changed: the initial stocks are neither those before the change nor those after it, of each voucher whose note is
    /// there. None: unknown, or no row.
    OtherInitialStock(Vec<(VoucherId, Option<i64>)>),
    /// Nothing changed: no note of it is open any more.
    NotOpen,
}

/// Why it came to no end.
#[derive(Debug, thiserror::Error)]
pub enum StockChangeError {
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

/// Changes stock and initial stock in MySQL, if the notes of this very change are open and the rows do not have it yet. Cancels
/// in Redis what MySQL refuses.
///
/// A change of two vouchers of which Redis has one note left is not made any more. It is done if MySQL has it, and cancelled on the
/// side whose note is there if not. The other side's stock in Redis stays as it is: without a note, nobody knows whether it was made
/// anew from MySQL since, and would get the units twice.
///
/// Locks the rows of the vouchers for a round trip to Redis, and never longer than a session may be silent.
///
/// # Errors
/// See [`StockChangeError`]. May be called again.
pub async fn apply_to_mysql(
    sales: &Sales,
    pool: &MySqlPool,
    whole: &WholeChange,
    begun: Begun,
) -> Result<Applied, StockChangeError> {
    let mut held = lock_rows(pool, whole.sides.iter().map(|(voucher, _)| *voucher).collect()).await?;
    let step = apply_once(sales, &mut held, whole, begun).await;
    if matches!(step, Ok(Applied::Done { .. })) {
        held.commit().await.map_err(StockChangeError::Commit)?;
    } else {
        held.rollback().await;
    }
    step
}

async fn apply_once(
    sales: &Sales,
    held: &mut LockedRows,
    whole: &WholeChange,
    begun: Begun,
) -> Result<Applied, StockChangeError> {
    // After the lock: what was read before it may have changed since.
    let (mut is_open, mut lost) = (false, None);
    for (voucher, change) in &whole.sides {
        match sales.read_change(*voucher).await? {
            Some(note) if note == *change => is_open = true,
            // Others have ended it, on all sides at once.
            Some(note) if note.id == change.id => return Ok(Applied::NotOpen),
            _ => lost = Some(*voucher),
        }
    }
    if !is_open {
        return Ok(Applied::NotOpen);
    }
    let initials: Vec<_> = held.rows.iter().map(|row| row.and_then(|row| row.initial)).collect();
    let is_at = |at: fn(&StockChange) -> i64| {
        let mut noted = whole.sides.iter().zip(&initials).filter(|((voucher, _), _)| Some(*voucher) != lost);
        noted.all(|((_, change), initial)| *initial == Some(at(change)))
    };
    if is_at(StockChange::after) {
        return Ok(Applied::Done { lost });
    }
    if !is_at(|change| change.before) {
        let noted = whole.sides.iter().map(|(voucher, _)| *voucher).zip(initials);
        return Ok(Applied::OtherInitialStock(noted.filter(|(voucher, _)| Some(*voucher) != lost).collect()));
    }
    let units: Vec<_> = whole.sides.iter().map(|(_, change)| change.units).collect();
    let refused = match (lost, held.refused()) {
        (_, Some(why)) if begun == Begun::Before => {
            return Ok(Applied::RefusedAgain { why: why.to_owned(), lost });
        }
        (Some(lost), _) => Applied::CancelledWithout(lost),
        (None, _) => match held.change_by(&units).await? {
            Ok(()) => return Ok(Applied::Done { lost }),
            Err(RowRefusal::ByMySql(why)) if begun == Begun::Before => {
                return Ok(Applied::RefusedAgain { why, lost });
            }
            Err(refusal) => Applied::Cancelled(refusal),
        },
    };
    // While the rows are locked, too: otherwise somebody else could find the notes open in between, and make the change.
    Ok(match sales.end_change(&whole.without(lost), ChangeState::Cancelled).await? {
        ChangeReply::Done => refused,
        reply => Applied::NotCancelled(reply),
    })
}

//! The middle step of a change of stock, of one voucher or of two: MySQL gets the change that Redis has noted, once, in
//! one transaction.
//!
//! The initial stock before the change is no proof that the change must still be made: another process may have made
//! it, and the opposite change since. Only the note in Redis shows this, and only while no process can end it. So the
//! row is locked first and then the note is read, and both stay true as long as the lock. A statement that comes late
//! finds its session ended, and its lock with it; in a cluster that certifies, it fails at the COMMIT of others.

use sqlx::MySqlPool;

use crate::{
    RecordsError,
    order::VoucherId,
    records::vouchers::{LockedRows, RowRefusal, lock_rows},
    scripts::{ChangeReply, ChangeState, RedisStore, Sales, ScriptError, StockChange, WholeChange},
};

/// Whether this call or an earlier call began the stock change that is noted in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The caller noted it just now: no other process has tried to change MySQL.
    Now,
    /// It was noted earlier: MySQL may have the change, even if a replica that lags does not show it.
    Before,
}

/// The outcome of a stock change in MySQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The rows have the change, now or from an earlier try.
    Done {
        /// The one of two vouchers whose note Redis has lost.
        lost: Option<VoucherId>,
    },
    /// MySQL refused the change, and it is cancelled.
    Cancelled(RowRefusal),
    /// The change is cancelled: MySQL does not have it, and Redis has lost the note of this one of two vouchers.
    CancelledWithout(VoucherId),
    /// MySQL refused the change. The note stays open, because an earlier try may have succeeded.
    RefusedAgain {
        /// The error message of MySQL.
        why: String,
        /// The one of two vouchers whose note Redis has lost.
        lost: Option<VoucherId>,
    },
    /// MySQL refused the change, and Redis did not cancel it.
    NotCancelled(ChangeReply),
    /// Nothing changed: for the vouchers whose notes exist, the initial stocks are neither those before the change nor
    /// those after it. `None` if the initial stock is unknown, or the voucher has no row.
    OtherInitialStock(Vec<(VoucherId, Option<i64>)>),
    /// Nothing changed: no note of the change is open any more.
    NotOpen,
}

/// The reason why a stock change could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum StockChangeError {
    /// MySQL did not answer before anything was changed there.
    #[error(transparent)]
    MySql(#[from] RecordsError),
    /// Redis did not answer before anything was changed in MySQL.
    #[error(transparent)]
    Redis(#[from] ScriptError),
    /// MySQL did not report the result of the COMMIT.
    #[error("{0}")]
    Commit(RecordsError),
}

/// Changes the stock and the initial stock (the total units) in MySQL. The call changes them only if the notes in Redis
/// about exactly this change are open and the rows do not have the change yet. If MySQL refuses the change, the call
/// cancels the change in Redis.
///
/// If Redis has only one note of a change of two vouchers, the change is not made any more. If MySQL has it, it is
/// done; otherwise it is cancelled on the side whose note exists. The other side's stock in Redis stays as it is.
/// Without a note, it may have been rebuilt from MySQL since, and would get the units twice.
///
/// Locks the rows of the vouchers for a round trip to Redis, and never longer than a session may be silent.
///
/// # Errors
/// Returns a [`StockChangeError`]. The call may be repeated.
pub async fn apply_to_mysql(
    sales: &Sales,
    pool: &MySqlPool,
    whole: &WholeChange,
    started: Started,
) -> Result<Applied, StockChangeError> {
    let mut held = lock_rows(pool, whole.sides.iter().map(|(voucher, _)| *voucher).collect()).await?;
    let step = apply_once(sales, &mut held, whole, started).await;
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
    started: Started,
) -> Result<Applied, StockChangeError> {
    // Read after the lock: a note that was read before it may have changed since.
    let (mut is_open, mut lost) = (false, None);
    for (voucher, change) in &whole.sides {
        match sales.read_change(*voucher).await? {
            Some(note) if note == *change => is_open = true,
            // Another process has ended the change, on all sides at once.
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
        (_, Some(why)) if started == Started::Before => {
            return Ok(Applied::RefusedAgain { why: why.to_owned(), lost });
        }
        (Some(lost), _) => Applied::CancelledWithout(lost),
        (None, _) => match held.change_by(&units).await? {
            Ok(()) => return Ok(Applied::Done { lost }),
            Err(RowRefusal::ByMySql(why)) if started == Started::Before => {
                return Ok(Applied::RefusedAgain { why, lost });
            }
            Err(refusal) => Applied::Cancelled(refusal),
        },
    };
    // The rows must still be locked: otherwise another process could find the notes open in between, and make the
    // change.
    Ok(match sales.end_change(&whole.without(lost), ChangeState::Cancelled).await? {
        ChangeReply::Done => refused,
        reply => Applied::NotCancelled(reply),
    })
}

/// The outcome of carrying a stock to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedStock {
    /// Redis has the stock of the row now.
    Carried,
    /// The sale has begun, or MySQL has orders of the voucher, or it is delisted.
    WasOn,
    /// An operator changes the stock, or has just changed it.
    BeingAdjusted,
    /// Redis has buyers of the voucher, or no complete journal: another program may sell it.
    NotOurs,
}

/// Gives Redis the stock that a shop wrote into the row of a voucher whose sale has not begun. The row gets this stock as
/// its initial stock first. If the call fails half-way, the next call completes it.
///
/// # Errors
/// Fails if a store does not answer.
pub async fn carry_stock(
    redis: &RedisStore,
    mysql: &MySqlPool,
    voucher: VoucherId,
    by: &str,
) -> Result<CarriedStock, StockChangeError> {
    let mut locked = lock_rows(mysql, vec![voucher]).await?;
    let row = locked.rows.first().copied().flatten();
    let sales = redis.sales();
    // The note is read while the row is locked: later, the script refuses another note.
    let note = sales.read_change(voucher).await?;
    let sale = sales.read_voucher(voucher).await?;
    let is_complete = redis.journals().snapshot(voucher).await?.is_complete;
    let (Some(row), Some(stock)) = (row, sale.stock) else { return Ok(CarriedStock::NotOurs) };
    if note.as_ref().is_some_and(|note| note.state == ChangeState::Open) {
        return Ok(CarriedStock::BeingAdjusted);
    }
    if sale.buyers > 0 || !is_complete {
        return Ok(CarriedStock::NotOurs);
    }
    if !locked.begin_with_stock(voucher).await? {
        return Ok(CarriedStock::WasOn);
    }
    locked.commit().await?;
    let units = row.stock - stock;
    if units == 0 {
        return Ok(CarriedStock::Carried);
    }
    let change = StockChange::new(units, row.stock - units, by.to_owned()).with_state(ChangeState::Done);
    Ok(match sales.carry_change(voucher, note.as_ref(), &change).await? {
        ChangeReply::Done => CarriedStock::Carried,
        ChangeReply::TooFew => CarriedStock::NotOurs,
        ChangeReply::OtherNote | ChangeReply::NoStock | ChangeReply::Over => CarriedStock::BeingAdjusted,
    })
}

//! The middle step of a move of units from one sale to another: MySQL gets both sides of it, once, in one transaction. As in
//! [`crate::restock`], the rows are locked first, then the notes are read.

use sqlx::MySqlPool;

use crate::{
    gate::{ChangeState, Gate, Transfer, TransferReply},
    restock::{Begun, RestockError},
    vouchers::{LockedRows, RowChange, lock_rows},
};

/// What became of a move in MySQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transferred {
    /// The rows have it, now or since before.
    Done,
    /// Refused and cancelled: the row that gives has fewer units.
    TooFew,
    /// Refused and cancelled: the column cannot hold so many.
    TooMany,
    /// Refused and cancelled: one of the sales is over for good.
    Delisted,
    /// Refused and cancelled: MySQL says why, such as that it is read-only.
    RefusedByMySql(String),
    /// Refused by MySQL with these words. The notes stay open: an earlier try may have been made.
    RefusedAgain(String),
    /// Refused, and Redis did not cancel it.
    NotCancelled(TransferReply),
    /// Nothing changed: the initial stocks are neither those before the move nor those after it. None: unknown, or no row.
    OtherInitialStocks([Option<i64>; 2]),
    /// Nothing changed: a note is not open any more, or not there.
    NotOpen,
}

/// Moves the units in MySQL, if both notes of this very move are open and the rows do not have it yet. Cancels in Redis what MySQL
/// refuses.
///
/// # Errors
/// See [`RestockError`]. May be called again.
pub async fn apply_to_mysql(
    gate: &Gate,
    pool: &MySqlPool,
    transfer: &Transfer,
    begun: Begun,
) -> Result<Transferred, RestockError> {
    let mut held = lock_rows(pool, [transfer.giver.0, transfer.taker.0]).await?;
    let step = apply_once(gate, &mut held, transfer, begun).await;
    if matches!(step, Ok(Transferred::Done)) {
        held.commit().await.map_err(RestockError::Commit)?;
    } else {
        held.rollback().await;
    }
    step
}

async fn apply_once(
    gate: &Gate,
    held: &mut LockedRows<2>,
    transfer: &Transfer,
    begun: Begun,
) -> Result<Transferred, RestockError> {
    let open = transfer.with_state(ChangeState::Open);
    for (voucher, change) in [&open.giver, &open.taker] {
        if gate.read_change(*voucher).await?.as_ref() != Some(change) {
            return Ok(Transferred::NotOpen);
        }
    }
    let (gives, gets) = (&transfer.giver.1, &transfer.taker.1);
    let initials = held.rows.map(|row| row.and_then(|row| row.initial));
    if initials == [Some(gives.after()), Some(gets.after())] {
        return Ok(Transferred::Done);
    }
    if initials != [Some(gives.before), Some(gets.before)] {
        return Ok(Transferred::OtherInitialStocks(initials));
    }
    let left = held.rows[0].map_or(0, |row| row.stock);
    let refused = if left.saturating_add(gives.units) < 0 {
        Transferred::TooFew
    } else {
        match held.change_by([gives.units, gets.units]).await? {
            RowChange::Made => return Ok(Transferred::Done),
            RowChange::TooMany => Transferred::TooMany,
            RowChange::Delisted => Transferred::Delisted,
            RowChange::Refused(why) if begun == Begun::Before => return Ok(Transferred::RefusedAgain(why)),
            RowChange::Refused(why) => Transferred::RefusedByMySql(why),
        }
    };
    // While the rows are locked, too: otherwise somebody else could find the notes open in between, and make the move.
    let cancelled = transfer.with_state(ChangeState::Cancelled);
    let open = [Some(&open.giver.1), Some(&open.taker.1)];
    Ok(match gate.transfer(open, &cancelled, [transfer.units(), 0]).await? {
        TransferReply::Done => refused,
        reply => Transferred::NotCancelled(reply),
    })
}

//! The middle step of a move of units from one sale to another: MySQL gets both sides of it, once, in one transaction. As in
//! [`crate::restock`], the rows are locked first, then the notes are read.

use sqlx::MySqlPool;

use crate::{
    gate::{ChangeState, RestockReply, Sales, StockChange, Transfer, TransferReply},
    order::VoucherId,
    records::vouchers::{LockedRows, RowChange, lock_rows},
    restock::{Begun, RestockError},
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
    sales: &Sales,
    pool: &MySqlPool,
    transfer: &Transfer,
    begun: Begun,
) -> Result<Transferred, RestockError> {
    let mut held = lock_rows(pool, [transfer.giver.0, transfer.taker.0]).await?;
    let step = apply_once(sales, &mut held, transfer, begun).await;
    if matches!(step, Ok(Transferred::Done)) {
        held.commit().await.map_err(RestockError::Commit)?;
    } else {
        held.rollback().await;
    }
    step
}

async fn apply_once(
    sales: &Sales,
    held: &mut LockedRows<2>,
    transfer: &Transfer,
    begun: Begun,
) -> Result<Transferred, RestockError> {
    let open = transfer.with_state(ChangeState::Open);
    for (voucher, change) in [&open.giver, &open.taker] {
        if sales.read_change(*voucher).await?.as_ref() != Some(change) {
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
    Ok(match sales.transfer(open, &cancelled, [transfer.units(), 0]).await? {
        TransferReply::Done => refused,
        reply => Transferred::NotCancelled(reply),
    })
}

/// Which side's note of a move is there, where the other is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// That of the side that gives.
    Giver,
    /// That of the side that gets.
    Taker,
}

impl Kept {
    /// The side whose note is there.
    #[must_use]
    pub const fn side(self, transfer: &Transfer) -> &(VoucherId, StockChange) {
        match self {
            Self::Giver => &transfer.giver,
            Self::Taker => &transfer.taker,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Giver => Self::Taker,
            Self::Taker => Self::Giver,
        }
    }
}

/// What became of a move of which one note is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedByOne {
    /// MySQL has it, and so has Redis on the side whose note is there.
    Done,
    /// MySQL does not have it, and Redis has no more of it on that side.
    Cancelled,
    /// Nothing changed: the initial stock is neither that before the move nor that after it. None: unknown, or no row.
    OtherInitialStock(Option<i64>),
    /// Nothing changed: MySQL does not show it, and lets nobody write, so an earlier try may have been made.
    RefusedAgain(String),
    /// Redis did not note it.
    NotEnded(RestockReply),
    /// Nothing changed: its note is not open any more, or the other one is there.
    Moved,
}

/// Ends a move of which Redis has one open note: done if MySQL has it, and otherwise cancelled. The other side's stock in Redis stays
/// as it is: without a note, nobody knows whether it was made anew from MySQL since, and would get the units twice.
///
/// # Errors
/// See [`RestockError`]. May be called again.
pub async fn end_by_one_note(
    sales: &Sales,
    pool: &MySqlPool,
    transfer: &Transfer,
    kept: Kept,
) -> Result<EndedByOne, RestockError> {
    let held = lock_rows(pool, [kept.side(transfer).0]).await?;
    let ended = end_once(sales, &held, transfer, kept).await;
    held.rollback().await;
    ended
}

/// While the row is locked, nobody makes the move in MySQL.
async fn end_once(
    sales: &Sales,
    held: &LockedRows<1>,
    transfer: &Transfer,
    kept: Kept,
) -> Result<EndedByOne, RestockError> {
    let (voucher, open) = kept.side(transfer);
    // In this order: one that begins now is noted on both sides at once.
    let is_open = sales.read_change(*voucher).await?.as_ref() == Some(open);
    let other = sales.read_change(kept.other().side(transfer).0).await?;
    if !is_open || other.is_some_and(|note| note.id == open.id) {
        return Ok(EndedByOne::Moved);
    }
    let initial = held.rows[0].and_then(|row| row.initial);
    let (state, units, ended) = if initial == Some(open.after()) {
        (ChangeState::Done, open.units.max(0), EndedByOne::Done)
    } else if initial != Some(open.before) {
        return Ok(EndedByOne::OtherInitialStock(initial));
    } else if let Some(why) = held.refused() {
        return Ok(EndedByOne::RefusedAgain(why.to_owned()));
    } else {
        (ChangeState::Cancelled, -open.units.min(0), EndedByOne::Cancelled)
    };
    Ok(match sales.restock(*voucher, Some(open), &open.with_state(state), units).await? {
        RestockReply::Done => ended,
        reply => EndedByOne::NotEnded(reply),
    })
}

//! The middle step of a change of stock: MySQL gets what Redis has noted, once.
//!
//! That the initial stock is the one before the change does not say that the change is still to be made: others may have
//! completed it, and made the opposite one since. Only the note says that, and only while nobody can end it unseen. So
//! the row is locked first, then the note is read, and what the two say holds until the lock is gone. A statement that
//! comes late finds its session ended and its lock with it, or the COMMIT of others in a cluster that certifies.

use sqlx::MySqlPool;

use crate::{
    gate::{ChangeState, Gate, GateError, RestockReply, StockChange},
    order::VoucherId,
    vouchers::{self, Fit, HeldStocks, VoucherError},
};

/// What became of a change of the stock in MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restocked {
    /// The row has it, now or since before.
    Done,
    /// Refused and withdrawn: the row has fewer units than are to be taken.
    TooFew,
    /// Refused and withdrawn: the column cannot hold so many.
    TooMany,
    /// Refused, and Redis did not let it be withdrawn.
    NotWithdrawn(RestockReply),
    /// Left alone: the initial stock is neither the one before the change nor the one after it; None: unknown, or no row.
    Apart(Option<i64>),
    /// Left alone: the note of it is not open any more, or not there.
    Over,
}

/// Why it is unknown what became of it.
#[derive(Debug, thiserror::Error)]
pub enum RestockError {
    /// MySQL did not answer.
    #[error(transparent)]
    MySql(#[from] VoucherError),
    /// Redis did not answer.
    #[error(transparent)]
    Redis(#[from] GateError),
}

/// Changes stock and initial stock in MySQL, if the note of this very change is open and the row has not got it yet. What
/// MySQL refuses is withdrawn in Redis.
///
/// Holds the voucher's row for a round trip to Redis, and never longer than a session may be silent.
///
/// # Errors
/// See [`RestockError`]. May be called again.
pub async fn bring_to_mysql(
    gate: &Gate,
    pool: &MySqlPool,
    voucher: VoucherId,
    change: &StockChange,
) -> Result<Restocked, RestockError> {
    let mut held = vouchers::hold_stocks(pool, voucher).await?;
    let step = make_once(gate, &mut held, voucher, change).await;
    if matches!(step, Ok(Restocked::Done)) {
        held.commit().await?;
    } else {
        held.let_go().await;
    }
    step
}

async fn make_once(
    gate: &Gate,
    held: &mut HeldStocks,
    voucher: VoucherId,
    change: &StockChange,
) -> Result<Restocked, RestockError> {
    // Not earlier: an answer from before the lock may be old by now.
    if gate.read_change(voucher).await?.as_ref() != Some(&change.as_now(ChangeState::Open)) {
        return Ok(Restocked::Over);
    }
    let refused = match (held.stock, held.initial) {
        (_, Some(initial)) if initial == change.after() => return Ok(Restocked::Done),
        (Some(stock), Some(initial)) if initial == change.before => {
            if stock.saturating_add(change.units) < 0 {
                Restocked::TooFew
            } else if held.change_by(change.units).await? == Fit::TooMany {
                Restocked::TooMany
            } else {
                return Ok(Restocked::Done);
            }
        }
        (_, initial) => return Ok(Restocked::Apart(initial)),
    };
    // While the row is held, too: somebody else could find it open, and room for it, in between.
    let withdrawn = change.as_now(ChangeState::Withdrawn);
    Ok(match gate.restock(voucher, Some(change), &withdrawn, -change.units.min(0)).await? {
        RestockReply::Done => refused,
        reply => Restocked::NotWithdrawn(reply),
    })
}

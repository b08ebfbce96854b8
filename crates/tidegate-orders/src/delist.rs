//! The first step of ending a sale for good: MySQL delists the voucher, unless a change of its stock is open.
//!
//! An open change may still bring units, which would then go to a sale that is over. So [`delist_in_mysql`] locks the
//! row first and reads the note of the change second, in the same order as [`crate::stock_change`]. A change that is
//! noted later finds a delisted row, and is cancelled.

use sqlx::MySqlPool;

use crate::{
    order::VoucherId,
    records::vouchers::lock_rows,
    scripts::{ChangeState, Sales, StockChange},
    stock_change::StockChangeError,
};

/// The outcome of [`delist_in_mysql`] for the row of a voucher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelistedRow {
    /// The voucher is delisted, by this call or an earlier one.
    Delisted,
    /// MySQL has no row for this voucher.
    NoRow,
    /// Refused, because the given change of the stock is unfinished.
    ChangeIsOpen(Box<StockChange>),
}

/// Ends the sale of a voucher permanently in MySQL: marks its row as delisted, and sets the end of its sale to now. If
/// the voucher is already delisted, its times stay.
///
/// # Errors
/// See [`StockChangeError`]. The call may be repeated.
pub async fn delist_in_mysql(
    sales: &Sales,
    pool: &MySqlPool,
    voucher: VoucherId,
) -> Result<DelistedRow, StockChangeError> {
    let mut held = lock_rows(pool, vec![voucher]).await?;
    let note = sales.read_change(voucher).await?;
    let step = match (&held.rows[..], note.filter(|note| note.state == ChangeState::Open)) {
        ([None], _) => DelistedRow::NoRow,
        (_, Some(open)) => DelistedRow::ChangeIsOpen(Box::new(open)),
        _ => DelistedRow::Delisted,
    };
    if step == DelistedRow::Delisted {
        held.delist().await?;
        held.commit().await.map_err(StockChangeError::Commit)?;
    } else {
        held.rollback().await;
    }
    Ok(step)
}

//! The first step of ending a sale for good: MySQL is told, unless a change of its stock is open.
//!
//! Units that such a change still has to bring would go to a sale that is over. So the row is locked first, then the note is read, as
//! by who makes the change ([`crate::stock_change`]): what is noted later finds a delisted row, and is cancelled.

use sqlx::MySqlPool;

use crate::{
    gate::{ChangeState, Sales, StockChange},
    order::VoucherId,
    records::vouchers::lock_rows,
    stock_change::StockChangeError,
};

/// What became of a sale in MySQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelistedRow {
    /// It is over for good, now or since before.
    Delisted,
    /// There is no row of it.
    NoRow,
    /// Refused: this change of its stock is unfinished.
    ChangeIsOpen(Box<StockChange>),
}

/// Ends the sale of a voucher for good in MySQL: it is delisted, and over, from now on. What was so before stays.
///
/// # Errors
/// See [`StockChangeError`]. May be called again.
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

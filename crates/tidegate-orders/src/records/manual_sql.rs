//! SQL statements that messages show to an operator, to run manually.

use super::Tables;
use crate::{order::VoucherId, row_state::LIVE};

/// Returns the SQL statement that sets the number of units with which the sale of a voucher began.
#[must_use]
pub fn set_initial_stock(voucher: VoucherId) -> String {
    let Tables { vouchers, orders, .. } = Tables::DEFAULT;
    format!(
        "UPDATE {vouchers} SET initial_stock = stock + (SELECT COALESCE(SUM(quantity), 0) FROM {orders} \
         WHERE voucher_id = {voucher} AND {LIVE}) WHERE voucher_id = {voucher}"
    )
}

/// Returns the SQL statement that sets whether the programs that sell a voucher keep a journal (the changes of its
/// stock) in Redis.
#[must_use]
pub fn set_keeps_journal(voucher: VoucherId, keeps: bool) -> String {
    let (vouchers, keeps) = (Tables::DEFAULT.vouchers, u8::from(keeps));
    format!("UPDATE {vouchers} SET keeps_journal = {keeps} WHERE voucher_id = {voucher}")
}

/// Returns the SQL statement that inserts the row of a voucher with `units` units, none of them sold.
#[must_use]
pub fn insert_voucher(voucher: VoucherId, stock: i64) -> String {
    format!(
        "INSERT INTO {} (voucher_id, stock, initial_stock, begin_time, end_time) VALUES ({voucher}, \
         {stock}, {stock}, NOW(), '2037-12-31 23:59:59')",
        Tables::DEFAULT.vouchers
    )
}

//! Pausing the gate, for one voucher or for all, or the workers; and resuming them.

pub mod resume;
pub mod sales;
pub mod voucher;
mod voucher_changes;
pub mod workers;

pub use voucher_changes::{FailedVoucher, VoucherChanges};

/// Vouchers that are read or changed in one round trip. A stop is obeyed between two.
const CHUNK: usize = 100;

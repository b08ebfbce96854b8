//! Pauses the sale of one voucher or of all, or the workers; and resumes them.

pub mod resume;
pub mod sales;
pub mod voucher;
mod voucher_changes;
pub mod workers;

pub use voucher_changes::{FailedVoucher, VoucherChanges};

/// The vouchers that are read or changed in one round trip. The work can be stopped between two round trips.
const CHUNK: usize = 100;

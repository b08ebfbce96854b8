//! Pausing the gate, for one voucher or for all, or the workers; and resuming them.

pub mod resume;
pub mod sales;
pub mod voucher;
mod voucher_changes;
pub mod workers;

use fred::clients::Pool;
use tidegate_orders::{Gate, Keys};

pub use voucher_changes::{FailedVoucher, VoucherChanges};

use crate::settings::SystemSettings;

/// Vouchers that are read or changed in one round trip. A stop is obeyed between two.
const CHUNK: usize = 100;

fn gate(redis: &Pool, settings: &SystemSettings) -> Gate {
    Gate::new(redis.clone(), Keys::new(settings.keys.clone()), settings.stream.name.as_str())
}

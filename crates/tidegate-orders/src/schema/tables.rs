//! The names of our tables, and of the unique key of the orders.

pub(super) const VOUCHER: &str = "tb_seckill_voucher";
pub(super) const ORDER: &str = "tb_voucher_order";
pub(super) const REFUSAL: &str = "tidegate_refusal";
pub(super) const EVENT: &str = "tidegate_event";
pub(super) const PROBE: &str = "tidegate_probe";
pub(super) const UNIQUE_KEY: &str = "uk_voucher_user_slot";
pub(super) const UNIQUE_COLUMNS: [&str; 3] = ["voucher_id", "user_id", "slot"];

//! The names of the tables, and of the unique key of the orders.

pub(super) const VOUCHER: &str = "tb_seckill_voucher";
pub(super) const ORDER: &str = "tb_voucher_order";
pub(super) const REFUSAL: &str = "tidegate_refusal";
pub(super) const EVENT: &str = "tidegate_event";
pub(super) const UNPAID_ORDER: &str = "tidegate_unpaid_order";
pub(super) const FLEET_MARK: &str = "tidegate_fleet_mark";
/// The view that shows where the units of each voucher are.
pub(super) const UNITS: &str = "tidegate_voucher_units";
/// The columns of the view that programs rely on.
pub(super) const UNITS_COLUMNS: [&str; 11] = [
    "voucher_id",
    "loaded",
    "unsold",
    "unpaid",
    "paid",
    "used",
    "refunding",
    "given_back",
    "on_hand",
    "contradictory",
    "unaccounted",
];
pub(super) const UNANNOUNCED_RESULT: &str = "tidegate_unannounced_result";
pub(super) const LIMIT: &str = "tidegate_limit";
pub(super) const LIMIT_USE: &str = "tidegate_limit_use";
pub(super) const CAMPAIGN: &str = "tidegate_campaign";
pub(super) const CARRIED_WINDOW: &str = "tidegate_carried_window";
pub(super) const PROBE: &str = "tidegate_probe";
pub(super) const UNIQUE_KEY: &str = "uk_voucher_user_slot";
pub(super) const UNIQUE_COLUMNS: [&str; 3] = ["voucher_id", "user_id", "slot"];

//! The names of the tables that hold the facts of orders.

/// The names of the tables that hold the facts of orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    /// Orders.
    pub orders: &'static str,
    /// Vouchers, with their stocks.
    pub vouchers: &'static str,
    /// Refused orders.
    pub refusals: &'static str,
    /// Events of orders.
    pub events: &'static str,
    /// Uses of limits by orders.
    pub limit_uses: &'static str,
}

impl Tables {
    /// The tutorial's tables and ours.
    pub const DEFAULT: Self = Self {
        orders: "tb_voucher_order",
        vouchers: "tb_seckill_voucher",
        refusals: "tidegate_refusal",
        events: "tidegate_event",
        limit_uses: "tidegate_limit_use",
    };
}

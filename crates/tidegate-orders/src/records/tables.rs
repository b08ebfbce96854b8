//! The names of the tables that hold the facts of orders.

/// The tables that hold the facts of orders, by what each holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The table of orders.
    pub orders: &'static str,
    /// The table of vouchers with their stocks.
    pub vouchers: &'static str,
    /// The table of refused orders.
    pub refusals: &'static str,
    /// The table of events of orders.
    pub events: &'static str,
    /// The table of uses of limits by orders.
    pub limit_uses: &'static str,
}

impl Tables {
    /// The names of the tutorial's tables and of Tidegate's.
    pub const DEFAULT: Self = Self {
        orders: "tb_voucher_order",
        vouchers: "tb_seckill_voucher",
        refusals: "tidegate_refusal",
        events: "tidegate_event",
        limit_uses: "tidegate_limit_use",
    };
}

//! The names of the tables that hold the facts of orders.

/// The tables that hold the facts of orders, by what each holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The name of the table of orders.
    pub orders: &'static str,
    /// The name of the table of vouchers with their stocks.
    pub vouchers: &'static str,
    /// The name of the table of refused orders.
    pub refusals: &'static str,
    /// The name of the table of events.
    pub events: &'static str,
    /// The name of the table with the limits that an order counts against.
    pub limit_uses: &'static str,
}

impl Tables {
    /// The default names of the tables: the names in the tutorial shop hm-dianping, and Tidegate's own names.
    pub const DEFAULT: Self = Self {
        orders: "tb_voucher_order",
        vouchers: "tb_seckill_voucher",
        refusals: "tidegate_refusal",
        events: "tidegate_event",
        limit_uses: "tidegate_limit_use",
    };
}

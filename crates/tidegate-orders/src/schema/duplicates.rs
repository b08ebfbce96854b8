//! Live orders that share a slot: the reason why the unique key cannot be added, as text for operators.

use std::fmt;

use serde::Serialize;

/// Live orders (neither cancelled nor refunded) that have the same voucher, user and slot, although a unique key should
/// prevent this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DuplicateOrders {
    /// The number of different combinations of voucher, user and slot that several live orders have.
    pub slots: i64,
    /// The number of live orders that have the same voucher, user and slot as another order.
    pub orders: i64,
    /// The first 50 combinations of voucher, user and slot that several live orders have.
    pub listed: Vec<SharedSlot>,
}

/// A combination of voucher, user and slot that several live orders have, with the ids of these orders. All ids are
/// text, because the tables may hold any value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedSlot {
    /// The voucher id that the orders have in common.
    pub voucher: String,
    /// The user id that the orders have in common.
    pub user: String,
    /// The number of live orders with the same voucher, user and slot.
    pub orders: i64,
    /// The ids of the first 20 live orders with the same voucher, user and slot.
    pub order_ids: Vec<String>,
}

impl fmt::Display for DuplicateOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = if self.slots == 1 { "one slot".to_owned() } else { format!("{} slots", self.slots) };
        write!(
            f,
            "{} live orders share {slots} (same voucher, user and slot number); keep one in each slot, cancel the others \
             (status 4) and raise `stock` by the cancelled units (docs/takeover.md, step 3):",
            self.orders
        )?;
        for slot in &self.listed {
            let ids = slot.order_ids.join(", ");
            write!(f, "\n    voucher {} user {}: orders {ids}", slot.voucher, slot.user)?;
            match usize::try_from(slot.orders).unwrap_or(0).saturating_sub(slot.order_ids.len()) {
                0 => {}
                more => write!(f, " and {more} more")?,
            }
        }
        match usize::try_from(self.slots).unwrap_or(0).saturating_sub(self.listed.len()) {
            0 => Ok(()),
            1 => write!(f, "\n    and one more slot"),
            more => write!(f, "\n    and {more} more slots"),
        }
    }
}

//! Live orders that share a slot: the reason why the unique key cannot be added, as text for operators.

use std::fmt;

use serde::Serialize;

/// Live orders (neither cancelled nor refunded) that share voucher, user and slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DuplicateOrders {
    /// The number of shared slots.
    pub slots: i64,
    /// The number of orders in these slots.
    pub orders: i64,
    /// The first 50 of the shared slots.
    pub listed: Vec<SharedSlot>,
}

/// A shared slot and the live orders in it. Ids are text, because the tables may hold any value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedSlot {
    /// The voucher of the slot.
    pub voucher: String,
    /// The user of the slot.
    pub user: String,
    /// The number of orders in the slot.
    pub orders: i64,
    /// The first 20 ids of these orders.
    pub order_ids: Vec<String>,
}

impl fmt::Display for DuplicateOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = if self.slots == 1 { "one slot".to_owned() } else { format!("{} slots", self.slots) };
        write!(
            f,
            "{} live orders share {slots}; decide which stay, cancel the others (status 4) and raise `stock` by their units \
             (docs/takeover.md, step 3):",
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

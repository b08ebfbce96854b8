//! Live orders that share a slot: why the unique key cannot be added, as people are told.

use std::fmt;

use serde::Serialize;

/// Live orders (neither cancelled nor refunded) that share voucher, user and slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DuplicateOrders {
    /// How many slots are shared.
    pub slots: i64,
    /// How many orders stand in them.
    pub orders: i64,
    /// The first 50 of the slots.
    pub listed: Vec<SharedSlot>,
}

/// One slot and the live orders in it. Ids are text: they may be anything that the tables hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedSlot {
    /// The voucher.
    pub voucher: String,
    /// The user.
    pub user: String,
    /// How many orders.
    pub orders: i64,
    /// The first 20 of their ids.
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

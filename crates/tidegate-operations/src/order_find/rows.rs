//! The orders that a search found in rows of MySQL.

use tidegate_orders::{
    OrderStatus,
    records::{OrderRow, RefusalRow},
};

use super::{FoundOrder, FoundStatus};

impl From<OrderRow> for FoundOrder {
    fn from(row: OrderRow) -> Self {
        Self {
            order: row.order,
            user: row.user.to_string(),
            voucher: row.voucher.to_string(),
            status: FoundStatus::At(row.state().into()),
            at_ms: row.shown_ms(),
            entry: row.entry.map(|entry| entry.to_string()),
            letter: None,
        }
    }
}

impl From<RefusalRow> for FoundOrder {
    fn from(refusal: RefusalRow) -> Self {
        Self {
            order: refusal.order,
            user: refusal.user.to_string(),
            voucher: refusal.voucher.to_string(),
            status: FoundStatus::At(OrderStatus::Refused),
            at_ms: refusal.at_ms,
            entry: refusal.entry.map(|entry| entry.to_string()),
            letter: None,
        }
    }
}

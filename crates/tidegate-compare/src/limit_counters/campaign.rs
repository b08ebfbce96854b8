//! Adds up what the orders of all regions of a campaign hold of its limits.

use crate::{CompareError, compare_error::is_of_other_type};
use std::collections::HashMap;

use tidegate_orders::{
    CampaignId, Order, OrderId, VoucherId,
    gate::{GateError, HeldLimits},
};

use super::{LimitCounterCheck, orders::OrderNote};

/// Notes that are asked for at once.
const PIECE: usize = 500;

impl LimitCounterCheck<'_> {
    /// Adds it up, with the orders of each region that are known to stand in the stream or among the dead letters. While orders come and
    /// go, one that ends meanwhile may be counted.
    ///
    /// # Errors
    /// See [`CompareError`].
    pub async fn held_in_common(
        &self,
        campaign: CampaignId,
        regions: Vec<(VoucherId, Vec<Order>)>,
    ) -> Result<HeldLimits, CompareError> {
        let mut held = HeldLimits::default();
        for (voucher, in_stream) in regions {
            let mut in_stream = self.unnoted(voucher, in_stream).await?;
            let add = |note| {
                let OrderNote::Held(order) = note else { return };
                in_stream.remove(&order.order);
                if let Some(uses) = &order.uses {
                    held.add_common(campaign, order.units, uses);
                }
            };
            self.read_whatever_is_there(voucher, add).await?;
            for Order { quantity, uses, .. } in in_stream.into_values() {
                if let Some(uses) = uses {
                    held.add_common(campaign, quantity.get().unsigned_abs(), &uses);
                }
            }
        }
        Ok(held)
    }

    /// Those of these orders of which the journal says nothing.
    async fn unnoted(
        &self,
        voucher: VoucherId,
        orders: Vec<Order>,
    ) -> Result<HashMap<OrderId, Order>, CompareError> {
        let mut left: HashMap<OrderId, Order> = orders.into_iter().map(|order| (order.id, order)).collect();
        let ids: Vec<(VoucherId, OrderId)> = left.keys().map(|order| (voucher, *order)).collect();
        for ids in ids.chunks(PIECE) {
            self.0.noted(ids).await?.iter().for_each(|(_, order)| drop(left.remove(order)));
        }
        Ok(left)
    }

    /// A journal of another type is none: the rows of MySQL say what is held.
    async fn read_whatever_is_there(
        &self,
        voucher: VoucherId,
        mut seen: impl FnMut(OrderNote),
    ) -> Result<(), CompareError> {
        match self.0.read(voucher, &mut seen).await {
            Err(CompareError::Gate(GateError::Refused(error))) if is_of_other_type(error.details()) => {
                self.0.read_unnoted(voucher, seen).await
            }
            read => read,
        }
    }
}

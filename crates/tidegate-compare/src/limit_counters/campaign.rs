//! The sum of the uses that the orders of all regions of a campaign hold.

use crate::{CompareError, compare_error::is_of_other_type};
use std::collections::HashMap;

use tidegate_orders::{
    CampaignId, Order, OrderId, VoucherId,
    scripts::{LimitUsage, ScriptError},
};

use super::{LimitCounterCheck, orders::OrderNote};

/// The number of notes that are read at once.
const PIECE: usize = 500;

impl LimitCounterCheck<'_> {
    /// Calculates how much of a campaign's limits the orders of all regions use. `regions` also contains each region's
    /// orders in the stream and in the dead letters. An order that ends during this call may still count.
    ///
    /// # Errors
    /// Fails for the reasons in [`CompareError`].
    pub async fn held_in_common(
        &self,
        campaign: CampaignId,
        regions: Vec<(VoucherId, Vec<Order>)>,
    ) -> Result<LimitUsage, CompareError> {
        let mut held = LimitUsage::default();
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

    /// Finds those of these orders that the journal does not have.
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

    /// Reads the orders of a journal. A journal of another type counts as none: then the rows of MySQL have the uses.
    async fn read_whatever_is_there(
        &self,
        voucher: VoucherId,
        mut seen: impl FnMut(OrderNote),
    ) -> Result<(), CompareError> {
        match self.0.read(voucher, &mut seen).await {
            Err(CompareError::Script(ScriptError::Refused(error))) if is_of_other_type(error.details()) => {
                self.0.read_unnoted(voucher, seen).await
            }
            read => read,
        }
    }
}

//! Prunes refusals: each keeps its order from being written if its entry comes again.

use anyhow::Context;
use tidegate_orders::{OrderId, VoucherId};

use super::{Mode, NamedOrders, ORDERS, Prune, PruneCount};

impl Prune {
    /// Deletes the refusals whose order no entry, no dead letter and no note of a journal names. While the journal says
    /// that an order was released, the refusal in MySQL explains why.
    pub(super) async fn refusals(
        &self,
        (mode, named): (Mode, &NamedOrders),
        after: i64,
        count: &mut PruneCount,
    ) -> anyhow::Result<Option<i64>> {
        let page = self
            .records()
            .refusals()
            .page_after(after, ORDERS)
            .await
            .context("Failed to read the refusals")?;
        let old = page.iter().filter(|it| it.at_ms.is_some_and(|at_ms| at_ms < named.before_s * 1_000));
        let old: Vec<(VoucherId, OrderId)> =
            old.filter_map(|it| Some((it.voucher.try_into().ok()?, it.order))).collect();
        let unnamed: Vec<(VoucherId, OrderId)> =
            old.iter().copied().filter(|(_, order)| !named.has(order.get())).collect();
        let journaled = self
            .redis
            .journals()
            .journaled(&unnamed)
            .await
            .context("Failed to read the journals in Redis")?;
        let going = unnamed.iter().filter(|order| !journaled.contains(order));
        let going: Vec<OrderId> = going.map(|(_, order)| *order).collect();
        if mode == Mode::Delete {
            self.records().refusals().delete(&going).await.context("Failed to delete refusals")?;
        }
        count.purged += going.len() as u64;
        count.kept += (old.len() - going.len()) as u64;
        Ok(page.last().map(|it| it.order.get()))
    }
}

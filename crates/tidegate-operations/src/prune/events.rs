//! Prunes the events of orders that have ended. The rules for events decide which ones are still needed.

use anyhow::Context;
use tidegate_orders::{OrderId, event::History, ledger::read_histories};

use super::{CHUNK, Mode, NamedOrders, ORDERS, Prune, PruneCount};

impl Prune {
    /// Deletes the events of settled orders that no entry and no dead letter names, except for the few events that are
    /// still needed.
    pub(super) async fn events(
        &self,
        (mode, named): (Mode, &NamedOrders),
        after: i64,
        count: &mut PruneCount,
    ) -> anyhow::Result<Option<i64>> {
        let ids = self.records().events().orders_after(after, ORDERS).await;
        let ids = ids.context("Failed to read the events")?;
        let orders: Vec<OrderId> = ids.iter().filter_map(|id| OrderId::try_from(*id).ok()).collect();
        let histories = read_histories(&self.mysql, &orders).await.context("Failed to read the events")?;
        let (mut going, mut rows) = (Vec::new(), 0);
        for order in orders {
            let Some(history) = histories.get(&order) else { continue };
            let old = count_old(history, named.before_s);
            let may_go = old == history.events.len() && history.is_settled() && !named.has(order.get());
            let steps = if may_go { history.unneeded() } else { Vec::new() };
            count.kept += (old - steps.len()) as u64;
            rows += steps.len();
            if !steps.is_empty() {
                going.push((order, steps));
            }
            if rows >= CHUNK {
                self.delete_events(mode, &std::mem::take(&mut going)).await?;
                count.purged += std::mem::take(&mut rows) as u64;
            }
        }
        self.delete_events(mode, &going).await?;
        count.purged += rows as u64;
        Ok(ids.last().copied())
    }

    async fn delete_events(&self, mode: Mode, going: &[(OrderId, Vec<u32>)]) -> anyhow::Result<()> {
        if mode == Mode::Count {
            return Ok(());
        }
        self.records().events().delete(going).await.context("Failed to delete events")
    }
}

/// Counts the order's events that are older than this second, by MySQL's clock. An event without a time does not count.
fn count_old(history: &History, before_s: i64) -> usize {
    history.recorded_ms.values().filter(|at_ms| **at_ms < before_s * 1_000).count()
}

//! Refusals: each keeps its order from being written when its entry comes again.

use anyhow::Context;
use sqlx::AssertSqlSafe;
use tidegate_orders::{OrderId, VoucherId};

use super::{Mode, NamedOrders, ORDERS, Purge, PurgeCount};

impl Purge {
    /// Those go whose order is named by no entry and no dead letter, and by no note of a journal either: while the journal says
    /// that an order was given back, MySQL says why.
    pub(super) async fn refusals(
        &self,
        (mode, named): (Mode, &NamedOrders),
        after: i64,
        count: &mut PurgeCount,
    ) -> anyhow::Result<Option<i64>> {
        let (rows, last) = self.old_refusals(named, after).await.context("Failed to read the refusals")?;
        let unnamed: Vec<(VoucherId, OrderId)> =
            rows.iter().copied().filter(|(_, order)| !named.has(order.get())).collect();
        let journaled =
            self.gate.journaled(&unnamed).await.context("Failed to read the journals in Redis")?;
        let going = unnamed.iter().filter(|order| !journaled.contains(order));
        let going: Vec<String> = going.map(|(_, order)| order.to_string()).collect();
        if mode == Mode::Delete && !going.is_empty() {
            let sql = format!("DELETE FROM tidegate_refusal WHERE order_id IN ({})", going.join(","));
            let deleted = sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(&self.mysql).await;
            deleted.context("Failed to delete refusals")?;
        }
        count.purged += going.len() as u64;
        count.kept += (rows.len() - going.len()) as u64;
        Ok(last)
    }

    /// Of the next refusals after this order, the old ones; and the last that was looked at. Ids that no order of ours has stay.
    async fn old_refusals(
        &self,
        named: &NamedOrders,
        after: i64,
    ) -> sqlx::Result<(Vec<(VoucherId, OrderId)>, Option<i64>)> {
        let own = self.partition.condition("voucher_id");
        let sql = format!(
            "SELECT order_id, voucher_id, CAST(at < FROM_UNIXTIME(?) AS SIGNED) FROM tidegate_refusal \
             WHERE order_id > ?{own} ORDER BY order_id LIMIT {ORDERS}"
        );
        let rows = sqlx::query_as::<_, (i64, i64, i64)>(AssertSqlSafe(sql));
        let rows = rows.bind(named.before_s).bind(after).fetch_all(&self.mysql).await?;
        let last = rows.last().map(|(order, ..)| *order);
        let old = rows.into_iter().filter(|(.., is_old)| *is_old == 1);
        let old =
            old.filter_map(|(order, voucher, _)| Some((voucher.try_into().ok()?, order.try_into().ok()?)));
        Ok((old.collect(), last))
    }
}

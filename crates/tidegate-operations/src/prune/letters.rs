//! Prunes dead letters whose orders have ended in MySQL: those with an order that `tidegate dead drop` would delete.

use std::collections::BTreeMap;

use anyhow::Context;
use futures_util::future::join_all;
use tidegate_compare::Job;
use tidegate_orders::{Order, OrderId, RecordsError, dead_letters::DropReply};
use tidegate_stream::{EntryId, Letter, server_time_ms};
use tokio::time::Instant;

use super::{Mode, Prune, PruneCount, rest};
use crate::{change::End, dead_letters::LetterSelection};

/// The end of an order in MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The order has a row that counts, which holds its units.
    Written,
    /// The order has a cancelled row or a refusal: its units were released, or the journal shows that they were not.
    GivenUp,
}

impl Prune {
    pub(super) async fn letters(&self, mode: Mode, count: &mut PruneCount, job: &Job) -> anyhow::Result<End> {
        let now_ms = server_time_ms(self.redis.pool()).await.context("Failed to read the clock of Redis")?;
        let older_ms = u64::try_from(self.request.older_than.as_millis()).unwrap_or(u64::MAX);
        let last = EntryId { ms: now_ms.saturating_sub(older_ms), seq: 0 }.previous();
        let selection = LetterSelection { last, ..LetterSelection::ALL };
        let mut pages = selection.pages(&self.dead);
        loop {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let began = Instant::now();
            let page = pages.next().await.context("Failed to read the dead letters")?;
            let Some(page) = page else { return Ok(End::Whole) };
            let orders: Vec<(&Letter, Order)> = page
                .letters
                .iter()
                .filter_map(|letter| Some((letter, self.dead.order_of(letter).ok()?)))
                .collect();
            let ended = self.ended(&orders).await.context("Failed to read the orders in MySQL")?;
            let going = orders.iter().filter_map(|(letter, order)| {
                let key = (order.id, order.user.get(), order.voucher.get());
                Some((*letter, *ended.get(&key)?))
            });
            let gone = match mode {
                Mode::Count => going.count(),
                Mode::Delete => {
                    let dropped =
                        join_all(going.map(|(letter, ended)| self.drop_letter(letter, ended))).await;
                    let mut gone = 0;
                    for reply in dropped {
                        let reply = reply.context("Failed to delete a dead letter")?;
                        gone += usize::from(reply == DropReply::Dropped);
                    }
                    gone
                }
            };
            count.purged += gone as u64;
            count.kept += (page.letters.len() - gone) as u64;
            rest(mode, began, job).await;
        }
    }

    async fn drop_letter(
        &self,
        letter: &Letter,
        ended: Ended,
    ) -> Result<DropReply, tidegate_orders::scripts::ScriptError> {
        match ended {
            Ended::Written => self.dead.drop_written(letter).await,
            Ended::GivenUp => self.dead.drop(letter).await,
        }
    }

    /// Returns the end of these orders in MySQL, by order, user and voucher, because another order may have the same
    /// id.
    async fn ended(
        &self,
        orders: &[(&Letter, Order)],
    ) -> Result<BTreeMap<(OrderId, i64, i64), Ended>, RecordsError> {
        let ids: Vec<OrderId> = orders.iter().map(|(_, order)| order.id).collect();
        let refusals = self.records().refusals().by_ids(&ids).await?;
        let rows = self.records().orders().by_ids(&ids).await?;
        let refused = refusals.iter().map(|it| ((it.order, it.user, it.voucher), Ended::GivenUp));
        let fate = |slot: Option<i64>| if slot.is_some() { Ended::Written } else { Ended::GivenUp };
        let written = rows.iter().map(|row| ((row.order, row.user, row.voucher), fate(row.slot)));
        Ok(refused.chain(written).collect())
    }
}

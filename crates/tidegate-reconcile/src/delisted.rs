//! The removal of the keys of delisted vouchers. It needs a comparison that began after the delisting, found no
//! difference between Redis and MySQL, and found no work in flight. After the removal, changes of the voucher's orders
//! affect only MySQL.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_compare::{
    Comparison, ComparisonReport, ComparisonRequest, Job, Pace, VoucherComparison,
    reconciled::{DifferenceKind, Reconciled, RemovedSale},
    text::counted,
};
use tidegate_operations::{
    Stores,
    change::{Ending, Next, Plan, Report},
    operator_log::{CommandOutcome, LoggedOperation, OperatorLog, Record},
    settings::SystemSettings,
};
use tidegate_orders::{
    CausalReads, RedisStore, VoucherId,
    records::vouchers,
    scripts::{RemovedKeys, SaleKeys, ScriptError},
};
use tidegate_stream::server_time_ms;

use crate::lease;

/// The command's name in the operators' log, whether an operator or a worker runs it.
const COMMAND: &str = "voucher delist";
/// The flag of the command that removes keys; without it, the command ends the sale.
const FLAG: &str = "--remove-keys";

/// The reason why the Redis keys of a delisted voucher (sale ended permanently) cannot be removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalBlocker {
    /// MySQL has no row of the voucher.
    #[error("MySQL has no row of this voucher")]
    NoRow,
    /// The voucher is not delisted: its sale has not ended permanently.
    #[error("the voucher is not delisted: first type tidegate voucher delist without --remove-keys")]
    NotDelisted,
    /// Redis and MySQL differ about the voucher.
    #[error("Redis and MySQL differ: tidegate reconcile --voucher {0} lists the differences")]
    Differs(VoucherId),
    /// Units are being added or taken.
    #[error(
        "the stock is being changed: tidegate voucher show --voucher {0} names the command that completes the change"
    )]
    BeingAdjusted(VoucherId),
    /// Workers still have to handle entries of the voucher.
    #[error("workers must still handle {} and {}", counted(*orders, "order"), counted(*events, "event"))]
    InFlight {
        /// The number of orders in flight.
        orders: u64,
        /// The number of events in flight.
        events: u64,
    },
    /// The voucher has dead letters whose orders were not ended.
    #[error(
        "the dead letters contain {} of the voucher: first put back or cancel these dead letters (tidegate dead list)",
        counted(*orders, "order")
    )]
    Dead {
        /// The number of orders among the dead letters.
        orders: u64,
    },
}

impl Serialize for RemovalBlocker {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The reason why the keys of a delisted voucher stay, by a comparison of it. None: they may be removed. Pure.
fn kept(look: &VoucherComparison) -> Option<RemovalBlocker> {
    let totals = &look.totals;
    // The sale is over for good: a missing stock sells nothing, and no command can load it.
    let is_gone = |kind| kind == DifferenceKind::RedisStockMismatch && totals.redis.stock.is_none();
    let differs = look.differences.iter().any(|it| it.kind.is_failure() && !is_gone(it.kind));
    if differs || totals.redis.unreadable.is_some() || totals.redis.is_unsure {
        return Some(RemovalBlocker::Differs(totals.voucher));
    }
    if totals.is_change_open {
        return Some(RemovalBlocker::BeingAdjusted(totals.voucher));
    }
    if totals.open.in_flight_orders + totals.open.in_flight_events > 0 {
        return Some(RemovalBlocker::InFlight {
            orders: totals.open.in_flight_orders,
            events: totals.open.in_flight_events,
        });
    }
    (totals.open.dead_orders > 0).then_some(RemovalBlocker::Dead { orders: totals.open.dead_orders })
}

/// The task that removes the Redis keys of delisted vouchers, whose sales were ended permanently.
#[derive(Debug)]
pub struct KeyRemover {
    redis: RedisStore,
    mysql: MySqlPool,
    causal_reads: Arc<CausalReads>,
    log: OperatorLog,
    who: String,
    after: Duration,
}

impl KeyRemover {
    /// Creates the task that removes keys, with the given Redis and MySQL. The operators' log gets `who` as the person
    /// or worker that removes keys.
    #[must_use]
    pub fn new((redis, mysql): (RedisStore, MySqlPool), settings: &SystemSettings, who: String) -> Self {
        let log = OperatorLog::new(redis.clone(), settings);
        let after = settings.reconcile.remove_delisted_after;
        let causal_reads = Arc::default();
        Self { redis, mysql, causal_reads, log, who, after }
    }

    /// Connects the task that removes keys to Redis and MySQL. The operators' log gets `who` as the person or worker
    /// that removes keys.
    ///
    /// # Errors
    /// Fails if a store cannot be reached.
    pub async fn connect(stores: &Stores, who: String) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let causal_reads = stores.sessions().await?.causal_reads();
        let with_both = Self::new((redis.clone(), mysql.clone()), stores.settings(), who);
        Ok(Self { causal_reads, ..with_both })
    }

    /// Removes the keys of vouchers whose sales were ended permanently some time ago. `report` must be the result of a
    /// comparison that covered all vouchers and began after the end of the sales. The caller holds the lease on
    /// comparisons. If Redis still sells such a voucher, for example after a failover, this function ends the sale in
    /// Redis.
    ///
    /// # Errors
    /// Fails if a store does not answer. The operators' log has the keys that were removed by then.
    pub async fn remove_due(&self, report: &ComparisonReport) -> anyhow::Result<Vec<RemovedSale>> {
        let delisted = vouchers::delisted(&self.mysql, self.redis.keys().partition()).await;
        let delisted = delisted.context("Failed to read the delisted vouchers in MySQL")?;
        let delisted: BTreeSet<VoucherId> = delisted.into_iter().collect();
        let mut removed = Vec::new();
        for look in report.vouchers.iter().filter(|look| delisted.contains(&look.totals.voucher)) {
            let voucher = look.totals.voucher;
            // A key of a wrong type is left to an operator, who learns of it from the comparison; other vouchers
            // continue.
            let state = match self.redis.sales().read_voucher(voucher).await {
                Err(ScriptError::Unexpected { .. }) => continue,
                Err(error) if error.to_string().contains("WRONGTYPE") => continue,
                state => state.context("Failed to read a delisted voucher in Redis")?,
            };
            let now_ms =
                server_time_ms(self.redis.pool()).await.context("Failed to read the clock of Redis")?;
            let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
            match state.delisted_ms {
                None if state.has_keys() => _ = self.redis.sales().delist(voucher).await?,
                Some(since_ms) if self.is_due(since_ms, report.at_ms, now_ms) && kept(look).is_none() => {
                    removed.extend(self.remove_noted(voucher, since_ms).await?);
                }
                _ => {}
            }
        }
        Ok(removed)
    }

    fn is_due(&self, since_ms: i64, looked_ms: i64, now_ms: i64) -> bool {
        let after_ms = i64::try_from(self.after.as_millis()).unwrap_or(i64::MAX);
        since_ms < looked_ms && now_ms.saturating_sub(since_ms) >= after_ms
    }

    /// Removes the keys of a voucher, between two lines of the operators' log.
    async fn remove_noted(&self, voucher: VoucherId, since_ms: i64) -> anyhow::Result<Option<RemovedSale>> {
        let (who, command) = (self.who.clone(), COMMAND.to_owned());
        let operation = LoggedOperation { who, command, arguments: format!("--voucher {voucher} {FLAG}") };
        let mut record = Record::of(self.log.clone(), operation);
        // A missing log does not prevent the removal, which makes room in a full Redis.
        let _is_noted = record.begin().await;
        let (reply, sale) = self.remove(voucher, since_ms).await?;
        let outcome = if sale.is_some() { CommandOutcome::Done } else { CommandOutcome::Refused };
        let counts = sale.as_ref().map_or_else(|| json!({ "keys": 0 }), counts);
        let error = (reply == RemovedKeys::BeingAdjusted).then_some("the stock is being changed");
        let _is_noted = record.end(outcome, &counts, error).await;
        Ok(sale)
    }

    /// Removes the keys of a voucher, and keeps the freed memory for `tidegate doctor`.
    async fn remove(
        &self,
        voucher: VoucherId,
        since_ms: i64,
    ) -> anyhow::Result<(RemovedKeys, Option<RemovedSale>)> {
        let SaleKeys { keys, bytes } =
            self.redis.sales().weigh(voucher).await.context("Failed to measure the voucher's keys")?;
        let reply = self
            .redis
            .sales()
            .remove_delisted(voucher, since_ms)
            .await
            .context("Failed to remove the voucher's keys from Redis")?;
        if reply != RemovedKeys::Removed {
            return Ok((reply, None));
        }
        let at_ms = server_time_ms(self.redis.pool())
            .await
            .map_or(since_ms, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let sale = RemovedSale { voucher, at_ms, keys, bytes };
        let kept = async {
            let mut known = Reconciled::read(&self.redis).await?.unwrap_or_default();
            known.note_removed(sale.clone());
            known.write(&self.redis).await
        };
        // The keys are gone, whether doctor learns of it or not.
        let _is_kept = kept.await;
        Ok((reply, Some(sale)))
    }

    /// Checks whether the sale of the voucher was ended permanently, and counts the voucher's keys and their bytes.
    /// Changes nothing.
    ///
    /// # Errors
    /// Fails if a store does not answer.
    pub async fn plan(&self, voucher: VoucherId) -> anyhow::Result<RemoveKeysPlan> {
        let row =
            vouchers::find(&self.mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
        let kept = match &row {
            None => Some(RemovalBlocker::NoRow),
            Some(row) if row.delisted_ms.is_none() => Some(RemovalBlocker::NotDelisted),
            Some(_) => None,
        };
        let SaleKeys { keys, bytes } =
            self.redis.sales().weigh(voucher).await.context("Failed to measure the voucher's keys")?;
        Ok(RemoveKeysPlan { voucher, keys, bytes, kept })
    }

    /// Compares Redis and MySQL for the voucher, and removes the voucher's keys from Redis if the comparison allows the
    /// removal.
    ///
    /// # Errors
    /// Fails if a store does not answer, or another comparison is in progress.
    pub async fn run(&self, plan: &RemoveKeysPlan, job: &Job) -> anyhow::Result<RemoveKeysReport> {
        let doing = format!("{}: tidegate {COMMAND} {FLAG}", self.who);
        let lease = lease::wait(&self.redis, &doing, job).await?;
        let done = self.look_and_remove(plan.voucher, job).await;
        lease.end().await;
        done
    }

    async fn look_and_remove(&self, voucher: VoucherId, job: &Job) -> anyhow::Result<RemoveKeysReport> {
        // This repeats a delist that was killed: from here on no order is admitted, and the comparison comes after it.
        self.redis.sales().delist(voucher).await.context("Failed to end the sale in Redis")?;
        let state =
            self.redis.sales().read_voucher(voucher).await.context("Failed to read the voucher in Redis")?;
        let Some(since_ms) = state.delisted_ms else {
            return Ok(RemoveKeysReport { voucher, removed: None, kept: None });
        };
        let request = ComparisonRequest { vouchers: vec![voucher], since_ms: None, pace: Pace::Full };
        let stores = (self.redis.clone(), self.mysql.clone());
        let comparison = Comparison::new(stores, request).reading_causally(Arc::clone(&self.causal_reads));
        let report = comparison.run(job, |_| {}).await?;
        if let Some(kept) = report.vouchers.iter().find_map(kept) {
            return Ok(RemoveKeysReport { voucher, removed: None, kept: Some(kept) });
        }
        let (reply, removed) = self.remove(voucher, since_ms).await?;
        let kept = match reply {
            RemovedKeys::Removed | RemovedKeys::NoKeys => None,
            RemovedKeys::NotDelisted => Some(RemovalBlocker::NotDelisted),
            RemovedKeys::BeingAdjusted => Some(RemovalBlocker::BeingAdjusted(voucher)),
        };
        Ok(RemoveKeysReport { voucher, removed, kept })
    }
}

fn counts(sale: &RemovedSale) -> Json {
    json!({ "keys": sale.keys, "bytes": sale.bytes })
}

/// The plan to remove the Redis keys of a delisted voucher, whose sale was ended permanently.
#[derive(Clone, Debug, Serialize)]
pub struct RemoveKeysPlan {
    /// The voucher whose keys are removed.
    pub voucher: VoucherId,
    /// The number of keys that the voucher has.
    pub keys: u64,
    /// The approximate memory of the keys in Redis, in bytes.
    pub bytes: u64,
    /// The reason why the keys of the voucher cannot be removed. None: the keys can be removed.
    pub kept: Option<RemovalBlocker>,
}

impl Plan for RemoveKeysPlan {
    fn next(&self) -> Next {
        match (&self.kept, self.keys) {
            (Some(_), _) => Next::Refused,
            (None, 0) => Next::NothingToDo,
            (None, keys) => {
                Next::Ask(format!("Remove the {keys} keys of voucher {} in Redis permanently?", self.voucher))
            }
        }
    }
}

/// The result of removing the Redis keys of a delisted voucher, whose sale was ended permanently.
#[derive(Clone, Debug, Serialize)]
pub struct RemoveKeysReport {
    /// The voucher whose keys were removed.
    pub voucher: VoucherId,
    /// The removed keys of the voucher. None: no key was removed.
    pub removed: Option<RemovedSale>,
    /// The reason why the keys were not removed. None: nothing prevented the removal.
    pub kept: Option<RemovalBlocker>,
}

impl Report for RemoveKeysReport {
    fn counts(&self) -> Json {
        self.removed.as_ref().map_or_else(|| json!({ "keys": 0 }), counts)
    }

    fn ending(&self) -> Ending {
        if self.kept.is_some() { Ending::Refused } else { Ending::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_compare::VoucherTotals;

    fn look(change: impl FnOnce(&mut VoucherTotals)) -> VoucherComparison {
        let mut totals = VoucherTotals::new(7.try_into().unwrap());
        change(&mut totals);
        VoucherComparison { totals, differences: Vec::new() }
    }

    #[test]
    fn keys_go_only_where_all_agrees_and_nothing_is_on_its_way() {
        let seven = VoucherId::try_from(7).unwrap();
        assert_eq!(kept(&look(|_| {})), None);
        for (change, expected) in [
            (
                (|totals| totals.redis.is_unsure = true) as fn(&mut VoucherTotals),
                RemovalBlocker::Differs(seven),
            ),
            (|totals| totals.redis.unreadable = Some(String::new()), RemovalBlocker::Differs(seven)),
            (|totals| totals.is_change_open = true, RemovalBlocker::BeingAdjusted(seven)),
            (|totals| totals.open.in_flight_orders = 2, RemovalBlocker::InFlight { orders: 2, events: 0 }),
            (|totals| totals.open.in_flight_events = 1, RemovalBlocker::InFlight { orders: 0, events: 1 }),
            (|totals| totals.open.dead_orders = 1, RemovalBlocker::Dead { orders: 1 }),
        ] {
            assert_eq!(kept(&look(change)), Some(expected));
        }
    }
}

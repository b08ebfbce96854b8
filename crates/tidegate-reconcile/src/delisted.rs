//! The removal of the keys of delisted vouchers. It needs a comparison that began after the voucher was delisted, and
//! that found both sides to agree and no work in flight. From then on, changes of its orders affect only MySQL.

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

/// The reason why the keys of a voucher stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalBlocker {
    /// MySQL has no row of the voucher.
    #[error("MySQL has no row of it")]
    NoRow,
    /// The sale of the voucher has not ended for good.
    #[error("it is not delisted: tidegate voucher delist without --remove-keys does that first")]
    NotDelisted,
    /// The two stores do not agree about the voucher.
    #[error("both stores differ: tidegate reconcile --voucher {0} says in what")]
    Differs(VoucherId),
    /// Units are being added or taken.
    #[error(
        "units are being added to it or taken from it: tidegate voucher show --voucher {0} says what completes that"
    )]
    BeingAdjusted(VoucherId),
    /// Workers still have to handle entries of the voucher.
    #[error("{} and {} of it wait for workers", counted(*orders, "order"), counted(*events, "event"))]
    InFlight {
        /// The number of orders in flight.
        orders: u64,
        /// The number of events in flight.
        events: u64,
    },
    /// The voucher has dead letters whose orders were not ended.
    #[error(
        "{} of it among the dead letters: put them back or cancel them first, see tidegate dead list",
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

/// The remover of keys of delisted vouchers.
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
    /// Creates a remover with these stores. `who` is the name for the operators' log.
    #[must_use]
    pub fn new((redis, mysql): (RedisStore, MySqlPool), settings: &SystemSettings, who: String) -> Self {
        let log = OperatorLog::new(redis.clone(), settings);
        let after = settings.remove_delisted_after;
        let causal_reads = Arc::default();
        Self { redis, mysql, causal_reads, log, who, after }
    }

    /// Connects to both stores, for `who`.
    ///
    /// # Errors
    /// Fails if a store cannot be reached.
    pub async fn connect(stores: &Stores, who: String) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let causal_reads = stores.sessions().await?.causal_reads();
        let with_both = Self::new((redis.clone(), mysql.clone()), stores.settings(), who);
        Ok(Self { causal_reads, ..with_both })
    }

    /// Removes the keys of vouchers that are due: they were delisted long enough ago, this comparison of all vouchers
    /// began after the delisting, and its result allows the removal. The caller holds the reconciler's lease. If Redis
    /// still sells a delisted voucher, this delists it there, too: the command was killed half-way, or Redis went back
    /// in time.
    ///
    /// # Errors
    /// Fails if a store does not answer. The operators' log has the keys that were removed by then.
    pub async fn remove_due(&self, report: &ComparisonReport) -> anyhow::Result<Vec<RemovedSale>> {
        let delisted = vouchers::delisted(&self.mysql, self.redis.keys().partition()).await;
        let delisted = delisted.context("Failed to read what is delisted")?;
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
        let error = (reply == RemovedKeys::BeingAdjusted).then_some("units are being added or taken");
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
            self.redis.sales().weigh(voucher).await.context("Failed to weigh its keys")?;
        let reply = self
            .redis
            .sales()
            .remove_delisted(voucher, since_ms)
            .await
            .context("Failed to remove its keys")?;
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

    /// Checks whether the voucher is delisted, and how many keys and bytes it has. Changes nothing.
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
            self.redis.sales().weigh(voucher).await.context("Failed to weigh its keys")?;
        Ok(RemoveKeysPlan { voucher, keys, bytes, kept })
    }

    /// Compares both sides of the voucher, and removes its keys if the result allows it.
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

/// The plan of a removal of keys.
#[derive(Clone, Debug, Serialize)]
pub struct RemoveKeysPlan {
    /// The voucher whose keys are removed.
    pub voucher: VoucherId,
    /// The number of keys that the voucher has.
    pub keys: u64,
    /// The approximate memory of the keys in Redis, in bytes.
    pub bytes: u64,
    /// The reason why the keys stay; None: they can be removed.
    pub kept: Option<RemovalBlocker>,
}

impl Plan for RemoveKeysPlan {
    fn next(&self) -> Next {
        match (&self.kept, self.keys) {
            (Some(_), _) => Next::Refused,
            (None, 0) => Next::NothingToDo,
            (None, keys) => {
                Next::Ask(format!("Remove the {keys} keys of voucher {} from Redis, for good?", self.voucher))
            }
        }
    }
}

/// The result of a removal of keys.
#[derive(Clone, Debug, Serialize)]
pub struct RemoveKeysReport {
    /// The voucher whose keys were removed.
    pub voucher: VoucherId,
    /// The keys that were removed; None: nothing was removed.
    pub removed: Option<RemovedSale>,
    /// The reason why the keys stay; None: they need not stay.
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

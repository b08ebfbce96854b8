//! Removes the keys of delisted vouchers: only after a comparison that began later found both sides to agree on them, and nothing of
//! them on its way. From then on what happens to their orders changes MySQL only.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_compare::{
    Job, ComparisonReport, ComparisonRequest, Comparison, Pace, VoucherComparison,
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
    gate::{GateError, RemovedKeys, SaleKeys},
    records::vouchers,
};
use tidegate_stream::server_time_ms;

use crate::lease;

/// How the log calls it, whoever does it.
const COMMAND: &str = "voucher delist";
/// Its flag, without which it ends the sale.
const FLAG: &str = "--remove-keys";

/// Why the keys of a voucher stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptKeys {
    /// MySQL has no row of it.
    #[error("MySQL has no row of it")]
    NoRow,
    /// Its sale is not over for good.
    #[error("it is not delisted: tidegate voucher delist without --remove-keys does that first")]
    NotDelisted,
    /// The two sides do not agree.
    #[error("both sides differ: tidegate reconcile --voucher {0} says in what")]
    Differs(VoucherId),
    /// Units are being added or taken.
    #[error(
        "units are being added to it or taken from it: tidegate voucher show --voucher {0} says what completes that"
    )]
    BeingAdjusted(VoucherId),
    /// Workers have still to handle something of it.
    #[error("{} and {} of it wait for workers", counted(*orders, "order"), counted(*events, "event"))]
    InFlight {
        /// Orders.
        orders: u64,
        /// Events.
        events: u64,
    },
    /// It has dead letters whose orders nobody has ended.
    #[error(
        "{} of it among the dead letters: put them back or cancel them first, see tidegate dead list",
        counted(*orders, "order")
    )]
    Dead {
        /// How many.
        orders: u64,
    },
}

impl Serialize for KeptKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether what a comparison found of a delisted voucher lets its keys go. Pure.
fn kept(look: &VoucherComparison) -> Option<KeptKeys> {
    let totals = &look.totals;
    // Of a sale that is over for good, a stock that is gone sells nothing and can be loaded by nobody.
    let is_gone = |kind| kind == DifferenceKind::RedisStockMismatch && totals.redis.stock.is_none();
    let differs = look.differences.iter().any(|it| it.kind.is_failure() && !is_gone(it.kind));
    if differs || totals.redis.unreadable.is_some() || totals.redis.is_unsure {
        return Some(KeptKeys::Differs(totals.voucher));
    }
    if totals.is_change_open {
        return Some(KeptKeys::BeingAdjusted(totals.voucher));
    }
    if totals.open.in_flight_orders + totals.open.in_flight_events > 0 {
        return Some(KeptKeys::InFlight {
            orders: totals.open.in_flight_orders,
            events: totals.open.in_flight_events,
        });
    }
    (totals.open.dead_orders > 0).then_some(KeptKeys::Dead { orders: totals.open.dead_orders })
}

/// Removes keys.
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
    /// With these stores, for `who`.
    #[must_use]
    pub fn new((redis, mysql): (RedisStore, MySqlPool), settings: &SystemSettings, who: String) -> Self {
        let log = OperatorLog::new(redis.clone(), settings);
        let after = settings.remove_delisted_after;
        let causal_reads = Arc::default();
        Self { redis, mysql, causal_reads, log, who, after }
    }

    /// Connects to both stores.
    ///
    /// # Errors
    /// When one cannot be reached.
    pub async fn connect(stores: &Stores, who: String) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let causal_reads = stores.sessions().await?.causal_reads();
        let with_both = Self::new((redis.clone(), mysql.clone()), stores.settings(), who);
        Ok(Self { causal_reads, ..with_both })
    }

    /// After a comparison of all vouchers, and while the reconciler's lease is held: removes the keys of those that were delisted long
    /// enough ago, began to be looked at since, and may go. One that Redis still sells, because the command that delisted it died
    /// half-way or because Redis went back in time, is delisted there, too.
    ///
    /// # Errors
    /// When a store does not answer. What was removed by then is in the operators' log.
    pub async fn remove_due(&self, report: &ComparisonReport) -> anyhow::Result<Vec<RemovedSale>> {
        let delisted = vouchers::delisted(&self.mysql, self.redis.keys().partition()).await;
        let delisted = delisted.context("Failed to read what is delisted")?;
        let delisted: BTreeSet<VoucherId> = delisted.into_iter().collect();
        let mut removed = Vec::new();
        for look in report.vouchers.iter().filter(|look| delisted.contains(&look.totals.voucher)) {
            let voucher = look.totals.voucher;
            // A key that holds something else than it should is for people, who hear of it from the comparison; others go on.
            let state = match self.redis.sales().read_voucher(voucher).await {
                Err(GateError::Unexpected { .. }) => continue,
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

    /// Removes, between two lines of the operators' log.
    async fn remove_noted(&self, voucher: VoucherId, since_ms: i64) -> anyhow::Result<Option<RemovedSale>> {
        let (who, command) = (self.who.clone(), COMMAND.to_owned());
        let operation = LoggedOperation { who, command, arguments: format!("--voucher {voucher} {FLAG}") };
        let mut record = Record::of(self.log.clone(), operation);
        // Without the log it is done all the same: it makes room in a full Redis.
        let _is_noted = record.begin().await;
        let (reply, sale) = self.remove(voucher, since_ms).await?;
        let outcome = if sale.is_some() { CommandOutcome::Done } else { CommandOutcome::Refused };
        let counts = sale.as_ref().map_or_else(|| json!({ "keys": 0 }), counts);
        let error = (reply == RemovedKeys::BeingAdjusted).then_some("units are being added or taken");
        let _is_noted = record.end(outcome, &counts, error).await;
        Ok(sale)
    }

    /// Removes, and keeps for `tidegate doctor` how much that freed.
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
        // They are gone, whether doctor learns of it or not.
        let _is_kept = kept.await;
        Ok((reply, Some(sale)))
    }

    /// Looks whether it is delisted and what its keys take. Changes nothing.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn plan(&self, voucher: VoucherId) -> anyhow::Result<RemoveKeysPlan> {
        let row =
            vouchers::find(&self.mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
        let kept = match &row {
            None => Some(KeptKeys::NoRow),
            Some(row) if row.delisted_ms.is_none() => Some(KeptKeys::NotDelisted),
            Some(_) => None,
        };
        let SaleKeys { keys, bytes } =
            self.redis.sales().weigh(voucher).await.context("Failed to weigh its keys")?;
        Ok(RemoveKeysPlan { voucher, keys, bytes, kept })
    }

    /// Looks at the voucher on both sides, and removes its keys if they may go.
    ///
    /// # Errors
    /// When a store does not answer, or another comparison is under way.
    pub async fn run(&self, plan: &RemoveKeysPlan, job: &Job) -> anyhow::Result<RemoveKeysReport> {
        let doing = format!("{}: tidegate {COMMAND} {FLAG}", self.who);
        let lease = lease::wait(&self.redis, &doing, job).await?;
        let done = self.look_and_remove(plan.voucher, job).await;
        lease.end().await;
        done
    }

    async fn look_and_remove(&self, voucher: VoucherId, job: &Job) -> anyhow::Result<RemoveKeysReport> {
        // What a killed delist left: from here on nobody is admitted, and the comparison comes after it.
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
            RemovedKeys::NotDelisted => Some(KeptKeys::NotDelisted),
            RemovedKeys::BeingAdjusted => Some(KeptKeys::BeingAdjusted(voucher)),
        };
        Ok(RemoveKeysReport { voucher, removed, kept })
    }
}

fn counts(sale: &RemovedSale) -> Json {
    json!({ "keys": sale.keys, "bytes": sale.bytes })
}

/// What would be removed.
#[derive(Clone, Debug, Serialize)]
pub struct RemoveKeysPlan {
    /// The voucher.
    pub voucher: VoucherId,
    /// How many keys it has.
    pub keys: u64,
    /// What they take of Redis' memory, about.
    pub bytes: u64,
    /// Why they stay.
    pub kept: Option<KeptKeys>,
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

/// What was removed.
#[derive(Clone, Debug, Serialize)]
pub struct RemoveKeysReport {
    /// The voucher.
    pub voucher: VoucherId,
    /// What went; None: nothing.
    pub removed: Option<RemovedSale>,
    /// Why its keys stay.
    pub kept: Option<KeptKeys>,
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
            ((|totals| totals.redis.is_unsure = true) as fn(&mut VoucherTotals), KeptKeys::Differs(seven)),
            (|totals| totals.redis.unreadable = Some(String::new()), KeptKeys::Differs(seven)),
            (|totals| totals.is_change_open = true, KeptKeys::BeingAdjusted(seven)),
            (|totals| totals.open.in_flight_orders = 2, KeptKeys::InFlight { orders: 2, events: 0 }),
            (|totals| totals.open.in_flight_events = 1, KeptKeys::InFlight { orders: 0, events: 1 }),
            (|totals| totals.open.dead_orders = 1, KeptKeys::Dead { orders: 1 }),
        ] {
            assert_eq!(kept(&look(change)), Some(expected));
        }
    }
}

//! The rebuild of Redis from MySQL, the stream and the dead letters, if Redis is empty or older than MySQL. It
//! restores buyers, a complete journal, the stock and the window of a voucher, while callers, workers and other sales
//! continue.
//!
//! Vouchers are rebuilt one after the other. The voucher's row in MySQL is locked from the reading of its orders until
//! the new keys sell. Each statement that writes, refuses or releases an order changes that row. So a batch in
//! progress is either in the rows that were read, or it finds the row locked and is set aside. The rebuild fills keys
//! of its own. Then one script (`lua/cut_over.lua`) puts them in the place of the old keys, together with the entries
//! that the stream received meanwhile. If a rebuild is killed, it leaves keys that no program reads. The next rebuild
//! removes them, and they also expire.
//!
//! The stock in Redis is MySQL's stock minus the units of unwritten orders. An unwritten order has neither a row nor a
//! refusal in MySQL, and is in the stream (acknowledged or not), among the dead letters, or in the previous journal.

mod backlog;
mod campaigns;
mod limits;
mod plan;
mod report;
mod voucher;
mod voucher_report;
mod workers;

use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_compare::Job;
use tidegate_operations::{Stores, change::End};
use tidegate_orders::{CausalReads, RedisStore, VoucherId, scripts::rebuild_id};

pub use plan::{RebuildPlan, VoucherPlan};
pub use report::{RebuildRefusal, RebuildReport};
pub use voucher_report::{NotRebuilt, OrdersBySource, VoucherReport};

use self::{backlog::UnwrittenOrders, workers::Waited};
use crate::{lease, order_ids};

/// The request to rebuild vouchers in Redis from MySQL: the vouchers, and the workers to ignore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RebuildRequest {
    /// The voucher to rebuild in Redis. None: all vouchers that were sold through Redis and whose sale has not ended.
    pub voucher: Option<VoucherId>,
    /// The names of workers that the rebuild does not wait for, even if they have entries in progress.
    pub despite_workers: Vec<String>,
}

/// The operation that writes the keys of vouchers in Redis again, from MySQL, the stream and the journals.
#[derive(Debug)]
pub struct Rebuild {
    redis: RedisStore,
    mysql: MySqlPool,
    causal_reads: Arc<CausalReads>,
    who: String,
}

impl Rebuild {
    /// Connects to Redis and MySQL for a rebuild. Other processes can read that `who` runs the rebuild.
    ///
    /// # Errors
    /// Fails if a store cannot be reached.
    pub async fn connect(stores: &Stores, who: String) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let (redis, mysql) = (redis.clone(), mysql.clone());
        let causal_reads = stores.sessions().await?.causal_reads();
        Ok(Self { redis, mysql, causal_reads, who })
    }

    /// Rebuilds the vouchers of the plan in Redis. You may repeat a rebuild: it begins again, and rebuilt vouchers stay
    /// correct.
    ///
    /// # Errors
    /// Fails if a store does not answer, or another process holds the lease. The vouchers in `report` are done even
    /// then.
    pub async fn run(
        &self,
        plan: &RebuildPlan,
        report: &mut RebuildReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let lease = lease::wait(&self.redis, &self.who, job).await?;
        let end = {
            let _stopped = job.stop_when_lost(&lease);
            self.run_alone(plan, report, job).await
        };
        if lease.lost().is_cancelled() && matches!(end, Ok(End::Stopped)) {
            job.progress.say(lease::LEASE_WAS_LOST);
        }
        lease.end().await;
        end
    }

    async fn run_alone(
        &self,
        plan: &RebuildPlan,
        report: &mut RebuildReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        self.redis
            .staged_sales()
            .remove_staged()
            .await
            .context("Failed to remove the keys that a killed rebuild left in Redis")?;
        match workers::wait(&self.redis, &plan.request.despite_workers, job).await? {
            Waited::Done => {}
            Waited::Stopped => return Ok(End::Stopped),
            Waited::Silent(workers) => {
                report.refusal = Some(RebuildRefusal::SilentWorkers { workers });
                return Ok(End::Whole);
            }
        }
        let mut backlog = self.read_backlog(job).await?;
        self.raise_counters(&backlog, report).await?;
        if self.recount_campaigns(plan, &backlog, job).await? == End::Stopped {
            return Ok(End::Stopped);
        }
        let id = rebuild_id();
        for planned in &plan.vouchers {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let of_voucher = self.rebuild_voucher(planned.voucher, &id, &mut backlog, report, job).await;
            let of_voucher =
                of_voucher.with_context(|| format!("Failed to rebuild voucher {}", planned.voucher))?;
            if plan.vouchers.len() > 1 {
                job.progress.say(&of_voucher.line());
            }
            report.left -= 1;
            report.vouchers.push(of_voucher);
        }
        Ok(End::Whole)
    }

    /// Waits until MySQL shows everything that any node has committed by now.
    async fn catch_up(&self) -> anyhow::Result<()> {
        Ok(self.causal_reads.catch_up(&self.mysql).await?)
    }

    async fn read_backlog(&self, job: &Job) -> anyhow::Result<UnwrittenOrders> {
        self.catch_up().await?;
        let sequences = order_ids::in_mysql(&self.mysql, self.redis.keys()).await?;
        let fields = self.redis.keys().fields().clone();
        let mysql = (self.mysql.clone(), Arc::clone(&self.causal_reads));
        let mut backlog = UnwrittenOrders::new(self.redis.inspector().clone(), mysql, fields, sequences);
        let length = self.redis.inspector().length(&self.redis.inspector().names().stream).await;
        job.progress.expect(length.context("Failed to read the stream")?, "entries");
        backlog.advance(job).await?;
        Ok(backlog)
    }

    /// Raises the counters before a rebuilt sale opens: no counter may assign the id of an existing order.
    async fn raise_counters(
        &self,
        backlog: &UnwrittenOrders,
        report: &mut RebuildReport,
    ) -> anyhow::Result<()> {
        report.note_counters(order_ids::raise(&backlog.sequences, &self.redis).await?);
        report.known_today = backlog.sequences.known_today();
        Ok(())
    }
}

//! Fills Redis from MySQL, the stream and the dead letters, where it is empty or older than MySQL: buyers, a complete journal,
//! stock and window of a voucher, while callers, workers and other sales go on.
//!
//! One voucher after the other. Its row in MySQL is locked from the moment that its orders are read until the new keys sell. Whoever
//! writes, refuses or releases an order of it changes that row; so a batch in progress is either in what was read, or finds the row
//! held and is set aside. What is filled stands under keys of its own until one script (`lua/cut_over.lua`) puts it in the
//! place of the old ones, with what came into the stream meanwhile. Killed anywhere, a rebuild leaves keys that nobody reads, which
//! the next one removes and which end by themselves.
//!
//! The units: MySQL's stock, less those of orders that have neither a row nor a refusal there and stand in the stream (acknowledged
//! or not), among the dead letters, or in the journal that was there before.

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
use tidegate_orders::{CausalReads, RedisStore, VoucherId, gate::rebuild_id};

pub use plan::{RebuildPlan, VoucherPlan};
pub use report::{RebuildRefusal, RebuildReport};
pub use voucher_report::{NotRebuilt, OrdersBySource, VoucherReport};

use self::{backlog::UnwrittenOrders, workers::Waited};
use crate::{lease, order_ids};

/// What is to be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RebuildRequest {
    /// Which voucher; None: all whose sale has not ended, as far as they were ever sold through Redis.
    pub voucher: Option<VoucherId>,
    /// Workers that are not waited for, whatever they have in progress.
    pub despite_workers: Vec<String>,
}

/// The stores of a rebuild.
#[derive(Debug)]
pub struct Rebuild {
    redis: RedisStore,
    mysql: MySqlPool,
    causal_reads: Arc<CausalReads>,
    who: String,
}

impl Rebuild {
    /// Connects to both. Others are told `who` is at it.
    ///
    /// # Errors
    /// When one cannot be reached.
    pub async fn connect(stores: &Stores, who: String) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let (redis, mysql) = (redis.clone(), mysql.clone());
        let causal_reads = stores.sessions().await?.causal_reads();
        Ok(Self { redis, mysql, causal_reads, who })
    }

    /// Rebuilds what was planned. The same again begins anew, and does no harm to what is rebuilt already.
    ///
    /// # Errors
    /// When a store does not answer, or another one is at work. What `report` says is done is done.
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
            .context("Failed to remove what a rebuild left that was killed")?;
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

    /// From here on, MySQL shows whatever any node had committed by now.
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

    /// Before a gate opens on what is rebuilt, no id may be given out that somebody has.
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

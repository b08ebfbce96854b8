//! Pauses the sales of all vouchers that have a stock in Redis.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{
    RedisStore, VoucherId, sale,
    scripts::{Pause, PauseScope, ScriptError},
};

use super::{CHUNK, VoucherChanges};
use crate::change::{End, Ending, Next, Plan, Report};

/// The plan to pause all sales.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SalesPausePlan {
    /// The vouchers whose sales would be paused.
    pub running: Vec<VoucherId>,
    /// The vouchers whose sales are already paused. For these sales, nothing changes.
    pub paused_before: Vec<VoucherId>,
}

impl Plan for SalesPausePlan {
    fn next(&self) -> Next {
        match self.running.len() as u64 {
            0 if self.paused_before.is_empty() => Next::Refused,
            0 => Next::NothingToDo,
            sales => Next::Ask(format!("Pause {}?", counted(sales, "sale"))),
        }
    }
}

/// The report of pausing all sales.
#[derive(Clone, Debug, Serialize)]
pub struct SalesPauseReport {
    /// The results for the vouchers whose sales this operation paused or could not pause.
    #[serde(flatten)]
    pub changed: VoucherChanges,
    /// The vouchers whose sales were already paused.
    pub paused_before: Vec<VoucherId>,
}

impl Report for SalesPauseReport {
    fn counts(&self) -> Json {
        json!({ "vouchers": self.changed.vouchers.len(), "failed": self.changed.failed.len() })
    }

    fn ending(&self) -> Ending {
        self.changed.ending()
    }
}

impl From<&SalesPausePlan> for SalesPauseReport {
    /// Creates the report before anything is paused.
    fn from(plan: &SalesPausePlan) -> Self {
        Self { changed: VoucherChanges::default(), paused_before: plan.paused_before.clone() }
    }
}

/// The operation that pauses the sales of all vouchers. If the operation was stopped, run the same request again to
/// continue.
#[derive(Clone, Debug)]
pub struct SalesPause<'a> {
    redis: &'a RedisStore,
}

impl<'a> SalesPause<'a> {
    /// Creates the operation that pauses all sales in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore) -> Self {
        Self { redis }
    }

    /// Reads which vouchers are on sale.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<SalesPausePlan> {
        self.read(progress).await.context("Failed to find the vouchers in Redis")
    }

    async fn read(&self, progress: &dyn Progress) -> anyhow::Result<SalesPausePlan> {
        progress.expect(2 * sale::count_keys(self.redis).await?, "keys read");
        let loaded = sale::find_loaded(self.redis, |keys| progress.add(keys)).await?;
        let mut plan = SalesPausePlan::default();
        for chunk in loaded.chunks(CHUNK) {
            for (voucher, pause) in chunk.iter().zip(self.redis.sales().read_pauses(chunk).await) {
                match pause {
                    Ok(Pause::Paused(_)) => plan.paused_before.push(*voucher),
                    Err(error @ ScriptError::Unreachable(_)) => return Err(error.into()),
                    // If a pause cannot be read, the command tries to pause the sale, and that attempt reports the
                    // error.
                    Ok(Pause::Running) | Err(_) => plan.running.push(*voucher),
                }
            }
        }
        Ok(plan)
    }

    /// Pauses the sales that are not paused yet.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn run(
        &self,
        plan: &SalesPausePlan,
        report: &mut SalesPauseReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let pause = async |voucher| self.redis.sales().pause(voucher, PauseScope::All).await;
        report.changed.apply(&plan.running, job, pause).await.context("Failed to pause all sales")
    }
}

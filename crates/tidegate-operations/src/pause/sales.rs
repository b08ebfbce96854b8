//! Pauses the sales of all vouchers that have a stock in Redis.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{
    RedisStore, VoucherId,
    gate::{GateError, Pause, PauseScope},
    sale,
};

use super::{CHUNK, VoucherChanges};
use crate::change::{End, Ending, Next, Plan, Report};

/// Which sales would be paused.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SalesPausePlan {
    /// These.
    pub running: Vec<VoucherId>,
    /// These are paused already and are left as they are.
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

/// Which sales were paused.
#[derive(Clone, Debug, Serialize)]
pub struct SalesPauseReport {
    /// What became of those that were running.
    #[serde(flatten)]
    pub changed: VoucherChanges,
    /// Those that were paused already.
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
    /// Nothing is paused yet.
    fn from(plan: &SalesPausePlan) -> Self {
        Self { changed: VoucherChanges::default(), paused_before: plan.paused_before.clone() }
    }
}

/// Pauses all sales. To continue a pause that was stopped, run it again.
#[derive(Clone, Debug)]
pub struct SalesPause<'a> {
    redis: &'a RedisStore,
}

impl<'a> SalesPause<'a> {
    /// A pause of all sales in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore) -> Self {
        Self { redis }
    }

    /// Reads which vouchers are on sale.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<SalesPausePlan> {
        self.read(progress).await.context("Failed to look for the vouchers in Redis")
    }

    async fn read(&self, progress: &dyn Progress) -> anyhow::Result<SalesPausePlan> {
        progress.expect(2 * sale::count_keys(self.redis).await?, "keys looked at");
        let loaded = sale::find_loaded(self.redis, |keys| progress.add(keys)).await?;
        let mut plan = SalesPausePlan::default();
        for chunk in loaded.chunks(CHUNK) {
            for (voucher, pause) in chunk.iter().zip(self.redis.sales().read_pauses(chunk).await) {
                match pause {
                    Ok(Pause::Paused(_)) => plan.paused_before.push(*voucher),
                    Err(error @ GateError::Unreachable(_)) => return Err(error.into()),
                    // A pause that cannot be read is tried all the same: that tells why.
                    Ok(Pause::Running) | Err(_) => plan.running.push(*voucher),
                }
            }
        }
        Ok(plan)
    }

    /// Pauses the sales that are running.
    ///
    /// # Errors
    /// When Redis does not answer.
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

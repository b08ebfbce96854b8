//! Ends the pause of the workers, or of all sales that were paused together: each what its own `pause` began.

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
use crate::{
    change::{End, Ending, Next, Plan, Report},
    fleet_pause::{self, FleetPause},
};

/// What is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeRequest {
    /// The sales that were paused together.
    Sales,
    /// The workers.
    Workers,
}

/// What would go on.
#[derive(Clone, Debug, Serialize)]
pub struct ResumePlan {
    /// The pause of all workers; it would end.
    pub workers: Option<FleetPause>,
    /// Vouchers that were paused together; they would go on.
    pub vouchers: Vec<VoucherId>,
    /// Vouchers that were paused by their own names; they stay paused.
    pub stay_paused: Vec<VoucherId>,
    /// The pause of all workers, which nobody asked to end: they stay paused.
    pub workers_stay_paused: Option<FleetPause>,
}

impl Plan for ResumePlan {
    fn next(&self) -> Next {
        let workers = self.workers.as_ref().map(|_| "the workers".to_owned());
        let sales = self.vouchers.len() as u64;
        let sales = (sales > 0).then(|| counted(sales, "sale"));
        let what: Vec<String> = [workers, sales].into_iter().flatten().collect();
        match what.is_empty() {
            true if self.stay_paused.is_empty() && self.workers_stay_paused.is_none() => Next::NothingToDo,
            true => Next::Refused,
            false => Next::Ask(format!("Go on with {}?", what.join(" and "))),
        }
    }
}

/// What became of the workers' pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumedWorkers {
    /// It is over.
    Resumed,
    /// There was none, or it was not asked for.
    NotPaused,
    /// Somebody has paused them anew meanwhile.
    Refused,
    /// Redis did not answer.
    Unknown,
}

/// What goes on.
#[derive(Clone, Debug, Serialize)]
pub struct ResumeReport {
    /// What became of the workers' pause.
    pub workers: ResumedWorkers,
    /// What became of the vouchers that were paused together.
    #[serde(flatten)]
    pub changed: VoucherChanges,
    /// Vouchers that were paused by their own names; they stay paused.
    pub stay_paused: Vec<VoucherId>,
    /// The pause of all workers, which nobody asked to end: they stay paused.
    pub workers_stay_paused: Option<FleetPause>,
}

impl Report for ResumeReport {
    fn counts(&self) -> Json {
        json!({
            "workers": self.workers == ResumedWorkers::Resumed,
            "vouchers": self.changed.vouchers.len(),
            "failed": self.changed.failed.len(),
        })
    }

    fn ending(&self) -> Ending {
        if self.workers == ResumedWorkers::Refused { Ending::Refused } else { self.changed.ending() }
    }
}

impl From<&ResumePlan> for ResumeReport {
    /// Nothing goes on yet.
    fn from(plan: &ResumePlan) -> Self {
        let is_paused = plan.workers.is_some();
        Self {
            workers: if is_paused { ResumedWorkers::Unknown } else { ResumedWorkers::NotPaused },
            changed: VoucherChanges::default(),
            stay_paused: plan.stay_paused.clone(),
            workers_stay_paused: plan.workers_stay_paused.clone(),
        }
    }
}

/// Ends pauses. To continue a resume that was stopped, run the same request again.
#[derive(Clone, Debug)]
pub struct Resume<'a> {
    redis: &'a RedisStore,
    request: ResumeRequest,
}

impl<'a> Resume<'a> {
    /// A resume in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: ResumeRequest) -> Self {
        Self { redis, request }
    }

    /// Reads what is paused.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<ResumePlan> {
        let workers = FleetPause::read(self.redis).await;
        let workers = workers.context("Failed to look at the workers' pause")?;
        let (workers, workers_stay_paused) = match self.request {
            ResumeRequest::Workers => (workers, None),
            ResumeRequest::Sales => (None, workers),
        };
        let mut plan =
            ResumePlan { workers, vouchers: Vec::new(), stay_paused: Vec::new(), workers_stay_paused };
        if self.request == ResumeRequest::Sales {
            self.find_paused(&mut plan, progress).await.context("Failed to look for paused vouchers")?;
        }
        Ok(plan)
    }

    async fn find_paused(&self, plan: &mut ResumePlan, progress: &dyn Progress) -> anyhow::Result<()> {
        progress.expect(sale::count_keys(self.redis).await?, "keys looked at");
        let known = sale::find_known(self.redis, |keys| progress.add(keys)).await?;
        for chunk in known.chunks(CHUNK) {
            for (voucher, pause) in chunk.iter().zip(self.redis.sales().read_pauses(chunk).await) {
                match pause {
                    Ok(Pause::Paused(PauseScope::All)) => plan.vouchers.push(*voucher),
                    Ok(Pause::Paused(PauseScope::Own)) => plan.stay_paused.push(*voucher),
                    Err(error @ GateError::Unreachable(_)) => return Err(error.into()),
                    // A key of another type holds no pause.
                    Ok(Pause::Running) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Ends the pauses.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn run(&self, plan: &ResumePlan, report: &mut ResumeReport, job: &Job) -> anyhow::Result<End> {
        if let Some(pause) = &plan.workers {
            let is_over = fleet_pause::end(self.redis, pause).await;
            let is_over = is_over.context("Failed to resume the workers")?;
            report.workers = if is_over { ResumedWorkers::Resumed } else { ResumedWorkers::Refused };
        }
        let resume = async |voucher| self.redis.sales().resume(voucher, PauseScope::All).await;
        report.changed.apply(&plan.vouchers, job, resume).await.context("Failed to go on with all sales")
    }
}

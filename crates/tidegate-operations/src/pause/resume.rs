//! Ends the pause of the workers, or of all sales that were paused together. Each ends only what its own `pause` began.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{
    RedisStore, VoucherId, sale,
    scripts::{Pause, PauseScope, ScriptError},
};

use super::{CHUNK, VoucherChanges};
use crate::{
    change::{End, Ending, Next, Plan, Report},
    fleet_pause::{self, FleetPause},
};

/// The request of an operator to end a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeRequest {
    /// The sales that were paused together.
    Sales,
    /// All workers of the fleet.
    Workers,
}

/// The plan to end the pause of the workers or of all sales.
#[derive(Clone, Debug, Serialize)]
pub struct ResumePlan {
    /// The pause of all workers that would end; None: no pause of the workers would end.
    pub workers: Option<FleetPause>,
    /// The vouchers that were paused by a pause of all sales, and that would be sold again.
    pub vouchers: Vec<VoucherId>,
    /// The vouchers that operators paused one by one, and whose sales stay paused.
    pub stay_paused: Vec<VoucherId>,
    /// The pause of all workers that continues, because the request is only about sales.
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
            false => Next::Ask(format!("Resume {}?", what.join(" and "))),
        }
    }
}

/// The result of ending the pause of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumedWorkers {
    /// The pause of the workers is over.
    Resumed,
    /// There was no pause, or the request did not include it.
    NotPaused,
    /// Another operator has paused the workers again in the meantime.
    Refused,
    /// Redis did not answer, so the result is unknown.
    Unknown,
}

/// The report of ending the pause of the workers or of all sales.
#[derive(Clone, Debug, Serialize)]
pub struct ResumeReport {
    /// The result of ending the pause of the workers.
    pub workers: ResumedWorkers,
    /// The results for the vouchers that were paused by a pause of all sales.
    #[serde(flatten)]
    pub changed: VoucherChanges,
    /// The vouchers that operators paused one by one, and whose sales stay paused.
    pub stay_paused: Vec<VoucherId>,
    /// The pause of all workers that continues, because the request is only about sales.
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
    /// Creates the report before anything is resumed.
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

/// The operation that ends the pause of the workers or of all sales. If the operation was stopped, run the same request
/// again to continue.
#[derive(Clone, Debug)]
pub struct Resume<'a> {
    redis: &'a RedisStore,
    request: ResumeRequest,
}

impl<'a> Resume<'a> {
    /// Creates the operation that ends a pause in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: ResumeRequest) -> Self {
        Self { redis, request }
    }

    /// Reads which sales and workers are paused.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<ResumePlan> {
        let workers = FleetPause::read(self.redis).await;
        let workers = workers.context("Failed to read the pause of the workers")?;
        let (workers, workers_stay_paused) = match self.request {
            ResumeRequest::Workers => (workers, None),
            ResumeRequest::Sales => (None, workers),
        };
        let mut plan =
            ResumePlan { workers, vouchers: Vec::new(), stay_paused: Vec::new(), workers_stay_paused };
        if self.request == ResumeRequest::Sales {
            self.find_paused(&mut plan, progress).await.context("Failed to find the paused vouchers")?;
        }
        Ok(plan)
    }

    async fn find_paused(&self, plan: &mut ResumePlan, progress: &dyn Progress) -> anyhow::Result<()> {
        progress.expect(sale::count_keys(self.redis).await?, "keys read");
        let known = sale::find_known(self.redis, |keys| progress.add(keys)).await?;
        for chunk in known.chunks(CHUNK) {
            for (voucher, pause) in chunk.iter().zip(self.redis.sales().read_pauses(chunk).await) {
                match pause {
                    Ok(Pause::Paused(PauseScope::All)) => plan.vouchers.push(*voucher),
                    Ok(Pause::Paused(PauseScope::Own)) => plan.stay_paused.push(*voucher),
                    Err(error @ ScriptError::Unreachable(_)) => return Err(error.into()),
                    // A key of another type holds no pause.
                    Ok(Pause::Running) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Ends the pauses of the plan, and fills the report.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn run(&self, plan: &ResumePlan, report: &mut ResumeReport, job: &Job) -> anyhow::Result<End> {
        if let Some(pause) = &plan.workers {
            let is_over = fleet_pause::end(self.redis, pause).await;
            let is_over = is_over.context("Failed to resume the workers")?;
            report.workers = if is_over { ResumedWorkers::Resumed } else { ResumedWorkers::Refused };
        }
        let resume = async |voucher| self.redis.sales().resume(voucher, PauseScope::All).await;
        report.changed.apply(&plan.vouchers, job, resume).await.context("Failed to resume all sales")
    }
}

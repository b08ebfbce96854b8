//! Pauses all workers.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::RedisStore;

use crate::{
    change::{Ending, Next, Plan, Report},
    fleet_pause::{self, FleetPause, FleetPauseRequest},
};

/// Whether the workers would be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedWorkersPause {
    /// They would be.
    WouldPause,
    /// They are, in the same way.
    PausedBefore,
}

/// How the workers would be paused.
#[derive(Clone, Debug, Serialize)]
pub struct WorkersPausePlan {
    /// Whether they would be.
    pub outcome: PlannedWorkersPause,
    /// The pause that is there now; the new one replaces it.
    pub before: Option<FleetPause>,
    /// When the new one ends by itself; None: when somebody resumes the workers.
    pub ends_in_s: Option<f64>,
}

impl Plan for WorkersPausePlan {
    fn next(&self) -> Next {
        match (self.outcome, &self.before) {
            (PlannedWorkersPause::WouldPause, None) => Next::Ask("Pause all workers?".to_owned()),
            (PlannedWorkersPause::WouldPause, Some(_)) => {
                Next::Ask("Replace the pause of all workers?".to_owned())
            }
            (PlannedWorkersPause::PausedBefore, _) => Next::NothingToDo,
        }
    }
}

/// Whether the workers are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkersPauseOutcome {
    /// They are.
    Paused,
    /// They are not, or by somebody else: there was no pause before, but there is one now.
    Refused,
}

/// How the workers are paused.
#[derive(Clone, Debug, Serialize)]
pub struct WorkersPauseReport {
    /// Whether they are.
    pub outcome: WorkersPauseOutcome,
    /// The pause that was there before.
    pub before: Option<FleetPause>,
    /// When the new one ends by itself; None: when somebody resumes the workers.
    pub ends_in_s: Option<f64>,
}

impl Report for WorkersPauseReport {
    fn counts(&self) -> Json {
        json!({ "paused": u8::from(self.outcome == WorkersPauseOutcome::Paused) })
    }

    fn ending(&self) -> Ending {
        match self.outcome {
            WorkersPauseOutcome::Paused => Ending::Done,
            WorkersPauseOutcome::Refused => Ending::Refused,
        }
    }
}

/// Pauses all workers.
#[derive(Clone, Debug)]
pub struct WorkersPause<'a> {
    redis: &'a RedisStore,
    request: FleetPauseRequest,
}

impl<'a> WorkersPause<'a> {
    /// A pause of the workers in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: FleetPauseRequest) -> Self {
        Self { redis, request }
    }

    /// Reads whether they are paused.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds something else than a string.
    pub async fn plan(&self) -> anyhow::Result<WorkersPausePlan> {
        let before = FleetPause::read(self.redis).await;
        let before = before.context("Failed to look whether they are paused")?;
        let FleetPauseRequest { span, reason, .. } = &self.request;
        // The same again changes nothing; another end or another reason does.
        let is_same = |before: &FleetPause| before.ends_in_s.is_none() && span.is_none() && reason.is_none();
        let outcome = if before.as_ref().is_some_and(is_same) {
            PlannedWorkersPause::PausedBefore
        } else {
            PlannedWorkersPause::WouldPause
        };
        Ok(WorkersPausePlan { outcome, before, ends_in_s: span.map(|span| span.as_secs_f64()) })
    }

    /// Pauses them.
    ///
    /// # Errors
    /// When Redis does not answer or refuses; the workers may be paused then.
    pub async fn run(&self, plan: WorkersPausePlan) -> anyhow::Result<WorkersPauseReport> {
        let WorkersPausePlan { before, ends_in_s, .. } = plan;
        let is_paused = fleet_pause::begin(self.redis, &self.request, before.as_ref()).await;
        let outcome = if is_paused.context("Failed to pause the workers")? {
            WorkersPauseOutcome::Paused
        } else {
            WorkersPauseOutcome::Refused
        };
        Ok(WorkersPauseReport { outcome, before, ends_in_s })
    }
}

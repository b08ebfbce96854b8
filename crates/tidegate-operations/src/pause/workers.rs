//! Pauses all workers of the fleet.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::RedisStore;

use crate::{
    change::{Ending, Next, Plan, Report},
    fleet_pause::{self, FleetPause, FleetPauseRequest},
};

/// The planned or actual result of pausing all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkersPauseOutcome {
    /// The workers would be paused.
    WouldPause,
    /// The workers are already paused in the same way.
    PausedBefore,
    /// The workers are paused now.
    Paused,
    /// The pause was refused: another operator has paused the workers since the plan was read.
    Refused,
}

/// The plan or the report of pausing all workers.
#[derive(Clone, Debug, Serialize)]
pub struct WorkersPauseState {
    /// The planned or actual result of the request.
    pub outcome: WorkersPauseOutcome,
    /// The earlier pause that the new pause replaces; None: the workers were not paused.
    pub before: Option<FleetPause>,
    /// The seconds until the new pause ends; None: the pause lasts until an operator resumes the workers.
    pub ends_in_s: Option<f64>,
}

impl Plan for WorkersPauseState {
    fn next(&self) -> Next {
        match (self.outcome, &self.before) {
            (WorkersPauseOutcome::WouldPause, None) => Next::Ask("Pause all workers?".to_owned()),
            (WorkersPauseOutcome::WouldPause, Some(_)) => {
                Next::Ask("Replace the pause of all workers?".to_owned())
            }
            (WorkersPauseOutcome::PausedBefore | WorkersPauseOutcome::Paused, _) => Next::NothingToDo,
            (WorkersPauseOutcome::Refused, _) => Next::Refused,
        }
    }
}

impl Report for WorkersPauseState {
    fn counts(&self) -> Json {
        json!({ "paused": u8::from(self.outcome == WorkersPauseOutcome::Paused) })
    }

    fn ending(&self) -> Ending {
        if self.outcome == WorkersPauseOutcome::Paused { Ending::Done } else { Ending::Refused }
    }
}

/// The operation that pauses all workers of a consumer group.
#[derive(Clone, Debug)]
pub struct WorkersPause<'a> {
    redis: &'a RedisStore,
    request: FleetPauseRequest,
}

impl<'a> WorkersPause<'a> {
    /// Creates the operation that pauses all workers in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: FleetPauseRequest) -> Self {
        Self { redis, request }
    }

    /// Reads whether the workers are paused.
    ///
    /// # Errors
    /// If Redis does not answer, or the key does not hold a string.
    pub async fn plan(&self) -> anyhow::Result<WorkersPauseState> {
        let before = FleetPause::read(self.redis).await;
        let before = before.context("Failed to read whether an operator paused the workers")?;
        let FleetPauseRequest { span, reason, .. } = &self.request;
        // A request without an end and a reason changes nothing if the current pause has no end; any other request
        // replaces it.
        let is_same = |before: &FleetPause| before.ends_in_s.is_none() && span.is_none() && reason.is_none();
        let outcome = if before.as_ref().is_some_and(is_same) {
            WorkersPauseOutcome::PausedBefore
        } else {
            WorkersPauseOutcome::WouldPause
        };
        Ok(WorkersPauseState { outcome, before, ends_in_s: span.map(|span| span.as_secs_f64()) })
    }

    /// Pauses the workers as planned.
    ///
    /// # Errors
    /// If Redis does not answer or refuses; the workers may be paused then.
    pub async fn run(&self, plan: WorkersPauseState) -> anyhow::Result<WorkersPauseState> {
        let is_paused = fleet_pause::begin(self.redis, &self.request, plan.before.as_ref()).await;
        let outcome = if is_paused.context("Failed to pause the workers")? {
            WorkersPauseOutcome::Paused
        } else {
            WorkersPauseOutcome::Refused
        };
        Ok(WorkersPauseState { outcome, ..plan })
    }
}

//! Pausing all workers, and its report.

use std::time::Duration;

use tidegate_compare::text;
use tidegate_operations::{
    Stores,
    fleet_pause::FleetPauseRequest,
    pause::workers::{WorkersPause, WorkersPauseOutcome, WorkersPauseState},
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

impl PlanText for WorkersPauseState {
    fn text(&self) -> String {
        text(self)
    }
}

impl ReportText for WorkersPauseState {
    fn text(&self) -> String {
        text(self)
    }
}

fn text(pause: &WorkersPauseState) -> String {
    let before = pause.before.as_ref();
    let before = before.map(|before| format!("the workers are paused {}; {}", before.origin(), before.end()));
    let length = length(pause.ends_in_s);
    match (pause.outcome, before) {
        (WorkersPauseOutcome::WouldPause, None) => format!("all workers would stop reading, {length}"),
        (WorkersPauseOutcome::WouldPause, Some(before)) => {
            format!("{before}\na new pause would replace this pause: the workers would be paused {length}")
        }
        (WorkersPauseOutcome::PausedBefore, before) => before.unwrap_or_default(),
        (WorkersPauseOutcome::Paused, _) => format!("all workers stop reading within 2 s, {length}"),
        (WorkersPauseOutcome::Refused, _) => {
            "another command has paused the workers meanwhile: see tidegate status".to_owned()
        }
    }
}

fn length(ends_in_s: Option<f64>) -> String {
    ends_in_s.map_or_else(
        || "until they are resumed".to_owned(),
        |ends_in_s| format!("for {}", text::span(Duration::from_secs_f64(ends_in_s))),
    )
}

/// Pauses all workers of a consumer group.
pub async fn run(stores: &Stores, request: FleetPauseRequest, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let pause = WorkersPause::new(redis, request);
    let plan = pause.plan().await?;
    Change::new(stores, args).run(plan, async |plan, _job| pause.run(plan).await).await
}

//! The tasks that maintain the published results.

use std::time::Duration;

use tidegate_orders::{Publisher, ResultsPruner, publisher::Remembered};

use super::{NextRun, Parts, Periodic, ProcessSettings, Routine, Task};

/// The pause between two queries to MySQL for results that Redis did not accept.
const PUBLISH_EVERY: Duration = Duration::from_secs(2);

/// Creates the task that publishes those results of orders that Redis did not accept earlier.
pub fn publish_remembered(publisher: Publisher) -> impl Task {
    let publish = async move || {
        Ok(match publisher.publish_remembered().await? {
            Remembered::Published => NextRun::AtOnce,
            Remembered::None | Remembered::Refused => NextRun::After(PUBLISH_EVERY),
        })
    };
    Periodic(
        Routine::new("look for results that Redis refused", PUBLISH_EVERY).without_first_pause(),
        publish,
    )
}

/// Creates the task that deletes old results from the results stream.
pub fn prune(ProcessSettings { system, worker, .. }: &ProcessSettings, parts: &Parts) -> impl Task + use<> {
    let keep = (system.results.keep, system.results.keep_bytes);
    let pruner = ResultsPruner::new(&parts.redis, system.stream.results.clone(), keep);
    let every = worker.prune_every;
    Periodic(Routine::new("prune the results", every), async move || {
        let trimmed = pruner.run_once().await?;
        if trimmed > 0 {
            tracing::info!(trimmed, "deleted results that were too old or too many");
        }
        Ok(NextRun::After(every))
    })
}

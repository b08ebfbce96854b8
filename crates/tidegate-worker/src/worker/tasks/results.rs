//! What looks after the results that are published.

use std::time::Duration;

use tidegate_orders::{Publisher, ResultsTrimmer, publisher::Remembered};

use super::{NextRun, Parts, Periodic, ProcessSettings, Routine, Task};

/// How often MySQL is asked for results that Redis did not take.
const PUBLISH_EVERY: Duration = Duration::from_secs(2);

/// Publishes results that Redis did not take at first, as soon as it does.
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

/// Deletes old results.
pub fn trim(ProcessSettings { system, worker, .. }: &ProcessSettings, parts: &Parts) -> impl Task + use<> {
    let keep = (system.results.keep, system.results.keep_bytes);
    let trimmer = ResultsTrimmer::new(parts.redis.pool().clone(), system.stream.results.clone(), keep);
    let every = worker.trim_every;
    Periodic(Routine::new("trim the results", every), async move || {
        let trimmed = trimmer.run_once().await?;
        if trimmed > 0 {
            tracing::info!(trimmed, "results deleted that are too old or too many");
        }
        Ok(NextRun::After(every))
    })
}

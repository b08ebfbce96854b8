//! The tasks that maintain the stream and its consumer group. Any process may run any of them at any time.

use tidegate_orders::keys::process_of;
use tidegate_stream::{ConsumerRemover, ServerClock, StreamPruner};

use super::{NextRun, Parts, Periodic, ProcessSettings, Routine, Task};

/// Creates the task that deletes old entries from the stream. Several workers may run this task, because a script in
/// Redis decides which entries are deleted.
pub fn prune(ProcessSettings { system, worker, .. }: &ProcessSettings, parts: &Parts) -> impl Task + use<> {
    let pruner = |keep| StreamPruner::new(&parts.redis, system.stream_names(), keep);
    let (pruner, every) = (system.stream.retention.map(pruner), worker.prune_every);
    Periodic(Routine::new("prune the stream", every), async move || {
        let Some(pruner) = &pruner else { return Ok(NextRun::Done) };
        let trimmed = pruner.run_once().await?;
        if trimmed > 0 {
            tracing::info!(trimmed, "deleted entries that are older than stream.retention_ms");
        }
        Ok(NextRun::After(every))
    })
}

/// Creates the task that removes dead consumers without pending entries from the consumer group.
pub fn remove_consumers(
    ProcessSettings { system, worker, .. }: &ProcessSettings,
    parts: &Parts,
) -> impl Task + use<> {
    let remover = ConsumerRemover::new(&parts.redis, system.stream_names(), worker.retire_idle);
    let (redis, every) = (parts.redis.clone(), worker.lane.claim_every);
    Periodic(Routine::new("look for dead consumers", every), async move || {
        remover.run_once(|consumer| redis.keys().fleet().heartbeat(process_of(consumer))).await?;
        Ok(NextRun::After(every))
    })
}

/// Creates the task that checks whether the clock of Redis was changed.
pub fn watch_server_clock(
    ProcessSettings { system, worker, .. }: &ProcessSettings,
    parts: &Parts,
) -> impl Task + use<> {
    let mut clock = ServerClock::new(&parts.redis, system.stream_names());
    let every = worker.lane.claim_every;
    let look = async move || {
        clock.run_once().await?;
        Ok(NextRun::After(every))
    };
    Periodic(Routine::new("check the clock of Redis", every).without_first_pause(), look)
}

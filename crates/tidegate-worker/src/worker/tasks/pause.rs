//! The task that sets the pause switch to the pause of all workers in Redis. A failed read neither pauses nor resumes.

use std::{sync::Arc, time::Duration};

use tidegate_operations::fleet_pause::{FLEET, update_switch};
use tidegate_stream::PauseSwitch;
use tokio::time::timeout;

use super::{NextRun, Parts, Periodic, Routine, Task};

/// The pause between two reads. Workers have to notice a change within a second, even if one read is lost.
const READ_EVERY: Duration = Duration::from_millis(500);
const READ_TIMEOUT: Duration = Duration::from_millis(900);

pub fn watch_pause(parts: &Parts, pause_switch: Arc<PauseSwitch>) -> impl Task + use<> {
    let redis = parts.redis.clone();
    let mut is_logged = false;
    Periodic(Routine::new("check whether the workers are paused", READ_EVERY), async move || {
        let failed = match timeout(READ_TIMEOUT, update_switch(&redis, &pause_switch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("Redis does not answer".to_owned()),
        };
        match failed {
            None => is_logged = false,
            // Lanes that read log an outage themselves. While all of them are paused, only this task does.
            Some(error) if !is_logged && pause_switch.active().iter().any(|held| held.reason == FLEET) => {
                tracing::warn!(
                    error,
                    "cannot read whether the workers are still paused: the workers stay paused"
                );
                is_logged = true;
            }
            Some(error) => tracing::debug!(error, "cannot read whether the workers are paused"),
        }
        Ok(NextRun::After(READ_EVERY))
    })
}

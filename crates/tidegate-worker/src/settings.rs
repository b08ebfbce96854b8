//! The settings of a worker process.

use std::time::Duration;

use tidegate_operations::{SystemSettings, busy_marker::BusyMarkerSettings};
use tidegate_stream::LaneSettings;

/// The settings for one worker of a process.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The system that the worker works for.
    pub system: SystemSettings,
    /// The settings of the section `[worker]`.
    pub worker: WorkerSettings,
    /// The settings for marking sales as busy.
    pub busy_marker: BusyMarkerSettings,
}

/// The settings of the section `[worker]`.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The name of the process; never empty here.
    pub name: String,
    /// The number of lanes that read the stream.
    pub lanes: usize,
    /// The settings of each lane. In the settings of the program, `batch_bytes` and `set_aside_max` are totals of all
    /// partitions, and `failover` and `replicas` are not set. In those of a process, every field has its own value.
    pub lane: LaneSettings,
    /// The time after which a dead holder's user lock expires.
    pub lock_lease: Duration,
    /// The idle time after which a dead consumer without pending entries is removed.
    pub retire_idle: Duration,
    /// The pause between two searches for entries beyond the retention.
    pub prune_every: Duration,
    /// The time after which the heartbeat of a dead process expires.
    pub heartbeat_ttl: Duration,
    /// The longest time from the stop signal to the exit.
    pub stop_deadline: Duration,
    /// The pause between two summary lines in the log.
    pub report_every: Duration,
    /// The time after which a lane that stays in one activity counts as stuck.
    pub stuck_after: Duration,
}

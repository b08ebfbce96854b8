//! The settings of a worker process.

use std::time::Duration;

use tidegate_operations::{SystemSettings, busy_marker::BusyMarkerSettings};
use tidegate_stream::LaneSettings;

/// The settings for the worker of one partition.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The stores, names and limits of the partition that the worker serves.
    pub system: SystemSettings,
    /// The settings in the section `[worker]` of the configuration.
    pub worker: WorkerSettings,
    /// The settings for marking sales as busy.
    pub busy_marker: BusyMarkerSettings,
}

/// The settings in the section `[worker]` of the configuration.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The name of the worker process. This name is never empty.
    pub name: String,
    /// The number of lanes of a worker. A lane is a consumer that handles one batch at a time.
    pub lanes: usize,
    /// The settings of each lane, a consumer within the worker. In the program's settings, `batch_bytes` and
    /// `set_aside_max` are totals of all partitions, and `failover` and `replicas` are not set. In one worker's
    /// settings, all fields apply to its partition.
    pub lane: LaneSettings,
    /// The time after which the lock of a user expires if the worker with the lock has died.
    pub lock_lease: Duration,
    /// The idle time after which workers remove a dead consumer without pending entries.
    pub retire_idle: Duration,
    /// The interval between searches for entries and results that are old enough to be deleted.
    pub prune_every: Duration,
    /// The time after which the heartbeat of a dead process expires.
    pub heartbeat_ttl: Duration,
    /// The longest time from the stop signal to the exit of the process.
    pub stop_deadline: Duration,
    /// The interval between log lines that summarize the work of the worker.
    pub report_every: Duration,
    /// The time after which a lane (a consumer within the worker) counts as stuck if it stays in one activity.
    pub stuck_after: Duration,
}

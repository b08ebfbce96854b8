//! The settings of a worker process.

use std::time::Duration;

use tidegate_operations::{SystemSettings, busy_marker::BusyMarkerSettings};
use tidegate_stream::LaneSettings;

/// All that a worker process is told.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The system that it works for.
    pub system: SystemSettings,
    /// How it works.
    pub worker: WorkerSettings,
    /// When sales are marked as busy.
    pub busy_marker: BusyMarkerSettings,
}

/// `[worker]`
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Name of the process; never empty here.
    pub name: String,
    /// Number of lanes.
    pub lanes: usize,
    /// How each lane works. In the settings of the program, `batch_bytes` and `set_aside_max` are those of all partitions together,
    /// and `failover` and `replicas` are not set. In those of a process, each has its value.
    pub lane: LaneSettings,
    /// Until a dead holder's user lock falls open.
    pub lock_lease: Duration,
    /// Idle time after which a dead, empty consumer is removed.
    pub retire_idle: Duration,
    /// Between two looks for entries beyond the retention.
    pub trim_every: Duration,
    /// Until the heartbeat of a dead process expires.
    pub heartbeat_ttl: Duration,
    /// From the stop signal to the exit, at most.
    pub stop_deadline: Duration,
    /// Between two summary lines.
    pub report_every: Duration,
    /// How long a lane may do one and the same thing.
    pub stuck_after: Duration,
}

//! The settings of a worker process.

use std::time::Duration;

use tidegate_operations::{SystemSettings, brake::BrakeSettings};

/// All that a worker process is told.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The system that it works for.
    pub system: SystemSettings,
    /// How it works.
    pub worker: WorkerSettings,
    /// When sales are marked as busy.
    pub brake: BrakeSettings,
}

/// `[worker]`
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Name of the process; never empty here.
    pub name: String,
    /// Number of lanes.
    pub lanes: usize,
    /// Entries a lane reads at most at once.
    pub batch: usize,
    /// Bytes of a lane's batch, about: of names and values, and 64 for each field.
    pub batch_bytes: usize,
    /// Bytes of the largest entry that is handled, counted so.
    pub entry_max_bytes: usize,
    /// Entries that all lanes together may have set aside.
    pub set_aside_max: usize,
    /// How long a read waits for new entries.
    pub block: Duration,
    /// Until a dead holder's user lock falls open.
    pub lock_lease: Duration,
    /// Until entries of locked users are tried again.
    pub lock_retry: Duration,
    /// Idle time after which an entry may be claimed.
    pub claim_idle: Duration,
    /// Between two looks for claimable entries.
    pub claim_every: Duration,
    /// Idle time after which a dead, empty consumer is removed.
    pub retire_idle: Duration,
    /// Between two looks for entries beyond the retention.
    pub trim_every: Duration,
    /// Until the heartbeat of a dead process expires.
    pub heartbeat_ttl: Duration,
    /// From the stop signal to the exit, at most.
    pub stop_deadline: Duration,
    /// The first retry's delay.
    pub backoff_min: Duration,
    /// The longest delay between retries.
    pub backoff_max: Duration,
    /// Between two summary lines.
    pub report_every: Duration,
    /// How long a lane may do one and the same thing.
    pub stuck_after: Duration,
}

//! The settings of a lane: sizes, limits, and times.

use std::time::Duration;

use crate::replicas::Confirmation;

/// The settings of a lane.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// The number of entries of a batch at most. While a lane settles a batch, it may have the next one as well.
    pub batch: usize,
    /// The bytes that a batch holds, approximately: names and values, and 64 for each field. A batch that reaches this
    /// takes no more entries. Redis reads by count, so the first batch after a change from small to large entries may
    /// exceed this. It may hold one large entry for each 32 KiB of this setting.
    pub batch_bytes: usize,
    /// The bytes of the largest entry that is handled, counted in the same way; a larger entry is buried, within Redis.
    pub entry_max_bytes: usize,
    /// The number of entries that all lanes of the process may have set aside, in addition to their batches in
    /// progress. At this limit they read no new entries. The process keeps about 30 bytes for each of these.
    pub set_aside_max: usize,
    /// The time that a read waits for new entries. A stop signal ends the wait.
    pub block: Duration,
    /// The delay before an entry that was set aside is tried again for the first time. It grows with each try, up to 2
    /// s.
    pub retry: Duration,
    /// The idle time after which other consumers claim an entry. A lane resets the idle time of its entries three times
    /// within it.
    pub claim_idle: Duration,
    /// The interval of the scans of the whole group's pending list for such entries.
    pub claim_every: Duration,
    /// The delay after the first error. It doubles, with jitter, after each further one.
    pub backoff_min: Duration,
    /// The longest delay after an error.
    pub backoff_max: Duration,
    /// Whether another server may replace this one, which may have given the same ids to other entries.
    pub failover: Failover,
    /// The replicas that must have entries before these are handled, so that a promoted replica knows of all that was
    /// handled. None: the lane does not wait for replicas.
    pub replicas: Option<Confirmation>,
}

/// The way in which the server of a stream may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// The server may restart, with its own data.
    #[default]
    Never,
    /// A replica may take the place of the server (Sentinel, Redis Cluster). Entries are settled only in the run of the
    /// server that handed them over, which costs Redis one script call per batch. After a change they are read again.
    Possible,
}

impl Default for LaneSettings {
    /// Returns batches of 1000 entries or 3 MiB, entries of at most 1 MiB, and at most half a million entries set
    /// aside. Entries of a dead consumer are claimed after a minute.
    fn default() -> Self {
        Self {
            batch: 1000,
            batch_bytes: 3 << 20,
            entry_max_bytes: 1 << 20,
            set_aside_max: 500_000,
            block: Duration::from_secs(1),
            retry: Duration::from_millis(100),
            claim_idle: Duration::from_secs(60),
            claim_every: Duration::from_secs(5),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            failover: Failover::Never,
            replicas: None,
        }
    }
}

//! The settings of a lane.

use std::time::Duration;

use crate::replicas::Confirmation;

/// How a lane works.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// Entries of a batch at most. While a lane settles a batch, it may have the next one as well.
    pub batch: usize,
    /// About how many bytes a batch holds: names and values, and 64 for each field. A batch that reaches this takes no more
    /// entries. Redis reads by count, so the first batch after small entries have become large ones may hold one of these for each
    /// 32 KiB of this.
    pub batch_bytes: usize,
    /// Bytes of the largest entry that is handled, counted so; a larger one is buried, within Redis.
    pub entry_max_bytes: usize,
    /// Entries that all lanes of the process have set aside, at most, but for what they have in progress: from there on nothing new is
    /// read. The process keeps about 30 bytes for each of these.
    pub set_aside_max: usize,
    /// How long a read waits for new entries. A stop signal ends the wait.
    pub block: Duration,
    /// The delay before an entry that was set aside is tried again for the first time. It grows with each try, up to 2 s.
    pub retry: Duration,
    /// Entries that nobody has touched for this long are claimed. A lane touches those that it has three times within it.
    pub claim_idle: Duration,
    /// How often the pending list of the whole group is scanned for such entries.
    pub claim_every: Duration,
    /// The delay after the first error. It doubles, with jitter, after each further one.
    pub backoff_min: Duration,
    /// Wait after an error, at most.
    pub backoff_max: Duration,
    /// Whether the server may be replaced by another one, which may have given the same ids to other entries.
    pub failover: Failover,
    /// Entries are handled only once so many replicas have them. So a replica that is promoted knows of all that was handled. None:
    /// nobody waits for replicas.
    pub replicas: Option<Confirmation>,
}

/// What becomes of the server of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// It may restart, with its own data.
    #[default]
    Never,
    /// A replica may take its place (Sentinel, Redis Cluster). Entries are settled only by the run of the server that handed them
    /// over, which costs Redis a script call a batch; after a change they are read again.
    Possible,
}

impl Default for LaneSettings {
    /// Batches of 1000 entries or 3 MiB; entries of 1 MiB at most; half a million entries set aside at most. What a dead
    /// consumer left is claimed after a minute.
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

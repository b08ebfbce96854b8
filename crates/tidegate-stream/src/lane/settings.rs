//! The settings of a lane: sizes, limits, and times.

use std::time::Duration;

use crate::replicas::Confirmation;

/// The longest wait between two tries of a cause, unless the settings say otherwise.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(2);

/// The settings of a lane (a consumer of the group): sizes, limits and times.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// The largest number of entries in a batch. While a consumer acknowledges a batch, it may also hold the next
    /// batch.
    pub batch: usize,
    /// The approximate size of a batch in bytes: the lengths of names and values, and 64 bytes more for each field. A
    /// batch that reaches this size gets no more entries. Redis reads by count, so the first batch may be larger after
    /// a change from small to large entries. A batch may contain one large entry for each 32 KiB of this setting.
    pub batch_bytes: usize,
    /// The size of the largest entry that is handled, in bytes: the lengths of names and values, and 64 bytes more for
    /// each field. Larger entries go to the dead letters, and their payload never leaves Redis.
    pub entry_max_bytes: usize,
    /// The number of entries that all lanes (consumers) of the process together may set aside: leave pending, to retry
    /// them later. At this limit, the lanes read no new entries. Batches in progress do not count. Each set-aside entry
    /// takes about 30 bytes of memory.
    pub set_aside_max: usize,
    /// The time that a read waits for new entries. A stop signal ends the wait.
    pub block: Duration,
    /// The waits between retries of an entry that could not be done.
    pub retry: RetryWait,
    /// The idle time after which other consumers may claim an entry. The consumer of an entry resets the idle time
    /// three times within this period.
    pub claim_idle: Duration,
    /// The interval at which a consumer scans the group's pending list for entries that it may claim.
    pub claim_every: Duration,
    /// The delay after the first error. The delay doubles, with jitter, after each further error.
    pub backoff_min: Duration,
    /// The longest delay between two attempts after errors.
    pub backoff_max: Duration,
    /// How another Redis server may replace the present server, for example a promoted replica.
    pub failover: Failover,
    /// The replicas that must confirm a read before its entries are handled, so that a promoted replica knows which
    /// entries were handled. None: the lane (consumer) does not wait for replicas.
    pub replicas: Option<Confirmation>,
}

/// The waits between retries of entries that wait for the same cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryWait {
    /// The wait before the first retry, which grows with each further retry.
    pub first: Duration,
    /// The longest wait between two retries. For entries that are retried in stream order, it is always 2 s or more.
    pub longest: Duration,
}

/// The way in which the Redis server of a stream may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// The server may restart, with its own data.
    #[default]
    Never,
    /// A replica may take the place of the server (Sentinel, Redis Cluster). Entries are then settled only in the run
    /// of the server that delivered them, which costs Redis one script call per batch. After a change of the server,
    /// the entries are read again.
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
            retry: RetryWait { first: Duration::from_millis(100), longest: RETRY_MAX },
            claim_idle: Duration::from_secs(60),
            claim_every: Duration::from_secs(5),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            failover: Failover::Never,
            replicas: None,
        }
    }
}

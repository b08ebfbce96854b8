//! Observation of batches entry by entry, for traces. Counters and lane statuses only report whole batches.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use crate::{
    entry::{Entry, EntryId},
    handler::{Outage, Outcome},
};

/// An observer of processed batches. A lane without one spends no time on it.
pub trait Observer: Debug + Send + Sync + 'static {
    /// Called once for each batch with entries after it was processed, also when a store failed. The lane waits for
    /// this call, so it must be quick and must not block.
    fn batch_processed(&self, batch: &ProcessedBatch<'_>);
}

/// A batch that a lane has processed, as far as the stores allowed.
#[derive(Clone, Copy, Debug)]
pub struct ProcessedBatch<'a> {
    /// The name of the consumer.
    pub consumer: &'a str,
    /// The way in which the entries came to the consumer.
    pub origin: Origin,
    /// The time at which the entries came.
    pub came: Instant,
    /// The entries of the batch, in stream order.
    pub entries: &'a [Entry],
    /// The result of the handler, one outcome for each entry. An outage says nothing about any single entry.
    pub outcomes: Result<&'a [Outcome], &'a Outage>,
    /// The result of acknowledging and burying; None when the handler returned an outage.
    pub settling: Option<&'a Settling>,
}

/// The way in which entries came to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Redis delivered the entries for the first time.
    New,
    /// The entries were in the pending list of the consumer, so Redis had delivered them to it before. Its handler may
    /// never have seen them.
    Pending,
    /// The consumer claimed the entries from another consumer.
    Claimed,
}

impl Origin {
    /// Returns the name of the origin, as traces have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Pending => "pending",
            Self::Claimed => "claimed",
        }
    }
}

/// The result of acknowledging and burying a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// The time span of the settling.
    pub stage: Stage,
    /// Dead entries that stay pending, because Redis refused their dead letters.
    pub unburied: Vec<EntryId>,
    /// The outage that interrupted the settling; then it is unknown which entries are settled.
    pub outage: Option<Outage>,
}

/// The time span of one step of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The time at which the step began.
    pub began: Instant,
    /// The time at which the step ended.
    pub ended: Instant,
}

impl Stage {
    /// Creates a stage from `began` until now.
    #[must_use]
    pub fn since(began: Instant) -> Self {
        Self { began, ended: Instant::now() }
    }

    /// Returns how long the step took.
    #[must_use]
    pub fn time(self) -> Duration {
        self.ended - self.began
    }
}

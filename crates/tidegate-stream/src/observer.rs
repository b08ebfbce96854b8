//! Observation of batches entry by entry, for traces. Counters and lane statuses only report whole batches.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use crate::{
    entry::{Entry, EntryId},
    handler::{Outage, Outcome},
};

/// A receiver of reports on processed batches. A consumer without an observer spends no time on reports.
pub trait Observer: Debug + Send + Sync + 'static {
    /// Called once for each batch with entries after it was processed, also when a store failed. The lane waits for
    /// this call, so it must be quick and must not block.
    fn batch_processed(&self, batch: &ProcessedBatch<'_>);
}

/// A batch that a consumer has processed, completely or until an outage of a store.
#[derive(Clone, Copy, Debug)]
pub struct ProcessedBatch<'a> {
    /// The name of the consumer that processed the batch.
    pub consumer: &'a str,
    /// The way in which the entries came to the consumer: read, claimed or retried.
    pub origin: Origin,
    /// The time at which the consumer got the entries.
    pub came: Instant,
    /// The entries of the batch, in stream order.
    pub entries: &'a [Entry],
    /// The outcomes that the handler returned, one for each entry, or the outage of a store that it returned instead.
    pub outcomes: Result<&'a [Outcome], &'a Outage>,
    /// The result of settling the batch in Redis: acknowledging its entries or moving them to the dead letters. None:
    /// the handler returned an outage.
    pub settling: Option<&'a Settling>,
}

/// The way in which entries came to a consumer: read, claimed or retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Redis delivered the entries for the first time.
    New,
    /// The entries were in the pending list of the consumer, so Redis had delivered them before. The handler may never
    /// have seen them.
    Pending,
    /// The consumer claimed the entries from another consumer.
    Claimed,
}

impl Origin {
    /// Returns the name of the origin in traces.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Pending => "pending",
            Self::Claimed => "claimed",
        }
    }
}

/// The result of settling a batch: acknowledging its entries in Redis or moving them to the dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// The start and end time of the acknowledgements and moves to the dead letters.
    pub stage: Stage,
    /// The entries that can never be done, but stay pending, because Redis refused to write their dead letters.
    pub unburied: Vec<EntryId>,
    /// The outage that interrupted the settling (acknowledging the batch). After an outage, it is unknown which entries
    /// are acknowledged.
    pub outage: Option<Outage>,
}

/// The start and end time of one stage in the processing of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The time at which the stage began.
    pub began: Instant,
    /// The time at which the stage ended.
    pub ended: Instant,
}

impl Stage {
    /// Creates a stage that began at `began` and ends now.
    #[must_use]
    pub fn since(began: Instant) -> Self {
        Self { began, ended: Instant::now() }
    }

    /// Returns how long the stage took.
    #[must_use]
    pub fn time(self) -> Duration {
        self.ended - self.began
    }
}

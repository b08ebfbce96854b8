//! Looking on while batches are processed, entry by entry, as traces do. Counters and lane statuses tell of whole batches.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use crate::{
    entry::{Entry, EntryId},
    handler::{Outage, Outcome},
};

/// Looks on. A lane that has none spends nothing on it.
pub trait Observer: Debug + Send + Sync + 'static {
    /// A batch was processed; called once for each batch with entries, also when a store failed. The lane waits for
    /// it, so it must be quick and must not block.
    fn batch_processed(&self, batch: &ProcessedBatch<'_>);
}

/// A batch that was processed, as far as the stores let it be.
#[derive(Clone, Copy, Debug)]
pub struct ProcessedBatch<'a> {
    /// Name of the consumer.
    pub consumer: &'a str,
    /// How the entries came to it.
    pub origin: Origin,
    /// When they came.
    pub came: Instant,
    /// The entries, in stream order.
    pub entries: &'a [Entry],
    /// What the handler answered, one outcome an entry. An outage says nothing of any entry.
    pub outcomes: Result<&'a [Outcome], &'a Outage>,
    /// Acknowledging and burying; None when the handler did not get that far.
    pub settling: Option<&'a Settling>,
}

/// How entries came to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Delivered for the first time.
    New,
    /// From its own pending list: delivered to it before. Its handler may never have had it.
    Pending,
    /// Taken over from another consumer.
    Claimed,
}

impl Origin {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Pending => "pending",
            Self::Claimed => "claimed",
        }
    }
}

/// How a batch was acknowledged and buried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// When.
    pub stage: Stage,
    /// Dead entries that stay pending, because Redis does not take their letters.
    pub unburied: Vec<EntryId>,
    /// What ended it too early: nobody knows what is settled then.
    pub outage: Option<Outage>,
}

/// From when to when something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its beginning.
    pub began: Instant,
    /// Its end.
    pub ended: Instant,
}

impl Stage {
    /// From `began` until now.
    #[must_use]
    pub fn since(began: Instant) -> Self {
        Self { began, ended: Instant::now() }
    }

    /// How long it took.
    #[must_use]
    pub fn time(self) -> Duration {
        self.ended - self.began
    }
}

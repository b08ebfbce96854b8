//! What the lanes of a process have done since it began.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::lane::BatchReport;

/// Counts entries, by what became of them.
#[derive(Debug, Default)]
pub struct Counters {
    batches: AtomicU64,
    done: AtomicU64,
    buried: AtomicU64,
    gone: AtomicU64,
    retried: AtomicU64,
    claimed: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Batches handled, and settled as far as Redis let us.
    pub batches: u64,
    /// Entries acknowledged as done.
    pub done: u64,
    /// Entries copied to the dead stream.
    pub buried: u64,
    /// Entries whose payload was gone.
    pub gone: u64,
    /// Times that an entry was left pending for another try.
    pub retried: u64,
    /// Entries claimed from other consumers.
    pub claimed: u64,
}

impl Counters {
    pub(crate) fn batch(&self, report: BatchReport) {
        self.batches.fetch_add(1, Relaxed);
        self.done.fetch_add(report.done as u64, Relaxed);
        self.buried.fetch_add(report.buried as u64, Relaxed);
        self.gone.fetch_add(report.gone as u64, Relaxed);
        self.retried.fetch_add(report.left as u64, Relaxed);
    }

    pub(crate) fn claimed(&self, entries: usize) {
        self.claimed.fetch_add(entries as u64, Relaxed);
    }

    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            batches: self.batches.load(Relaxed),
            done: self.done.load(Relaxed),
            buried: self.buried.load(Relaxed),
            gone: self.gone.load(Relaxed),
            retried: self.retried.load(Relaxed),
            claimed: self.claimed.load(Relaxed),
        }
    }
}

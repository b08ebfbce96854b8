//! Counters of what the lanes of a process have done since it started.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fred::interfaces::EventInterface;
use serde::Serialize;

use crate::{causes::Causes, histogram::Histogram, redis::RedisPool};

/// The counters of a process, which count entries by their outcome.
#[derive(Debug)]
pub struct Counters {
    batches: AtomicU64,
    done: AtomicU64,
    buried: AtomicU64,
    gone: AtomicU64,
    retried: AtomicU64,
    claimed: AtomicU64,
    reconnects: AtomicU64,
    causes: Arc<Causes>,
    /// The reasons. A lock is fast enough, because each burial is a round trip anyway.
    reasons: Mutex<BTreeMap<&'static str, u64>>,
    sizes: Histogram,
    reads: Histogram,
    settlings: Histogram,
}

/// The values of the entry counters of a process at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The number of batches that were handled, including batches whose acknowledgement Redis refused.
    pub batches: u64,
    /// The number of entries that were acknowledged as done.
    pub done: u64,
    /// The number of entries that were buried: moved to the stream of dead letters.
    pub buried: u64,
    /// The number of pending entries whose payload was deleted or trimmed.
    pub gone: u64,
    /// The number of times that an entry was set aside: left pending, to be retried later.
    pub retried: u64,
    /// The number of entries that were claimed from other consumers with XCLAIM.
    pub claimed: u64,
}

/// The numbers of entries of one batch, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchReport {
    /// The number of entries that were acknowledged as done.
    pub done: usize,
    /// The number of entries that were buried: moved to the stream of dead letters.
    pub buried: usize,
    /// The number of entries that were acknowledged because their payload is gone.
    pub gone: usize,
    /// The number of entries that were set aside: left pending, to be retried later.
    pub left: usize,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            batches: AtomicU64::default(),
            done: AtomicU64::default(),
            buried: AtomicU64::default(),
            gone: AtomicU64::default(),
            retried: AtomicU64::default(),
            claimed: AtomicU64::default(),
            reconnects: AtomicU64::default(),
            causes: Arc::default(),
            reasons: Mutex::default(),
            sizes: Histogram::of_sizes(),
            reads: Histogram::of_times(),
            settlings: Histogram::of_times(),
        }
    }
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

    pub(crate) fn buried(&self, reason: &'static str) {
        *self.reasons.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }

    pub(crate) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Relaxed);
    }

    /// Counts a read that brought `entries` entries and took `time`.
    pub(crate) fn read(&self, entries: usize, time: Duration) {
        self.sizes.add(entries as u64);
        self.reads.add_time(time);
    }

    pub(crate) fn settled(&self, time: Duration) {
        self.settlings.add_time(time);
    }

    /// Returns the present values of all counters.
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

    /// Returns the number of buried entries (moved to the dead letters) for each reason of burial.
    #[must_use]
    pub fn buried_by_reason(&self) -> BTreeMap<&'static str, u64> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the causes for which entries are set aside (left pending, to be retried later), with the number of
    /// entries for each cause.
    #[must_use]
    pub fn set_aside(&self) -> &Arc<Causes> {
        &self.causes
    }

    /// Returns the number of times that a connection to Redis was replaced by a new connection.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Relaxed)
    }

    /// Returns a histogram of the number of entries that each read returned. Empty reads do not count.
    #[must_use]
    pub fn sizes(&self) -> &Histogram {
        &self.sizes
    }

    /// Returns a histogram of the duration of reads that returned entries. The duration includes the wait for the first
    /// entry.
    #[must_use]
    pub fn reads(&self) -> &Histogram {
        &self.reads
    }

    /// Returns a histogram of the time that it takes to acknowledge the entries of a batch, or to move them to the dead
    /// letters.
    #[must_use]
    pub fn settlings(&self) -> &Histogram {
        &self.settlings
    }
}

/// Starts to count how many times the connections of `pool` reconnect. Blocking readers count their own reconnects.
pub fn count_reconnects(pool: impl Into<RedisPool>, counters: &Arc<Counters>) {
    for client in pool.into().0.clients() {
        let counters = Arc::clone(counters);
        // The callback ends with the client.
        client.on_reconnect(move |_server| {
            counters.reconnected();
            async { Ok(()) }
        });
    }
}

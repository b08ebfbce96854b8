//! What the lanes of a process have done since it began.

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

/// Counts entries, by what became of them.
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
    /// Behind a lock: each burial is a round trip of its own anyway.
    reasons: Mutex<BTreeMap<&'static str, u64>>,
    sizes: Histogram,
    reads: Histogram,
    settlings: Histogram,
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
    /// Times that an entry was set aside, to be tried again.
    pub retried: u64,
    /// Entries claimed from other consumers.
    pub claimed: u64,
}

/// What became of the entries of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchReport {
    /// Entries acknowledged as done.
    pub done: usize,
    /// Entries copied to the dead stream.
    pub buried: usize,
    /// Entries acknowledged because their payload is gone.
    pub gone: usize,
    /// Entries that were set aside.
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

    /// A read took so long, and brought so many entries.
    pub(crate) fn read(&self, entries: usize, time: Duration) {
        self.sizes.add(entries as u64);
        self.reads.add_time(time);
    }

    pub(crate) fn settled(&self, time: Duration) {
        self.settlings.add_time(time);
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

    /// Entries copied to the dead stream, by the reason.
    #[must_use]
    pub fn buried_by_reason(&self) -> BTreeMap<&'static str, u64> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is set aside, and what for.
    #[must_use]
    pub fn set_aside(&self) -> &Arc<Causes> {
        &self.causes
    }

    /// How often a connection to Redis was made anew.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Relaxed)
    }

    /// Entries that came with one read, where any came.
    #[must_use]
    pub fn sizes(&self) -> &Histogram {
        &self.sizes
    }

    /// How long reads took that brought entries, the wait for the first of them included.
    #[must_use]
    pub fn reads(&self) -> &Histogram {
        &self.reads
    }

    /// How long acknowledging and burying took.
    #[must_use]
    pub fn settlings(&self) -> &Histogram {
        &self.settlings
    }
}

/// Counts from now on how often a connection of `pool` is made anew. Readers count their own.
pub fn count_reconnects(pool: impl Into<RedisPool>, counters: &Arc<Counters>) {
    for client in pool.into().0.clients() {
        let counters = Arc::clone(counters);
        // Ends with the client.
        client.on_reconnect(move |_server| {
            counters.reconnected();
            async { Ok(()) }
        });
    }
}

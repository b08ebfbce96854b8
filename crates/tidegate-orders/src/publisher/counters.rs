//! Counters of the results that this process has published.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::results::ResultState;

/// Counts results by their state.
#[derive(Debug, Default)]
pub struct ResultCounters {
    published: [AtomicU64; ResultState::ALL.len()],
    remembered: AtomicU64,
    unpublished: AtomicU64,
}

impl ResultCounters {
    pub(super) fn published(&self, state: ResultState) {
        self.published[state as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn remembered(&self, results: usize) {
        self.remembered.fetch_add(results as u64, Relaxed);
        self.unpublished.fetch_add(results as u64, Relaxed);
    }

    pub(super) fn set_unpublished(&self, results: usize) {
        self.unpublished.store(results as u64, Relaxed);
    }

    /// The numbers of results that this process has published, by state.
    pub fn by_state(&self) -> impl Iterator<Item = (ResultState, u64)> {
        ResultState::ALL.into_iter().zip(&self.published).map(|(state, count)| (state, count.load(Relaxed)))
    }

    /// The number of results that Redis refused to take from this process, so that MySQL remembers them.
    #[must_use]
    pub fn all_remembered(&self) -> u64 {
        self.remembered.load(Relaxed)
    }

    /// The number of results of all processes that MySQL remembers, when this process last counted them. It counts up
    /// to 10,000.
    #[must_use]
    pub fn unpublished(&self) -> u64 {
        self.unpublished.load(Relaxed)
    }
}

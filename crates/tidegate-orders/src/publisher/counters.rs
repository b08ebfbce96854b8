//! Counters of the results that this process has published.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::results::ResultState;

/// Counters of order results by the state in the result.
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

    /// The numbers of results that this process has published, by the state of the result.
    pub fn by_state(&self) -> impl Iterator<Item = (ResultState, u64)> {
        ResultState::ALL.into_iter().zip(&self.published).map(|(state, count)| (state, count.load(Relaxed)))
    }

    /// The number of results of this process that Redis refused and MySQL stored instead.
    #[must_use]
    pub fn all_remembered(&self) -> u64 {
        self.remembered.load(Relaxed)
    }

    /// The number of results of all processes that MySQL stores for a later try, when this process last counted them.
    /// The count stops at 10,000.
    #[must_use]
    pub fn unpublished(&self) -> u64 {
        self.unpublished.load(Relaxed)
    }
}

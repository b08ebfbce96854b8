//! Counts the results that this process has announced.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::results::ResultState;

/// Counts results by their state.
#[derive(Debug, Default)]
pub struct ResultCounters {
    announced: [AtomicU64; ResultState::ALL.len()],
    remembered: AtomicU64,
    unannounced: AtomicU64,
}

impl ResultCounters {
    pub(super) fn announced(&self, state: ResultState) {
        self.announced[state as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn remembered(&self, results: usize) {
        self.remembered.fetch_add(results as u64, Relaxed);
        self.unannounced.fetch_add(results as u64, Relaxed);
    }

    pub(super) fn set_unannounced(&self, results: usize) {
        self.unannounced.store(results as u64, Relaxed);
    }

    /// Results that this process has announced, by state.
    pub fn by_state(&self) -> impl Iterator<Item = (ResultState, u64)> {
        ResultState::ALL.into_iter().zip(&self.announced).map(|(state, count)| (state, count.load(Relaxed)))
    }

    /// Results that Redis did not take from this process, so that MySQL remembers them.
    #[must_use]
    pub fn all_remembered(&self) -> u64 {
        self.remembered.load(Relaxed)
    }

    /// Results that MySQL remembers, of all processes, when this one looked last; of very many, not all are counted.
    #[must_use]
    pub fn unannounced(&self) -> u64 {
        self.unannounced.load(Relaxed)
    }
}

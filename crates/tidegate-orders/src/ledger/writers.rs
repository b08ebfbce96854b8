//! Limits how many batches a process writes at the same time.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{certification_backoff::CertificationBackoff, fault::Fault, sql::Commit};

/// The places for batches that write at the same time.
#[derive(Debug)]
pub(super) struct Writers {
    places: Semaphore,
    certification_backoff: CertificationBackoff,
}

impl Default for Writers {
    fn default() -> Self {
        Self::new(Semaphore::MAX_PERMITS)
    }
}

impl Writers {
    pub fn new(places: usize) -> Self {
        Self { places: Semaphore::new(places), certification_backoff: CertificationBackoff::default() }
    }

    /// Waits until one more transaction may write. After conflicts with writers on other nodes, the wait is longer.
    /// When the caller drops the returned permit, another transaction may write.
    pub async fn place(&self, commit: Commit) -> SemaphorePermit<'_> {
        let place = self.places.acquire().await.expect("places are never closed");
        if commit == Commit::Apart {
            self.certification_backoff.wait().await;
        }
        place
    }

    /// Records the outcome of a transaction, which had run for the time `took`.
    pub fn note<T>(&self, outcome: &Result<T, Fault>, took: Duration) {
        match outcome {
            Ok(_) => self.certification_backoff.on_commit(),
            Err(Fault::Contention(_)) => self.certification_backoff.on_conflict(took),
            Err(_) => {}
        }
    }
}

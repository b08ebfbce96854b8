//! How many batches a process writes at the same time.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{certification_backoff::CertificationBackoff, fault::Fault, sql::Commit};

/// Between two looks at a row for which a transaction waits: so many times as long as transactions take here. Others keep a row for as
/// long as a commit takes there, on a slow node longer.
const PATIENCE: u32 = 16;
const LEAST_PATIENCE: Duration = Duration::from_millis(150);
const MOST_PATIENCE: Duration = Duration::from_millis(500);

/// Places for those who write.
#[derive(Debug)]
pub(super) struct Writers {
    places: Semaphore,
    certification_backoff: CertificationBackoff,
    /// How long committed transactions took lately, in microseconds; 0: there was none.
    usual_us: AtomicU64,
}

impl Default for Writers {
    fn default() -> Self {
        Self::new(Semaphore::MAX_PERMITS)
    }
}

impl Writers {
    pub fn new(places: usize) -> Self {
        Self {
            places: Semaphore::new(places),
            certification_backoff: CertificationBackoff::default(),
            usual_us: AtomicU64::new(0),
        }
    }

    /// Waits for a place, and after conflicts with writers of other nodes for longer. It is free again where the answer is dropped.
    pub async fn place(&self, commit: Commit) -> SemaphorePermit<'_> {
        let place = self.places.acquire().await.expect("places are never closed");
        if commit == Commit::Apart {
            self.certification_backoff.wait().await;
        }
        place
    }

    /// Notes what came of a transaction that took so long.
    pub fn note<T>(&self, outcome: &Result<T, Fault>, took: Duration) {
        match outcome {
            Ok(_) => {
                self.certification_backoff.on_commit();
                self.note_usual(took);
            }
            Err(Fault::Contention(_)) => self.certification_backoff.on_conflict(took),
            Err(_) => {}
        }
    }

    fn note_usual(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).min(1_000_000);
        let usual_us = match self.usual_us.load(Relaxed) {
            0 => took_us,
            usual_us => (7 * usual_us + took_us) / 8,
        };
        self.usual_us.store(usual_us, Relaxed);
    }

    /// How long to wait between two looks at a row for which a transaction waits.
    pub fn patience(&self) -> Duration {
        match self.usual_us.load(Relaxed) {
            0 => MOST_PATIENCE,
            usual_us => (PATIENCE * Duration::from_micros(usual_us)).clamp(LEAST_PATIENCE, MOST_PATIENCE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_waited_for_by_how_long_transactions_take_here() {
        let writers = Writers::default();
        assert_eq!(writers.patience(), MOST_PATIENCE, "nothing is known yet");
        writers.note(&Ok(()), Duration::from_millis(2));
        assert_eq!(writers.patience(), LEAST_PATIENCE);
        writers.note::<()>(&Err(Fault::LockWait(String::new())), Duration::from_secs(1));
        assert_eq!(writers.patience(), LEAST_PATIENCE, "who waited in vain says nothing of the others");
        for _ in 0..40 {
            writers.note(&Ok(()), Duration::from_millis(20));
        }
        assert!((300..=320).contains(&writers.patience().as_millis()), "{:?}", writers.patience());
        writers.note(&Ok(()), Duration::from_secs(60));
        assert_eq!(writers.patience(), MOST_PATIENCE);
    }
}

//! How many batches a process writes at the same time.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use tokio::{sync::Semaphore, time::timeout};

use super::{Commit, certification_backoff::CertificationBackoff, fault::Fault};

/// A transaction that takes longer than this waits for somebody else's locks. It keeps its place no longer.
const TURN: Duration = Duration::from_millis(250);

/// What looks for those locks gets so much time: whoever comes next shall know of them, and not wait there as well.
const LOOK: Duration = Duration::from_millis(900);

/// Places for those who write.
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

    /// Runs `transaction` when there is a place. It is first polled then, so its own clock does not count the wait. Where it
    /// takes long, `look` runs beside it, before the place is free for the next.
    pub async fn run<T, L>(
        &self,
        commit: Commit,
        transaction: impl Future<Output = Result<T, Fault>>,
        look: impl Future<Output = L>,
    ) -> Result<T, Fault> {
        let place = self.places.acquire().await;
        if commit == Commit::Apart {
            self.certification_backoff.wait().await;
        }
        let began = Instant::now();
        let mut transaction = pin!(transaction);
        let outcome = match timeout(TURN, &mut transaction).await {
            Ok(outcome) => outcome,
            Err(_) => match select(transaction, pin!(timeout(LOOK, look))).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right((_, transaction)) => {
                    drop(place);
                    transaction.await
                }
            },
        };
        match &outcome {
            Ok(_) => self.certification_backoff.on_commit(),
            Err(Fault::Contention(_)) => self.certification_backoff.on_conflict(began.elapsed()),
            Err(_) => {}
        }
        outcome
    }
}

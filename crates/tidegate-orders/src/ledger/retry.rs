//! The one loop that tries a failed transaction again, and counts why it had to.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;
use tidegate_stream::{Backoff, Outage};

use super::fault::Fault;

/// Deadlocks in a row, and races for a unique key in a row, that are tried again at once.
const MOST_TRIES: usize = 6;

/// How a transaction ended, after as many tries as it was given.
#[derive(Debug)]
pub(super) enum RetryOutcome<T> {
    /// It was committed.
    Done(T),
    /// The database refuses a row, with these words.
    RowRefused(String),
    /// Somebody holds a row for longer than a lock wait.
    RowHeld,
    /// The server rolled every try back for the sake of others.
    GaveUp,
}

/// Counts how often other transactions got in the way of this process, each kind for itself.
#[derive(Debug, Default)]
pub struct Contentions {
    deadlocks: AtomicU64,
    lock_waits: AtomicU64,
    duplicates: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContentionCounts {
    /// Transactions that the server rolled back for the sake of others.
    pub deadlocks: u64,
    /// Transactions that waited for a row for longer than `mysql.lock_wait_timeout_s`.
    pub lock_waits: u64,
    /// Transactions that met a row which somebody had written since it was looked for.
    pub duplicates: u64,
}

impl Contentions {
    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> ContentionCounts {
        ContentionCounts {
            deadlocks: self.deadlocks.load(Relaxed),
            lock_waits: self.lock_waits.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
        }
    }
}

/// What has happened to one transaction so far. One kind does not use up the tries of another.
#[derive(Debug, Default)]
struct Tries {
    deadlocks: usize,
    duplicates: usize,
}

/// Runs `transaction` until it is committed, or cannot be committed now. A lock wait is not tried again: it has cost
/// enough time already.
///
/// # Errors
/// An outage.
pub(super) async fn retry<T, F>(
    contentions: &Contentions,
    transaction: impl Fn() -> F,
) -> Result<RetryOutcome<T>, Outage>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
    let mut tries = Tries::default();
    loop {
        let error = match transaction().await {
            Ok(done) => return Ok(RetryOutcome::Done(done)),
            Err(Fault::Outage(outage)) => return Err(outage),
            Err(Fault::Row(error)) => return Ok(RetryOutcome::RowRefused(error)),
            Err(Fault::LockWait(_)) => {
                contentions.lock_waits.fetch_add(1, Relaxed);
                return Ok(RetryOutcome::RowHeld);
            }
            Err(Fault::Contention(error)) => {
                contentions.deadlocks.fetch_add(1, Relaxed);
                tries.deadlocks += 1;
                if tries.deadlocks == MOST_TRIES {
                    return Ok(RetryOutcome::GaveUp);
                }
                error
            }
            // Most often another worker has just written one of the orders, and the next try finds its row. If it lasts,
            // the table has a unique key that is not ours.
            Err(Fault::Unclear(error)) => {
                contentions.duplicates.fetch_add(1, Relaxed);
                tries.duplicates += 1;
                if tries.duplicates == MOST_TRIES {
                    return Ok(RetryOutcome::RowRefused(error));
                }
                error
            }
        };
        tracing::debug!(error, ?tries, "contention: the whole batch is tried again");
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn outcome_of(mut faults: Vec<Fault>) -> (RetryOutcome<()>, ContentionCounts) {
        faults.reverse();
        let (faults, contentions) = (RefCell::new(faults), Contentions::default());
        let attempt = || async { faults.borrow_mut().pop().map_or(Ok(()), Err) };
        let outcome = retry(&contentions, attempt).await.unwrap();
        (outcome, contentions.counts())
    }

    fn deadlock() -> Fault {
        Fault::Contention("deadlock".to_owned())
    }

    fn duplicate() -> Fault {
        Fault::Unclear("duplicate".to_owned())
    }

    #[tokio::test]
    async fn deadlocks_do_not_use_up_the_tries_of_a_duplicate_key() {
        let faults = || (1..MOST_TRIES).map(|_| deadlock()).chain((1..MOST_TRIES).map(|_| duplicate()));
        let (done, counts) = outcome_of(faults().collect()).await;
        assert!(matches!(done, RetryOutcome::Done(())), "{done:?}");
        assert_eq!(counts, ContentionCounts { deadlocks: 5, lock_waits: 0, duplicates: 5 });
        let (gave_up, _) = outcome_of(faults().chain([deadlock()]).collect()).await;
        assert!(
            matches!(gave_up, RetryOutcome::GaveUp),
            "five deadlocks and one duplicate are no dead letter"
        );
        let (refused, _) = outcome_of(faults().chain([duplicate()]).collect()).await;
        assert!(matches!(refused, RetryOutcome::RowRefused(_)), "{refused:?}");
    }

    #[tokio::test]
    async fn a_lock_wait_is_not_waited_for_twice() {
        let (held, counts) = outcome_of(vec![Fault::LockWait("1205".to_owned())]).await;
        assert!(matches!(held, RetryOutcome::RowHeld), "{held:?}");
        assert_eq!(counts.lock_waits, 1);
    }
}

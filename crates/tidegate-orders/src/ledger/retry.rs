//! Decides whether a failed transaction is tried again, and counts the failures.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;
use tidegate_stream::{Backoff, Outage};

use super::fault::Fault;

/// The number of tries for deadlocks, and for races for a unique key, before the transaction fails.
const MOST_TRIES: usize = 6;

/// The reason why a transaction is not tried again.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database refuses a row, with this message.
    RowRefused(String),
    /// Another session holds a row for longer than a lock wait.
    RowHeld,
    /// The server rolled back every try in favour of other transactions.
    GaveUp,
}

/// Counters of the transactions of this process that failed because of other transactions: deadlocks, lock waits and
/// duplicate keys.
#[derive(Debug, Default)]
pub struct Contentions {
    deadlocks: AtomicU64,
    lock_waits: AtomicU64,
    duplicates: AtomicU64,
}

/// The numbers of transactions that failed because of other transactions: the values of [`Contentions`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContentionCounts {
    /// The number of transactions that the server rolled back in favour of other transactions.
    pub deadlocks: u64,
    /// The number of transactions that waited for a row lock for longer than the session allows.
    pub lock_waits: u64,
    /// The number of transactions that failed with a duplicate key, because another session had written the row after
    /// the look-up.
    pub duplicates: u64,
}

impl Contentions {
    /// Reads the current values of the counters.
    #[must_use]
    pub fn counts(&self) -> ContentionCounts {
        ContentionCounts {
            deadlocks: self.deadlocks.load(Relaxed),
            lock_waits: self.lock_waits.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
        }
    }
}

/// The failures of one transaction so far. One kind of fault does not use up the tries of another.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    contentions: &'a Contentions,
    backoff: Backoff,
    deadlocks: usize,
    duplicates: usize,
}

impl<'a> Tries<'a> {
    /// Creates the record of the attempts at one transaction, with no failure yet.
    pub fn new(contentions: &'a Contentions) -> Self {
        let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
        Self { contentions, backoff, deadlocks: 0, duplicates: 0 }
    }

    /// Waits before the next attempt at a transaction that failed with the given error. If the transaction must not be
    /// tried again, returns why. For example, a transaction that waited for a lock is not tried again, because the wait
    /// has already cost enough time.
    ///
    /// # Errors
    /// Returns the outage if the fault is one.
    pub async fn after(&mut self, fault: Fault) -> Result<Option<Failure>, Outage> {
        let contentions = self.contentions;
        let error = match fault {
            Fault::Outage(outage) => return Err(outage),
            Fault::Row(error) => return Ok(Some(Failure::RowRefused(error))),
            Fault::LockWait(_) => {
                contentions.lock_waits.fetch_add(1, Relaxed);
                return Ok(Some(Failure::RowHeld));
            }
            Fault::Contention(error) => {
                contentions.deadlocks.fetch_add(1, Relaxed);
                self.deadlocks += 1;
                if self.deadlocks == MOST_TRIES {
                    return Ok(Some(Failure::GaveUp));
                }
                error
            }
            // Most often another worker has just written one of the orders, and the next try finds its row. If it
            // lasts, the table has a unique key that is not ours.
            Fault::Unclear(error) => {
                contentions.duplicates.fetch_add(1, Relaxed);
                self.duplicates += 1;
                if self.duplicates == MOST_TRIES {
                    return Ok(Some(Failure::RowRefused(error)));
                }
                error
            }
        };
        let (deadlocks, duplicates) = (self.deadlocks, self.duplicates);
        tracing::debug!(error, deadlocks, duplicates, "a transaction had a conflict, and is tried again");
        tokio::time::sleep(self.backoff.next_wait()).await;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None: the transaction is tried again after all of these.
    async fn outcome_of(faults: Vec<Fault>) -> (Option<Failure>, ContentionCounts) {
        let contentions = Contentions::default();
        let mut tries = Tries::new(&contentions);
        let mut failure = None;
        for fault in faults {
            assert!(failure.is_none(), "tried again after {failure:?}");
            failure = tries.after(fault).await.unwrap();
        }
        (failure, contentions.counts())
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
        let (again, counts) = outcome_of(faults().collect()).await;
        assert!(again.is_none(), "{again:?}");
        assert_eq!(counts, ContentionCounts { deadlocks: 5, lock_waits: 0, duplicates: 5 });
        let (gave_up, _) = outcome_of(faults().chain([deadlock()]).collect()).await;
        assert!(
            matches!(gave_up, Some(Failure::GaveUp)),
            "five deadlocks and one duplicate are no dead letter"
        );
        let (refused, _) = outcome_of(faults().chain([duplicate()]).collect()).await;
        assert!(matches!(refused, Some(Failure::RowRefused(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn a_lock_wait_is_not_waited_for_twice() {
        let (held, counts) = outcome_of(vec![Fault::LockWait("1205".to_owned())]).await;
        assert!(matches!(held, Some(Failure::RowHeld)), "{held:?}");
        assert_eq!(counts.lock_waits, 1);
    }
}

//! How often a transaction that failed is tried again: a pure decision, and the one loop that follows it.

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

/// What came of trying.
#[derive(Debug)]
pub(super) enum Tried<T> {
    /// It is done.
    Done(T),
    /// The database refuses a row, with these words.
    Refused(String),
    /// Others were in the way each time.
    InTheWay,
    /// Somebody holds a row for longer than a lock wait.
    Held,
}

/// How often others were in the way of this process, each kind for itself.
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

/// How often what has happened to one transaction: one kind does not use up the tries of another.
#[derive(Debug, Default)]
struct Tries {
    deadlocks: usize,
    duplicates: usize,
}

/// Tries until it is done, or not to be done now. A lock wait is not tried again: it has taken its time already.
///
/// # Errors
/// An outage.
pub(super) async fn insist<T, F>(
    contentions: &Contentions,
    attempt: impl Fn() -> F,
) -> Result<Tried<T>, Outage>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
    let mut tries = Tries::default();
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(Tried::Done(done)),
            Err(Fault::Outage(outage)) => return Err(outage),
            Err(Fault::Row(error)) => return Ok(Tried::Refused(error)),
            Err(Fault::Locked(_)) => {
                contentions.lock_waits.fetch_add(1, Relaxed);
                return Ok(Tried::Held);
            }
            Err(Fault::Contention(error)) => {
                contentions.deadlocks.fetch_add(1, Relaxed);
                tries.deadlocks += 1;
                if tries.deadlocks == MOST_TRIES {
                    return Ok(Tried::InTheWay);
                }
                error
            }
            // Most often somebody has written one of them just now, and the next look finds it. Should it last, it is a
            // unique key of somebody else's.
            Err(Fault::Doubtful(error)) => {
                contentions.duplicates.fetch_add(1, Relaxed);
                tries.duplicates += 1;
                if tries.duplicates == MOST_TRIES {
                    return Ok(Tried::Refused(error));
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

    async fn tried(mut faults: Vec<Fault>) -> (Tried<()>, ContentionCounts) {
        faults.reverse();
        let (faults, contentions) = (RefCell::new(faults), Contentions::default());
        let attempt = || async { faults.borrow_mut().pop().map_or(Ok(()), Err) };
        let tried = insist(&contentions, attempt).await.unwrap();
        (tried, contentions.counts())
    }

    fn deadlock() -> Fault {
        Fault::Contention("deadlock".to_owned())
    }

    fn duplicate() -> Fault {
        Fault::Doubtful("duplicate".to_owned())
    }

    #[tokio::test]
    async fn deadlocks_do_not_use_up_the_tries_of_a_duplicate_key() {
        let faults = || (1..MOST_TRIES).map(|_| deadlock()).chain((1..MOST_TRIES).map(|_| duplicate()));
        let (done, counts) = tried(faults().collect()).await;
        assert!(matches!(done, Tried::Done(())), "{done:?}");
        assert_eq!(counts, ContentionCounts { deadlocks: 5, lock_waits: 0, duplicates: 5 });
        let (in_the_way, _) = tried(faults().chain([deadlock()]).collect()).await;
        assert!(matches!(in_the_way, Tried::InTheWay), "five deadlocks and one duplicate are no dead letter");
        let (refused, _) = tried(faults().chain([duplicate()]).collect()).await;
        assert!(matches!(refused, Tried::Refused(_)), "{refused:?}");
    }

    #[tokio::test]
    async fn a_lock_wait_is_not_waited_for_twice() {
        let (held, counts) = tried(vec![Fault::Locked("1205".to_owned())]).await;
        assert!(matches!(held, Tried::Held), "{held:?}");
        assert_eq!(counts.lock_waits, 1);
    }
}

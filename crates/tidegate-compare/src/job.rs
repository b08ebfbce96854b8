//! What long work is given: when to stop, and whom to tell how far it is.

use std::fmt::Debug;

use tidegate_stream::HeldLease;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What work is given.
#[derive(Debug)]
pub struct Job {
    /// Cancelled when the caller wants an end. For waits between steps, never around a step; see [`Job::is_stopped`].
    pub stop: CancellationToken,
    /// How far it is; to be told its total before it shows.
    pub progress: Box<dyn Progress>,
}

impl Job {
    /// Whether to end after the step in progress, as stopped. Ask before each step, when it is known that there
    /// is one.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Stops the work as a signal does, after the step in progress, if `lease` is lost before the guard is dropped.
    pub fn stop_when_lost(&self, lease: &HeldLease) -> DropGuard {
        let (lost, stop, over) = (lease.lost().clone(), self.stop.clone(), CancellationToken::new());
        let guard = over.clone().drop_guard();
        tokio::spawn(async move {
            if over.run_until_cancelled(lost.cancelled()).await.is_some() {
                stop.cancel();
            }
        });
        guard
    }
}

/// Who wants to know how far long work is.
pub trait Progress: Debug + Send + Sync {
    /// There are so many to do, and of what: `entries`.
    fn expect(&self, total: u64, what: &'static str);

    /// So many more are done.
    fn add(&self, done: u64);

    /// Something worth a line of its own.
    fn say(&self, line: &str);
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn expect(&self, _total: u64, _what: &'static str) {}

    fn add(&self, _done: u64) {}

    fn say(&self, _line: &str) {}
}

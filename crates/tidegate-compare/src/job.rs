//! The job of a long task: its stop signal and its progress display.

use std::fmt::Debug;

use tidegate_stream::LeaseGuard;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The stop signal and the progress display of a long task.
#[derive(Debug)]
pub struct Job {
    /// Cancelled when the caller wants the task to end. Use it for waits between steps, never around a step; see
    /// [`Job::is_stopped`].
    pub stop: CancellationToken,
    /// The display of the progress. It shows nothing before it knows the total.
    pub progress: Box<dyn Progress>,
}

impl Job {
    /// Whether to end after the step in progress, as stopped. Check this before each step, when it is known that there
    /// is one.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Stops the task as a signal does, after the step in progress, if `lease` is lost before the guard is dropped.
    pub fn stop_when_lost(&self, lease: &LeaseGuard) -> DropGuard {
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

/// A display of the progress of a long task.
pub trait Progress: Debug + Send + Sync {
    /// Sets the total number of steps, and the name of the things that are counted, such as `entries`.
    fn expect(&self, total: u64, what: &'static str);

    /// Adds a number of completed steps.
    fn add(&self, done: u64);

    /// Shows a message in a line of its own.
    fn say(&self, line: &str);
}

/// A progress display that shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn expect(&self, _total: u64, _what: &'static str) {}

    fn add(&self, _done: u64) {}

    fn say(&self, _line: &str) {}
}

//! The stop signal and the progress display of a long-running task.

use std::fmt::Debug;

use tidegate_stream::LeaseGuard;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The stop signal and the progress display that a caller gives to a long task.
#[derive(Debug)]
pub struct Job {
    /// The token that is cancelled when the caller wants the task to end. A task may stop waiting because of this
    /// token, but must not interrupt a step; see [`Job::is_stopped`].
    pub stop: CancellationToken,
    /// The progress display of the task, which shows nothing before the total is known.
    pub progress: Box<dyn Progress>,
}

impl Job {
    /// Whether the task must end now. The task asks this before each step, and never interrupts a step.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Stops the task after its current step, as a signal does, if `lease` is lost. This protection ends when the
    /// returned guard is dropped.
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

/// A progress display of a long-running task.
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

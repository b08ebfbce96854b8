//! The background tasks of a worker, which run until it stops. All of them share the rules for start, pauses, failures
//! and stop.

use std::{pin::Pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::fleet_lease::FleetLease;
use crate::on_heap::on_heap;

/// The time at which a background task runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// The task runs again after this pause.
    After(Duration),
    /// The task runs again after this pause. This worker had nothing to do, so earlier failures still count.
    Skipped(Duration),
    /// The task runs again at once, because there may be more to do.
    AtOnce,
    /// The task never runs again.
    Done,
}

/// The future of one run of a background task.
pub type Run<'a> = Pin<Box<dyn Future<Output = anyhow::Result<NextRun>> + 'a>>;

/// The name of a background task, and the pauses between its runs.
#[derive(Clone, Copy)]
pub struct Routine {
    /// The action of the background task as a verb phrase. After a failed run, the log says `did not NAME`.
    pub name: &'static str,
    /// The pause before the first run of the task.
    pub first_pause: Duration,
    /// The usual pause between two runs of the task, also if another worker runs the task.
    pub every: Duration,
    /// The pause of the task after a failed run.
    pub after_failure: Duration,
}

impl Routine {
    /// Creates the name and the pauses of a task, with the same pause before the first run, between runs and after a
    /// failure.
    pub fn new(name: &'static str, every: Duration) -> Self {
        Self { name, first_pause: every, every, after_failure: every }
    }

    /// Returns a copy of this routine without the first pause: the task runs for the first time at once.
    pub fn without_first_pause(self) -> Self {
        Self { first_pause: Duration::ZERO, ..self }
    }
}

/// A background task that runs repeatedly. A stop of the worker interrupts a run, so another worker or the next process
/// must be able to repeat the run.
pub trait Task {
    /// The name and the pauses of the task.
    fn routine(&self) -> Routine;

    /// Does the work of one run.
    fn run_once(&mut self) -> Run<'_>;

    /// Handles a failed run. `failures` counts the failed runs in a row, including this one.
    fn failed(&mut self, _error: &str, _failures: u32) {}

    /// Takes note that another worker holds the lease, or that Redis does not answer.
    fn is_not_leased(&mut self) {}
}

/// A background task that consists of a routine (name and pauses) and a function.
pub struct Periodic<W>(pub Routine, pub W);

impl<W: AsyncFnMut() -> anyhow::Result<NextRun>> Task for Periodic<W> {
    fn routine(&self) -> Routine {
        self.0
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(|| (self.1)())
    }
}

/// A background task of a worker, with the lease and the condition for its runs.
pub struct Background {
    task: Box<dyn Task>,
    lease: Option<FleetLease>,
    condition: Option<watch::Receiver<bool>>,
}

impl Background {
    /// Creates a background task that every worker runs from its start.
    pub fn new(task: impl Task + 'static) -> Self {
        Self { task: Box::new(task), lease: None, condition: None }
    }

    /// Makes only one worker of a fleet run the task at a time: the worker that holds this lease.
    pub fn under(self, lease: FleetLease) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Lets the first run of the task wait until `condition` becomes true.
    pub fn when(self, condition: watch::Receiver<bool>) -> Self {
        Self { condition: Some(condition), ..self }
    }

    async fn run(mut self, stop: &CancellationToken) {
        stop.run_until_cancelled(self.repeat()).await;
        if let Some(lease) = self.lease {
            on_heap(|| lease.end()).await;
        }
    }

    async fn repeat(&mut self) {
        if let Some(condition) = &mut self.condition {
            // The sender is a part of the worker, and lives longer.
            let _ = condition.wait_for(|is_met| *is_met).await;
        }
        let (mut pause, mut failures) = (self.task.routine().first_pause, 0);
        loop {
            sleep(pause).await;
            pause = match self.run_once(&mut failures).await {
                NextRun::After(pause) | NextRun::Skipped(pause) => pause,
                NextRun::AtOnce => Duration::ZERO,
                NextRun::Done => return,
            };
        }
    }

    async fn run_once(&mut self, failures: &mut u32) -> NextRun {
        let Routine { name, every, after_failure, .. } = self.task.routine();
        if let Some(lease) = &mut self.lease
            && !on_heap(|| lease.hold()).await
        {
            self.task.is_not_leased();
            return NextRun::Skipped(every);
        }
        match self.task.run_once().await {
            Ok(skipped @ NextRun::Skipped(_)) => skipped,
            Ok(next) => {
                *failures = 0;
                next
            }
            Err(error) => {
                let error = format!("{error:#}");
                *failures += 1;
                tracing::debug!(error, "did not {name}");
                self.task.failed(&error, *failures);
                NextRun::After(after_failure)
            }
        }
    }
}

/// Runs all background tasks until `stop` is cancelled.
pub async fn run(tasks: Vec<Background>, stop: &CancellationToken) {
    let mut running: FuturesUnordered<_> = tasks.into_iter().map(|task| task.run(stop)).collect();
    while running.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, rc::Rc};

    use super::*;

    /// A task that returns the given answers and records the failures that it gets.
    struct Scripted {
        answers: VecDeque<anyhow::Result<NextRun>>,
        failures: Rc<RefCell<Vec<u32>>>,
    }

    impl Task for Scripted {
        fn routine(&self) -> Routine {
            Routine::new("answer", Duration::ZERO)
        }

        fn run_once(&mut self) -> Run<'_> {
            on_heap(async || self.answers.pop_front().expect("no run after the last answer"))
        }

        fn failed(&mut self, _error: &str, failures: u32) {
            self.failures.borrow_mut().push(failures);
        }
    }

    #[tokio::test]
    async fn failures_count_until_a_run_has_done_something_and_nothing_runs_after_done() {
        let (error, at_once) = (|| Err(anyhow::anyhow!("away")), Duration::ZERO);
        let skipped = Ok(NextRun::Skipped(at_once));
        let answers = [error(), skipped, error(), Ok(NextRun::After(at_once)), error(), Ok(NextRun::AtOnce)];
        let answers = answers.into_iter().chain([error(), Ok(NextRun::Done)]).collect();
        let failures = Rc::default();
        let task = Scripted { answers, failures: Rc::clone(&failures) };
        run(vec![Background::new(task)], &CancellationToken::new()).await;
        assert_eq!(*failures.borrow(), [1, 2, 1, 1]);
    }

    #[tokio::test]
    async fn a_task_whose_condition_is_not_met_never_runs_and_ends_at_the_stop() {
        let (condition, stop) = (watch::Sender::new(false), CancellationToken::new());
        let never =
            Periodic(Routine::new("run", Duration::ZERO), async || panic!("its condition is not met"));
        let task = Background::new(never).when(condition.subscribe());
        stop.cancel();
        run(vec![task], &stop).await;
    }
}

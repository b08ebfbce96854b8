//! The tasks that run beside the lanes of a worker until it stops. Start, pauses, failures and stop are the same for all of them.

use std::{pin::Pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::fleet_lease::FleetLease;
use crate::on_heap::on_heap;

/// When a task runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// After this pause.
    After(Duration),
    /// After this pause. There was nothing to do for this worker, so failures before it still count.
    Skipped(Duration),
    /// At once: there may be more to do.
    AtOnce,
    /// Never.
    Done,
}

/// One run of a task. It takes memory only while it lasts.
pub type Run<'a> = Pin<Box<dyn Future<Output = anyhow::Result<NextRun>> + 'a>>;

/// The name and the pauses of a task.
#[derive(Clone, Copy)]
pub struct Routine {
    /// The action of a run, as a verb phrase. If a run fails, the log says `did not NAME`.
    pub name: &'static str,
    /// The pause before the first run.
    pub first_pause: Duration,
    /// The usual pause between two runs, also while another worker holds the lease.
    pub every: Duration,
    /// The pause after a run that failed.
    pub after_failure: Duration,
}

impl Routine {
    /// One pause, also before the first run and after a failure.
    pub fn new(name: &'static str, every: Duration) -> Self {
        Self { name, first_pause: every, every, after_failure: every }
    }

    /// The same without a pause before the first run.
    pub fn without_first_pause(self) -> Self {
        Self { first_pause: Duration::ZERO, ..self }
    }
}

/// A task that runs now and then. The stop cuts a run off, so another worker, or the next process, must be able to do it again.
pub trait Task {
    /// Its name and its pauses.
    fn routine(&self) -> Routine;

    /// Does what there is to do.
    fn run_once(&mut self) -> Run<'_>;

    /// Takes note of a run that failed: the last of so many in a row.
    fn failed(&mut self, _error: &str, _failures: u32) {}

    /// Takes note that another worker holds the lease, or that Redis does not answer.
    fn is_not_leased(&mut self) {}
}

/// A task that has no more to say than what it does.
pub struct Periodic<W>(pub Routine, pub W);

impl<W: AsyncFnMut() -> anyhow::Result<NextRun>> Task for Periodic<W> {
    fn routine(&self) -> Routine {
        self.0
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(|| (self.1)())
    }
}

/// A task of the list of a worker, and when the worker may run it.
pub struct Background {
    task: Box<dyn Task>,
    lease: Option<FleetLease>,
    condition: Option<watch::Receiver<bool>>,
}

impl Background {
    /// A task that every worker runs from its start on.
    pub fn new(task: impl Task + 'static) -> Self {
        Self { task: Box::new(task), lease: None, condition: None }
    }

    /// The same in one worker of a fleet at a time.
    pub fn under(self, lease: FleetLease) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// The same from the moment on at which `condition` is true.
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

/// Runs all tasks until `stop`.
pub async fn run(tasks: Vec<Background>, stop: &CancellationToken) {
    let mut running: FuturesUnordered<_> = tasks.into_iter().map(|task| task.run(stop)).collect();
    while running.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, rc::Rc};

    use super::*;

    /// A task that answers as it is told, and notes the failures that it hears of.
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

//! The task that lets unpaid orders expire, in one worker of a fleet at a time.

use std::time::Duration;

use tidegate_operations::expirations::{SweepResult, Sweeper, WENT_BACK};
use tidegate_orders::RestoreState;

use super::{NextRun, Routine, Run, Task, on_heap};

/// The longest pause between two checks. It is short, because an operator may set a shorter limit meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The pause while a store is away, or while no order may expire.
const WAIT: Duration = Duration::from_secs(1);
/// The number of failed runs in a row before a warning.
const FAILURES_BEFORE_WARNING: u32 = 10;

/// The background task that ends unpaid orders after their time to pay. If a run is interrupted, the next worker
/// repeats the run.
pub struct Expire {
    sweeper: Sweeper,
    logged: Option<SweepResult>,
    failures: u32,
}

impl Expire {
    pub fn new(sweeper: Sweeper) -> Self {
        Self { sweeper, logged: None, failures: 0 }
    }
}

impl Task for Expire {
    fn routine(&self) -> Routine {
        let first_pause = Duration::ZERO;
        Routine { name: "look for unpaid orders", first_pause, every: LOOK_EVERY, after_failure: WAIT }
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(async || {
            let pass = self.sweeper.pass().await?;
            if is_news(&pass, &mut self.logged, &mut self.failures) {
                tell(&pass);
            }
            Ok(next_after(&pass))
        })
    }

    /// The lanes log an outage, but not while they have nothing to do, and not a missing right that only this task
    /// needs.
    fn failed(&mut self, error: &str, failures: u32) {
        self.failures = failures;
        if failures == FAILURES_BEFORE_WARNING {
            tracing::warn!(error, "unpaid orders do not expire: Redis or MySQL refuses, or does not answer");
        }
    }
}

fn next_after(pass: &SweepResult) -> NextRun {
    match pass {
        SweepResult::Appended(_) => NextRun::AtOnce,
        SweepResult::NothingDue(next_in) => NextRun::After(LOOK_EVERY.min(*next_in)),
        SweepResult::NoLimits | SweepResult::Full => NextRun::After(LOOK_EVERY),
        SweepResult::WentBack(_) | SweepResult::OlderWorkers(_) => NextRun::After(WAIT),
    }
}

/// Whether the result belongs in the log: orders stop expiring for a reason, or expire again. `failures` is the number
/// of failed runs in a row before this one; it is reset.
fn is_news(pass: &SweepResult, logged: &mut Option<SweepResult>, failures: &mut u32) -> bool {
    let was_warned = std::mem::take(failures) >= FAILURES_BEFORE_WARNING;
    let now = matches!(pass, SweepResult::WentBack(_) | SweepResult::OlderWorkers(_)).then(|| pass.clone());
    let is_news = *logged != now;
    *logged = now;
    is_news || was_warned
}

fn tell(pass: &SweepResult) {
    match pass {
        SweepResult::WentBack(state) => {
            let store = if *state == RestoreState::MySqlWentBack { "MySQL" } else { "Redis" };
            tracing::error!(
                store,
                "a store went back in time, to older data: no unpaid order expires until an operator types \
                 `tidegate resume --expirations`; see {WENT_BACK}"
            );
        }
        SweepResult::OlderWorkers(workers) => tracing::warn!(
            workers = workers.join(", "),
            "no unpaid order expires while workers of an older version live: they do not know expiry events"
        ),
        _ => tracing::info!("unpaid orders expire again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_orders_from_expiring_is_told_once_and_so_is_its_end() {
        let back = SweepResult::WentBack(RestoreState::RedisWentBack);
        let older = SweepResult::OlderWorkers(vec!["a".into()]);
        let passes = [
            SweepResult::NoLimits,
            SweepResult::Appended(3),
            back.clone(),
            back,
            older,
            SweepResult::Full,
            SweepResult::Full,
        ];
        let mut logged = None;
        let news: Vec<bool> = passes.iter().map(|pass| is_news(pass, &mut logged, &mut 0)).collect();
        assert_eq!(news, [false, false, true, false, true, true, false]);
    }

    #[test]
    fn the_end_of_failures_is_told_where_they_were() {
        let mut failures = FAILURES_BEFORE_WARNING - 1;
        assert!(!is_news(&SweepResult::Full, &mut None, &mut failures), "too few to be told of");
        failures = FAILURES_BEFORE_WARNING;
        assert!(is_news(&SweepResult::Full, &mut None, &mut failures));
        assert_eq!(failures, 0);
    }

    #[test]
    fn what_is_due_soon_is_not_waited_for_longer_than_that() {
        assert_eq!(next_after(&SweepResult::Appended(1)), NextRun::AtOnce);
        let soon = Duration::from_millis(7);
        assert_eq!(next_after(&SweepResult::NothingDue(soon)), NextRun::After(soon));
        assert_eq!(
            next_after(&SweepResult::NothingDue(Duration::from_secs(900))),
            NextRun::After(LOOK_EVERY)
        );
    }
}

//! The tasks that load vouchers, and that carry changed windows from MySQL to Redis.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tidegate_operations::calendar::{CarryPass, WarmUp, WarmUpPass, WindowCarrier, WindowChange};
use tidegate_orders::VoucherId;

use super::{NextRun, Routine, Run, Task, on_heap};

/// The pause between two runs. A changed window is in Redis within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The number of failed runs in a row before a warning.
const FAILURES_BEFORE_WARNING: u32 = 5;

/// Creates the task that carries changes of sale windows from MySQL to Redis.
pub fn carry_windows(carrier: WindowCarrier) -> impl Task {
    CarryTask { carrier }
}

struct CarryTask {
    carrier: WindowCarrier,
}

impl Task for CarryTask {
    fn routine(&self) -> Routine {
        Routine::new("carry changed windows", LOOK_EVERY).without_first_pause()
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(async || {
            let CarryPass { changes, failed } = self.carrier.pass().await?;
            changes.iter().for_each(tell);
            failed.map_or(Ok(NextRun::After(LOOK_EVERY)), Err)
        })
    }

    fn failed(&mut self, error: &str, failures: u32) {
        warn_of("sale windows that change in MySQL are not carried to Redis", error, failures);
    }
}

/// The lanes log an outage, but not a missing right or a row that only this task needs.
fn warn_of(what: &str, error: &str, failures: u32) {
    if failures == FAILURES_BEFORE_WARNING {
        tracing::warn!(error, "a task of the calendar fails: {what}; see docs/calendar.md");
    }
}

fn tell(WindowChange { voucher, window, refusal }: &WindowChange) {
    match refusal {
        None => tracing::info!(%voucher, %window, "carried the changed window of a sale from MySQL to Redis"),
        Some(why) => tracing::warn!(
            %voucher,
            %window,
            "Redis keeps the window of a sale that changed in MySQL: {why}. To set both windows, type `tidegate voucher \
             schedule`; see docs/calendar.md"
        ),
    }
}

/// Creates the task that loads vouchers before their sales begin. `not_loaded` gets the number of vouchers that
/// should be on sale and have no stock in Redis.
pub fn warm_up(warm_up: WarmUp, not_loaded: Arc<AtomicU64>) -> impl Task {
    WarmUpTask { warm_up, not_loaded, told: BTreeMap::new() }
}

struct WarmUpTask {
    warm_up: WarmUp,
    not_loaded: Arc<AtomicU64>,
    /// The reasons in the log, so that each is logged once.
    told: BTreeMap<VoucherId, String>,
}

impl Task for WarmUpTask {
    fn routine(&self) -> Routine {
        Routine::new("load vouchers that begin soon", LOOK_EVERY).without_first_pause()
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(async || {
            let WarmUpPass { loaded, failed, missing } = self.warm_up.pass().await?;
            self.not_loaded.store(missing, Relaxed);
            for (voucher, units) in loaded {
                tracing::info!(%voucher, units, "loaded a voucher whose sale begins soon, or changed its stock");
            }
            let problems: BTreeMap<VoucherId, String> = failed.into_iter().collect();
            for (voucher, why) in
                problems.iter().filter(|(voucher, why)| self.told.get(voucher) != Some(*why))
            {
                tracing::warn!(%voucher, "a voucher is not loaded as MySQL says: {why}; see docs/calendar.md");
            }
            self.told = problems;
            Ok(NextRun::After(LOOK_EVERY))
        })
    }

    fn failed(&mut self, error: &str, failures: u32) {
        self.not_loaded.store(0, Relaxed);
        warn_of("vouchers that begin soon are not loaded", error, failures);
    }

    fn is_not_leased(&mut self) {
        self.not_loaded.store(0, Relaxed);
    }
}

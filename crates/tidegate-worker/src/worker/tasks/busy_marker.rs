//! The tasks that mark sales as busy when the fleet is too far behind, and that remove old marks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tidegate_operations::busy_marker::{BusyMarker, BusyPass};
use tidegate_orders::{LimitedLog, VoucherId};

use super::{NextRun, Periodic, Routine, Run, Task, on_heap};

/// The pause between two checks of the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The pause between two checks for old marks that no worker renews.
const FORGET_EVERY: Duration = Duration::from_secs(10);
/// The number of failed runs in a row before a warning: marks of sales that need workers last that long.
const FAILURES_BEFORE_WARNING: u32 = 6;

/// The background task that checks how far the workers are behind, and marks sales as busy. Busy sales refuse orders.
pub struct MarkBusy {
    pub marker: BusyMarker,
    /// Whether this worker's busy marks make sales refuse orders now. Buyers then get the reply 11 (busy).
    pub busy: Arc<AtomicBool>,
    pub log: Arc<LimitedLog>,
}

impl Task for MarkBusy {
    fn routine(&self) -> Routine {
        Routine::new("check the backlog", LOOK_EVERY).without_first_pause()
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(async || {
            let pass = self.marker.pass().await?;
            tell_left_out(&self.log, &pass.sales.left_out);
            tell(&pass, self.busy.swap(pass.is_busy, Relaxed));
            Ok(NextRun::After(LOOK_EVERY))
        })
    }

    /// The lanes log an outage, but not a missing right that only the marks need.
    fn failed(&mut self, error: &str, failures: u32) {
        self.busy.store(self.marker.is_refusing(), Relaxed);
        if failures == FAILURES_BEFORE_WARNING {
            tracing::warn!(
                error,
                "busy marks of sales are not renewed: Redis refuses, or does not answer. With gate.needs_workers, buyers \
                 get the reply 11 (busy) until that works again; see docs/runbook/busy-does-not-end.md"
            );
        }
    }

    fn is_not_leased(&mut self) {
        self.busy.store(false, Relaxed);
    }
}

/// Creates the task that removes old busy marks from sales if the settings no longer use them. Every worker runs this
/// task.
pub fn forget_marks(marker: BusyMarker, log: Arc<LimitedLog>) -> impl Task {
    let forget = async move || {
        match marker.forget_need().await {
            Ok(marks) => tell_left_out(&log, &marks.left_out),
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "could not remove all busy marks of sales")
            }
        }
        Ok(NextRun::After(FORGET_EVERY))
    };
    Periodic(Routine::new("remove old marks", FORGET_EVERY).without_first_pause(), forget)
}

/// Creates a log with a limited number of lines, for vouchers that cannot be marked as busy.
pub fn limited_log() -> Arc<LimitedLog> {
    Arc::new(LimitedLog::new(
        "more vouchers cannot be marked as busy: earlier log lines name the first vouchers",
    ))
}

fn tell_left_out(log: &Arc<LimitedLog>, vouchers: &[VoucherId]) {
    for voucher in vouchers {
        if log.is_shown("voucher_is_no_hash") {
            tracing::warn!(
                %voucher,
                "a voucher cannot be marked as busy, because its key in Redis is no hash; other sales are marked. See \
                 docs/runbook/busy-does-not-end.md"
            );
        }
    }
}

fn tell(BusyPass { is_busy, oldest_unread, sales }: &BusyPass, was_busy: bool) {
    let oldest_unread_ms = u64::try_from(oldest_unread.as_millis()).unwrap_or(u64::MAX);
    match (was_busy, is_busy) {
        (false, true) => tracing::warn!(
            oldest_unread_ms,
            sales = sales.changed,
            "busy: orders come faster than they are written, so buyers get the reply 11 until the workers catch up"
        ),
        (true, false) => tracing::info!(oldest_unread_ms, "not busy any more: orders are admitted again"),
        _ => {}
    }
}

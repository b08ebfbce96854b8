//! Marks sales as busy when the fleet is too far behind, in one worker of a fleet at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tidegate_operations::brake::{BrakeSettings, Braked, Braker};
use tidegate_orders::{LimitedLog, VoucherId};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::fleet_lease::FleetLease;

/// Between two looks at the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks whether sales have marks of before, which nobody renews.
const FORGET_EVERY: Duration = Duration::from_secs(10);
/// So many passes in a row must have failed before somebody is told: marks of sales that need workers last as long.
const FAILURES_BEFORE_WARNING: u32 = 6;

/// Looks at the backlog until `stop`. `busy` says meanwhile whether buyers hear 11 for what this worker marks.
pub async fn brake(
    settings: BrakeSettings,
    mut braker: Braker,
    mut lease: FleetLease,
    busy: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    let log =
        Arc::new(LimitedLog::new("more vouchers cannot be marked as busy: the lines above name the first"));
    let (mut forgotten, mut failures) = (None::<Instant>, 0);
    stop.run_until_cancelled(async {
        loop {
            if forgotten.is_none_or(|at| at.elapsed() >= FORGET_EVERY) {
                forgotten = Some(Instant::now());
                match braker.forget_need().await {
                    Ok(marks) => tell_left_out(&log, &marks.left_out),
                    Err(error) => {
                        tracing::debug!(error = format!("{error:#}"), "marks of sales may be left");
                    }
                }
            }
            if !settings.is_used() {
                sleep(FORGET_EVERY).await;
                continue;
            }
            if lease.hold().await {
                match braker.pass().await {
                    Ok(braked) => {
                        failures = 0;
                        tell_left_out(&log, &braked.sales.left_out);
                        tell(&braked, busy.swap(braked.is_busy, Relaxed));
                    }
                    Err(error) => {
                        failures += 1;
                        busy.store(braker.is_refusing(), Relaxed);
                        tell_failure(&error, failures);
                    }
                }
            } else {
                busy.store(false, Relaxed);
            }
            sleep(LOOK_EVERY).await;
        }
    })
    .await;
    lease.end().await;
}

/// Lanes log an outage, but not a right that is missing for the marks only.
fn tell_failure(error: &anyhow::Error, failures: u32) {
    tracing::debug!(error = format!("{error:#}"), "did not look at the backlog");
    if failures == FAILURES_BEFORE_WARNING {
        tracing::warn!(
            error = format!("{error:#}"),
            "marks of sales are not renewed: Redis refuses, or is away. With gate.needs_workers, buyers hear 11 until the marks \
             are renewed; see docs/runbook/busy-does-not-end.md"
        );
    }
}

fn tell_left_out(log: &Arc<LimitedLog>, vouchers: &[VoucherId]) {
    for voucher in vouchers {
        if log.is_shown("voucher_is_no_hash") {
            tracing::warn!(
                %voucher,
                "a voucher cannot be marked as busy, because its key in Redis is no hash; the other sales are marked. See \
                 docs/runbook/busy-does-not-end.md"
            );
        }
    }
}

fn tell(Braked { is_busy, oldest_unread, sales }: &Braked, was_busy: bool) {
    let oldest_unread_ms = u64::try_from(oldest_unread.as_millis()).unwrap_or(u64::MAX);
    match (was_busy, is_busy) {
        (false, true) => tracing::warn!(
            oldest_unread_ms,
            sales = sales.changed,
            "busy: orders come faster than they are written, so buyers hear 11 until it is better"
        ),
        (true, false) => tracing::info!(oldest_unread_ms, "not busy any more: orders are admitted again"),
        _ => {}
    }
}

//! Marks sales as busy when the fleet is too far behind, in one worker of a fleet at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tidegate_operations::brake::{BrakeSettings, Braked, Braker};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::fleet_lease::FleetLease;

/// Between two looks at the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks whether sales have marks of before, which nobody renews.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// Looks at the backlog until `stop`. `busy` says meanwhile whether this worker marks sales as busy.
pub async fn brake(
    settings: BrakeSettings,
    mut braker: Braker,
    mut lease: FleetLease,
    busy: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    let mut forgotten: Option<Instant> = None;
    stop.run_until_cancelled(async {
        loop {
            if forgotten.is_none_or(|at| at.elapsed() >= FORGET_EVERY) {
                forgotten = Some(Instant::now());
                if let Err(error) = braker.forget_need().await {
                    tracing::debug!(error = format!("{error:#}"), "marks of sales may be left");
                }
            }
            if !settings.is_used() {
                sleep(FORGET_EVERY).await;
                continue;
            }
            if lease.hold().await {
                match braker.pass().await {
                    Ok(braked) => tell(braked, busy.swap(braked.is_busy, Relaxed)),
                    // Lanes log an outage.
                    Err(error) => {
                        tracing::debug!(error = format!("{error:#}"), "did not look at the backlog")
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

fn tell(Braked { is_busy, oldest_unread, sales }: Braked, was_busy: bool) {
    let oldest_unread_ms = u64::try_from(oldest_unread.as_millis()).unwrap_or(u64::MAX);
    match (was_busy, is_busy) {
        (false, true) => tracing::warn!(
            oldest_unread_ms,
            sales,
            "busy: orders come faster than they are written, so buyers hear 11 until it is better"
        ),
        (true, false) => tracing::info!(oldest_unread_ms, "not busy any more: orders are admitted again"),
        _ => {}
    }
}

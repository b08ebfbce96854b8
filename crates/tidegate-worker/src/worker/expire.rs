//! Lets unpaid orders expire, in one worker of a fleet at a time.

use std::time::Duration;

use tidegate_operations::expirations::{Pass, Sweeper, WENT_BACK};
use tidegate_orders::MarkState;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::fleet_lease::FleetLease;

/// Between two looks, at most: a shorter limit may have come meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks while a store is away, or nothing may expire.
const WAIT: Duration = Duration::from_secs(1);
/// So many passes in a row must have failed before somebody is told.
const FAILURES_BEFORE_WARNING: u32 = 10;

/// Looks for what is due until `stop`. A pass that is cut off is done again by whoever looks next.
pub async fn expire(mut sweeper: Sweeper, mut lease: FleetLease, stop: CancellationToken) {
    let (mut logged, mut failures) = (None, 0);
    stop.run_until_cancelled(async {
        loop {
            if !lease.hold().await {
                sleep(LOOK_EVERY).await;
                continue;
            }
            match sweeper.pass().await {
                Ok(pass) => {
                    let wait = wait_after(&pass);
                    if is_news(&pass, &mut logged, &mut failures) {
                        tell(&pass);
                    }
                    sleep(wait).await;
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(error = format!("{error:#}"), "did not look for unpaid orders");
                    // Lanes log an outage, but not while they have nothing to do, nor a right that is missing here only.
                    if failures == FAILURES_BEFORE_WARNING {
                        tracing::warn!(
                            error = format!("{error:#}"),
                            "unpaid orders do not expire: a store refuses, or is away"
                        );
                    }
                    sleep(WAIT).await;
                }
            }
        }
    })
    .await;
    lease.end().await;
}

fn wait_after(pass: &Pass) -> Duration {
    match pass {
        Pass::Appended(_) => Duration::ZERO,
        Pass::NothingDue(next_in) => LOOK_EVERY.min(*next_in),
        Pass::NoLimits | Pass::Full => LOOK_EVERY,
        Pass::WentBack(_) | Pass::OlderWorkers(_) => WAIT,
    }
}

/// Whether somebody should hear of it: something keeps orders from expiring, or does so no longer. `failures` in a row came
/// before; they are over.
fn is_news(pass: &Pass, logged: &mut Option<Pass>, failures: &mut u32) -> bool {
    let was_warned = std::mem::take(failures) >= FAILURES_BEFORE_WARNING;
    let now = matches!(pass, Pass::WentBack(_) | Pass::OlderWorkers(_)).then(|| pass.clone());
    let is_news = *logged != now;
    *logged = now;
    is_news || was_warned
}

fn tell(pass: &Pass) {
    match pass {
        Pass::WentBack(state) => {
            let store = if *state == MarkState::MySqlWentBack { "MySQL" } else { "Redis" };
            tracing::error!(
                store,
                "a store went back in time: no unpaid order expires until somebody says `tidegate resume --expirations`; \
                 see {WENT_BACK}"
            );
        }
        Pass::OlderWorkers(workers) => tracing::warn!(
            workers = workers.join(", "),
            "no unpaid order expires while workers of an older version live, which would bury the events"
        ),
        _ => tracing::info!("unpaid orders expire again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_orders_from_expiring_is_told_once_and_so_is_its_end() {
        let back = Pass::WentBack(MarkState::RedisWentBack);
        let older = Pass::OlderWorkers(vec!["a".into()]);
        let passes = [Pass::NoLimits, Pass::Appended(3), back.clone(), back, older, Pass::Full, Pass::Full];
        let mut logged = None;
        let news: Vec<bool> = passes.iter().map(|pass| is_news(pass, &mut logged, &mut 0)).collect();
        assert_eq!(news, [false, false, true, false, true, true, false]);
    }

    #[test]
    fn the_end_of_failures_is_told_where_they_were() {
        let mut failures = FAILURES_BEFORE_WARNING - 1;
        assert!(!is_news(&Pass::Full, &mut None, &mut failures), "nobody was told of so few");
        failures = FAILURES_BEFORE_WARNING;
        assert!(is_news(&Pass::Full, &mut None, &mut failures));
        assert_eq!(failures, 0);
    }

    #[test]
    fn what_is_due_soon_is_not_waited_for_longer_than_that() {
        assert_eq!(wait_after(&Pass::Appended(1)), Duration::ZERO);
        assert_eq!(wait_after(&Pass::NothingDue(Duration::from_millis(7))), Duration::from_millis(7));
        assert_eq!(wait_after(&Pass::NothingDue(Duration::from_secs(900))), LOOK_EVERY);
    }
}

//! Tests of a worker that is killed at every step of a batch. Another one takes over, or it is started again.

use tidegate_lab::Hold;

use crate::{
    faults::proxies::{ACK, CHECKED_COMMIT, LOCK, Proxies, REFUSING_COMMIT, bury, quick, release_of, unlock},
    fixture::{Fixture, rush::SHORT, until},
};

const ORDERS: i64 = 300;
const POISON: usize = 2;
const ALL: usize = ORDERS as usize + POISON;

/// Starts workers with a rush, kills each at the step that `arm` waits for, and checks with `at_the_step` that it was
/// there. Then the same worker, started again, finishes the work, and after the second kill another one does.
async fn survive(rush: Rush, arm: impl Fn(&Proxies) -> Hold, at_the_step: impl AsyncFn(&Fixture)) {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    for (first, victim, heir) in [(1_000, "a", "a"), (2_000, "b", "c")] {
        rush.begin(&fixture, first).await;
        fixture.call("CONFIG RESETSTAT").await;
        let hold = arm(&proxies);
        let worker = proxies.before(quick(&fixture, victim), &fixture).start();
        hold.reached().await.expect("the worker comes to this step");
        at_the_step(&fixture).await;
        worker.kill9();
        hold.cut();

        let heir = quick(&fixture, heir).start();
        fixture.settled().await;
        assert!(heir.stop().await.success());
        fixture.invariants().await;
    }
}

#[derive(Clone, Copy)]
enum Rush {
    /// Refusals and dead letters among the orders.
    Mixed,
    /// Every order can be written.
    Plain,
}

impl Rush {
    async fn begin(self, fixture: &Fixture, first: i64) {
        match self {
            Self::Mixed => {
                fixture.rush(first, ORDERS).await;
                fixture.add_poison().await;
            }
            Self::Plain => fixture.plain_rush(first, ORDERS + POISON as i64).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_reading_and_locking() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(LOCK);
    survive(Rush::Mixed, arm, async |fixture| {
        assert_eq!((fixture.pending().await, fixture.locks().await), (ALL, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_locking_and_writing() {
    let arm = |proxies: &Proxies| proxies.redis.hold_reply_when(LOCK);
    survive(Rush::Mixed, arm, async |fixture| {
        assert_eq!(fixture.pending().await, ALL);
        assert!(fixture.locks().await > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_commit_of_orders_that_can_all_be_written() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_when(CHECKED_COMMIT);
    survive(Rush::Plain, arm, async |fixture| nothing_new_is_written(fixture).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_commit_of_orders_and_refusals() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_when(REFUSING_COMMIT);
    survive(Rush::Mixed, arm, async |fixture| nothing_new_is_written(fixture).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_commit_of_orders_that_can_all_be_written() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_reply_when(CHECKED_COMMIT);
    survive(Rush::Plain, arm, async |fixture| all_is_written_and_pending(fixture).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_commit_of_orders_and_refusals() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_reply_when(REFUSING_COMMIT);
    survive(Rush::Mixed, arm, async |fixture| all_is_written_and_pending(fixture).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_when_some_refused_orders_are_released_and_others_are_not() {
    // The last call for this voucher is held, and all earlier calls pass, over any connection. (`open_sale` has loaded
    // the script.)
    let arm = |proxies: &Proxies| proxies.redis.hold_when(release_of(SHORT));
    survive(Rush::Mixed, arm, async |fixture| {
        let refused = fixture.refused().await;
        let first_of_batch = refused.last().map_or(0, |id| id / 1_000 * 1_000);
        until("some are released", || async {
            fixture.released().await.range(first_of_batch..).next().is_some()
        })
        .await;
        assert!(fixture.released().await.len() < refused.len());
        assert_eq!(fixture.pending().await, ALL);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_releasing_and_unlocking() {
    // The worker acknowledges while it unlocks. So nothing may be pending any more when it is killed.
    let arm = |proxies: &Proxies| proxies.redis.hold_when(unlock());
    survive(Rush::Mixed, arm, async |fixture| {
        assert_eq!(fixture.refused().await, fixture.released().await);
        assert!(fixture.locks().await > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_unlocking_and_acknowledging() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(ACK);
    survive(Rush::Mixed, arm, async |fixture| {
        until("it is unlocked", || async {
            fixture.calls_of("mget").await > 0 && fixture.locks().await == 0
        })
        .await;
        assert_eq!(fixture.pending().await, ALL);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_acknowledging() {
    let arm = |proxies: &Proxies| proxies.redis.hold_reply_when(ACK);
    survive(Rush::Mixed, arm, async |fixture| assert_eq!(fixture.pending().await, POISON)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_burying() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(bury());
    survive(Rush::Mixed, arm, async |fixture| assert_eq!(fixture.pending().await, POISON)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_burying_one_entry_and_the_next() {
    let arm = |proxies: &Proxies| proxies.redis.hold_reply_when(bury());
    survive(Rush::Mixed, arm, async |fixture| assert_eq!(fixture.pending().await, POISON - 1)).await;
}

/// Checks that no order of the batch in progress is written. All pending entries belong to that batch.
async fn nothing_new_is_written(fixture: &Fixture) {
    let (put_in, came_out) = (fixture.caller_log.read().orders.len(), fixture.outcomes().await);
    assert_eq!(fixture.pending().await, ALL);
    assert!(came_out + ORDERS as usize <= put_in, "{came_out} of {put_in} are decided");
}

/// Waits until all orders are written, because MySQL may answer the first of several statements before the last is
/// done. All entries must still be pending.
async fn all_is_written_and_pending(fixture: &Fixture) {
    let put_in = fixture.caller_log.read().orders.len();
    until("the commit is done", || async { fixture.outcomes().await == put_in }).await;
    assert_eq!(fixture.pending().await, ALL);
}

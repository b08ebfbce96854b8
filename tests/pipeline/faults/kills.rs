//! A worker is killed at every step of a batch. Another one takes over, or the same one is started again.

use tidegate_lab::Hold;

use crate::{
    faults::proxies::{ACK, CHECKED_COMMIT, LOCK, Proxies, REFUSING_COMMIT, bury, quick, release_of, unlock},
    site::{Site, rush::SHORT, until},
};

const ORDERS: i64 = 300;
const POISON: usize = 2;
const ALL: usize = ORDERS as usize + POISON;

/// Lets workers begin with a rush, kills each at the step that `arm` waits for, checks with `at_the_step` that it
/// was there, and lets the work be done: first by the same worker, started again, then by another one.
async fn survive(rush: Rush, arm: impl Fn(&Proxies) -> Hold, at_the_step: impl AsyncFn(&Site)) {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    for (first, victim, heir) in [(1_000, "a", "a"), (2_000, "b", "c")] {
        rush.begin(&site, first).await;
        site.call("CONFIG RESETSTAT").await;
        let hold = arm(&proxies);
        let worker = proxies.before(quick(&site, victim), &site).start();
        hold.reached().await.expect("the worker comes to this step");
        at_the_step(&site).await;
        worker.kill9();
        hold.cut();

        let heir = quick(&site, heir).start();
        site.settled().await;
        assert!(heir.stop().await.success());
        site.invariants().await;
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
    async fn begin(self, site: &Site, first: i64) {
        match self {
            Self::Mixed => {
                site.rush(first, ORDERS).await;
                site.add_poison().await;
            }
            Self::Plain => site.plain_rush(first, ORDERS + POISON as i64).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_reading_and_locking() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(LOCK);
    survive(Rush::Mixed, arm, async |site| {
        assert_eq!((site.pending().await, site.locks().await), (ALL, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_locking_and_writing() {
    let arm = |proxies: &Proxies| proxies.redis.hold_reply_when(LOCK);
    survive(Rush::Mixed, arm, async |site| {
        assert_eq!(site.pending().await, ALL);
        assert!(site.locks().await > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_commit_of_orders_that_can_all_be_written() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_when(CHECKED_COMMIT);
    survive(Rush::Plain, arm, async |site| nothing_new_is_written(site).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_commit_of_orders_and_refusals() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_when(REFUSING_COMMIT);
    survive(Rush::Mixed, arm, async |site| nothing_new_is_written(site).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_commit_of_orders_that_can_all_be_written() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_reply_when(CHECKED_COMMIT);
    survive(Rush::Plain, arm, async |site| all_is_written_and_pending(site).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_commit_of_orders_and_refusals() {
    let arm = |proxies: &Proxies| proxies.mysql.hold_reply_when(REFUSING_COMMIT);
    survive(Rush::Mixed, arm, async |site| all_is_written_and_pending(site).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_when_some_refused_orders_are_released_and_others_are_not() {
    // The last of the calls: what was sent before it passes, over whichever connection. (`open_sale` has loaded the script.)
    let arm = |proxies: &Proxies| proxies.redis.hold_when(release_of(SHORT));
    survive(Rush::Mixed, arm, async |site| {
        let refused = site.refused().await;
        let first_of_batch = refused.last().map_or(0, |id| id / 1_000 * 1_000);
        until("some are released", || async {
            site.released().await.range(first_of_batch..).next().is_some()
        })
        .await;
        assert!(site.released().await.len() < refused.len());
        assert_eq!(site.pending().await, ALL);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_releasing_and_unlocking() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(unlock());
    survive(Rush::Mixed, arm, async |site| {
        assert_eq!(site.refused().await, site.released().await);
        assert!(site.locks().await > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_unlocking_and_acknowledging() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(ACK);
    survive(Rush::Mixed, arm, async |site| {
        until("it is unlocked", || async { site.calls_of("mget").await > 0 && site.locks().await == 0 })
            .await;
        assert_eq!(site.pending().await, ALL);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_acknowledging() {
    let arm = |proxies: &Proxies| proxies.redis.hold_reply_when(ACK);
    survive(Rush::Mixed, arm, async |site| assert_eq!(site.pending().await, POISON)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_burying() {
    let arm = |proxies: &Proxies| proxies.redis.hold_when(bury());
    survive(Rush::Mixed, arm, async |site| assert_eq!(site.pending().await, POISON)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_burying_one_entry_and_the_next() {
    let arm = |proxies: &Proxies| proxies.redis.hold_reply_when(bury());
    survive(Rush::Mixed, arm, async |site| assert_eq!(site.pending().await, POISON - 1)).await;
}

/// Nothing of the batch in progress, which is all that is pending.
async fn nothing_new_is_written(site: &Site) {
    let (put_in, came_out) = (site.book.read().orders.len(), site.outcomes().await);
    assert_eq!(site.pending().await, ALL);
    assert!(came_out + ORDERS as usize <= put_in, "{came_out} of {put_in} are decided");
}

/// MySQL may answer the first of several statements before the last is done.
async fn all_is_written_and_pending(site: &Site) {
    let put_in = site.book.read().orders.len();
    until("the commit is done", || async { site.outcomes().await == put_in }).await;
    assert_eq!(site.pending().await, ALL);
}

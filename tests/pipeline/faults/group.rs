//! The consumer group is destroyed, and entries vanish while they are pending.

use std::time::Duration;

use crate::{
    faults::proxies::{LOCK, Proxies, REFUSING_COMMIT, quick},
    site::{DEAD, GROUP, STREAM, Site, rush::SHORT},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_group_delivers_all_again_and_doubles_nothing() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    let fleet = ["v", "w"].map(|name| proxies.before(quick(&site, name), &site).start());
    site.rush(1_000, 500).await;
    site.settled().await;

    let commit = proxies.mysql.hold_when(REFUSING_COMMIT);
    site.rush(2_000, 500).await;
    commit.reached().await.expect("a batch is in progress");
    site.call(&format!("XGROUP DESTROY {STREAM} {GROUP}")).await;
    commit.release();
    site.settled().await;
    site.invariants().await;
    assert!(fleet.iter().any(|worker| worker.log().contains("the consumer group was gone")));
    for worker in fleet {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_that_is_delivered_again_stays_refused_also_when_there_is_stock() {
    let site = Site::open().await;
    site.open_sale().await;
    let worker = quick(&site, "w").start();
    site.rush(1_000, 500).await;
    site.settled().await;
    let refused = site.refused().await;
    assert!(!refused.is_empty());

    site.restock_mysql(SHORT, 500).await;
    site.restock_redis(SHORT, 500).await;
    site.call(&format!("XGROUP DESTROY {STREAM} {GROUP}")).await;
    site.settled().await;
    assert_eq!(site.refused().await, refused);
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_entries_that_are_deleted_are_told_and_hold_up_nobody() {
    for (victim, heir) in [("a", "a"), ("b", "c")] {
        let site = Site::open().await;
        site.open_sale().await;
        let proxies = Proxies::start(&site).await;
        site.rush(1_000, 300).await;
        let lock = proxies.redis.hold_when(LOCK);
        let worker = proxies.before(quick(&site, victim), &site).start();
        lock.reached().await.expect("all are pending");
        worker.kill9();

        site.delete_first_orders(3).await;
        let heir = quick(&site, heir).start();
        site.settled().await;
        heir.says("pending entries without payload").await;
        assert!(heir.log().contains("count=3"), "as many as were deleted");
        site.invariants().await;
        assert!(heir.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_are_trimmed_away_under_a_batch_in_progress_are_written_all_the_same() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    site.rush(1_000, 300).await;
    site.add_poison().await;
    let commit = proxies.mysql.hold_when(REFUSING_COMMIT);
    let worker = proxies.before(quick(&site, "w").set("WORKER_CLAIM_IDLE_MS", 4_500), &site).start();
    commit.reached().await.expect("a batch is in progress");
    site.call(&format!("XTRIM {STREAM} MAXLEN 0")).await;
    worker.says("kept from being claimed").await;
    assert_eq!(site.pending().await, 302, "what is in progress is pending");
    commit.release();
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_locked_by_somebody_else_waits_alone() {
    let site = Site::open().await;
    site.open_sale().await;
    site.call("SET lock:order:1001 somebody").await;
    let worker = quick(&site, "w").start();
    site.rush(1_000, 300).await;
    crate::site::until("all but one are done", || async { site.open_entries().await == Some(1) }).await;
    let requests = site.requests_within(Duration::from_secs(1)).await;
    assert!(requests < 150, "{requests} requests a second while a user is locked");
    site.rush(2_000, 300).await;
    crate::site::until("all but one are done", || async { site.open_entries().await == Some(1) }).await;

    site.call("DEL lock:order:1001").await;
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_cannot_be_buried_holds_up_nobody() {
    let site = Site::open().await;
    site.open_sale().await;
    site.call(&format!("SET {DEAD} occupied")).await;
    let worker = quick(&site, "w").start();
    site.add_poison().await;
    site.rush(1_000, 300).await;
    crate::site::until("all but the poison is done", || async { site.open_entries().await == Some(2) }).await;
    let requests = site.requests_within(Duration::from_secs(1)).await;
    assert!(requests < 150, "{requests} requests a second while nothing can be buried");

    site.call(&format!("DEL {DEAD}")).await;
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_wrong_type_makes_no_hot_loop() {
    let site = Site::open().await;
    site.open_sale().await;
    let worker = quick(&site, "w").start();
    worker.says("worker started").await;
    site.call(&format!("DEL {STREAM}")).await;
    site.call(&format!("SET {STREAM} occupied")).await;
    worker.says("WRONGTYPE").await;
    let requests = site.requests_within(Duration::from_secs(2)).await;
    assert!(requests < 150, "{requests} requests in two seconds");

    site.call(&format!("DEL {STREAM}")).await;
    site.rush(1_000, 300).await;
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_fleets_in_one_group_share_the_work_and_double_nothing() {
    let site = Site::open().await;
    site.open_sale().await;
    let fleet =
        ["a", "b", "c", "d"].map(|name| quick(&site, name).set("WORKER_LANES", 2).set("WORKER_BATCH", 20));
    let fleet = fleet.map(crate::site::WorkerPlan::start);
    for round in 1..=4 {
        site.rush(round * 1_000, 500).await;
    }
    site.add_poison().await;
    site.settled().await;
    site.invariants().await;
    for worker in fleet {
        assert!(worker.stop().await.success());
    }
}

//! Tests of a destroyed consumer group, and of entries that are deleted while they are pending.

use std::time::Duration;

use crate::{
    faults::proxies::{LOCK, Proxies, REFUSING_COMMIT, quick},
    fixture::{DEAD, Fixture, GROUP, STREAM, rush::SHORT},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_group_delivers_all_again_and_doubles_nothing() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    let fleet = ["v", "w"].map(|name| proxies.before(quick(&fixture, name), &fixture).start());
    fixture.rush(1_000, 500).await;
    fixture.settled().await;

    let commit = proxies.mysql.hold_when(REFUSING_COMMIT);
    fixture.rush(2_000, 500).await;
    commit.reached().await.expect("a batch is in progress");
    fixture.call(&format!("XGROUP DESTROY {STREAM} {GROUP}")).await;
    commit.release();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(fleet.iter().any(|worker| worker.log().contains("the consumer group was gone")));
    for worker in fleet {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_that_is_delivered_again_stays_refused_also_when_there_is_stock() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = quick(&fixture, "w").start();
    fixture.rush(1_000, 500).await;
    fixture.settled().await;
    let refused = fixture.refused().await;
    assert!(!refused.is_empty());

    fixture.restock_mysql(SHORT, 500).await;
    fixture.restock_redis(SHORT, 500).await;
    fixture.call(&format!("XGROUP DESTROY {STREAM} {GROUP}")).await;
    fixture.settled().await;
    assert_eq!(fixture.refused().await, refused);
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_entries_that_are_deleted_are_told_and_hold_up_nobody() {
    for (victim, heir) in [("a", "a"), ("b", "c")] {
        let fixture = Fixture::open().await;
        fixture.open_sale().await;
        let proxies = Proxies::start(&fixture).await;
        fixture.rush(1_000, 300).await;
        let lock = proxies.redis.hold_when(LOCK);
        let worker = proxies.before(quick(&fixture, victim), &fixture).start();
        lock.reached().await.expect("all are pending");
        worker.kill9();

        fixture.delete_first_orders(3).await;
        let heir = quick(&fixture, heir).start();
        fixture.settled().await;
        heir.says("pending entries without payload").await;
        assert!(heir.log().contains("count=3"), "as many as were deleted");
        fixture.invariants().await;
        assert!(heir.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_are_trimmed_away_under_a_batch_in_progress_are_written_all_the_same() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    fixture.add_poison().await;
    let commit = proxies.mysql.hold_when(REFUSING_COMMIT);
    let worker = proxies.before(quick(&fixture, "w").set("WORKER_CLAIM_IDLE_MS", 4_500), &fixture).start();
    commit.reached().await.expect("a batch is in progress");
    fixture.call(&format!("XTRIM {STREAM} MAXLEN 0")).await;
    worker.says("so no other consumer claims the entries").await;
    assert_eq!(fixture.pending().await, 302, "what is in progress is pending");
    commit.release();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_locked_by_somebody_else_waits_alone() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.call("SET lock:order:1001 somebody").await;
    let worker = quick(&fixture, "w").start();
    fixture.rush(1_000, 300).await;
    crate::fixture::until("all but one are done", || async { fixture.open_entries().await == Some(1) }).await;
    let requests = fixture.requests_within(Duration::from_secs(1)).await;
    assert!(requests < 150, "{requests} requests a second while a user is locked");
    fixture.rush(2_000, 300).await;
    crate::fixture::until("all but one are done", || async { fixture.open_entries().await == Some(1) }).await;

    fixture.call("DEL lock:order:1001").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_cannot_be_buried_holds_up_nobody() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.call(&format!("SET {DEAD} occupied")).await;
    let worker = quick(&fixture, "w").start();
    fixture.add_poison().await;
    fixture.rush(1_000, 300).await;
    crate::fixture::until("all but the poison is done", || async { fixture.open_entries().await == Some(2) })
        .await;
    let requests = fixture.requests_within(Duration::from_secs(1)).await;
    assert!(requests < 150, "{requests} requests a second while nothing can be buried");

    fixture.call(&format!("DEL {DEAD}")).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_wrong_type_makes_no_hot_loop() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = quick(&fixture, "w").start();
    worker.says("worker started").await;
    fixture.call(&format!("DEL {STREAM}")).await;
    fixture.call(&format!("SET {STREAM} occupied")).await;
    worker.says("WRONGTYPE").await;
    let requests = fixture.requests_within(Duration::from_secs(2)).await;
    assert!(requests < 150, "{requests} requests in two seconds");

    fixture.call(&format!("DEL {STREAM}")).await;
    fixture.rush(1_000, 300).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_fleets_in_one_group_share_the_work_and_double_nothing() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let fleet =
        ["a", "b", "c", "d"].map(|name| quick(&fixture, name).set("WORKER_LANES", 2).set("WORKER_BATCH", 20));
    let fleet = fleet.map(crate::fixture::WorkerPlan::start);
    for round in 1..=4 {
        fixture.rush(round * 1_000, 500).await;
    }
    fixture.add_poison().await;
    fixture.settled().await;
    fixture.invariants().await;
    for worker in fleet {
        assert!(worker.stop().await.success());
    }
}

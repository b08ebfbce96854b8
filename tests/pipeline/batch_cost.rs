//! Test of the cost of a batch in Redis, as Redis counts it, including calls by scripts.

use crate::{
    events::{add_event, by_status},
    faults::proxies::{CHECKED_COMMIT, Proxies},
    fixture::{Fixture, until},
    repeated_events::repeat_payments,
    weight::add_orders,
};

const BATCHES: u64 = 5;
/// The default of `worker.batch`.
const BATCH: u64 = 1_000;
const ORDERS: u64 = BATCHES * BATCH;
/// Calls of XREADGROUP for a batch, which are sent together.
const PIECES: u64 = 11;

#[tokio::test(flavor = "multi_thread")]
async fn full_batches_of_plain_orders_cost_redis_so_many_calls_and_no_more() {
    let fixture = Fixture::open().await;
    fixture.load(1, ORDERS as i64).await;
    add_orders(&fixture, 1..ORDERS as i64 + 1, 1).await;
    fixture.call("CONFIG RESETSTAT").await;
    // The locks need no renewal, and reads wait for a long time.
    let worker = fixture.worker("w").set("WORKER_LANES", 1).set("WORKER_LOCK_LEASE_MS", 60_000);
    let worker = worker.set("WORKER_CLAIM_IDLE_MS", 120_000);
    let worker = worker.set("WORKER_BLOCK_MS", 5_000).start();
    fixture.settled().await;
    until("the last batch is unlocked", async || fixture.calls_of("mget").await >= BATCHES).await;
    let calls = fixture.calls().await;
    assert!(worker.stop().await.success());
    assert_eq!(fixture.mysql_stock(1).await, 0, "all are written");

    let of = |command: &str| calls.get(command).copied().unwrap_or(0);
    // The first batch takes one more read. After the last batch, one read without waiting and one that waits find
    // nothing.
    assert!(of("xreadgroup") <= (BATCHES + 1) * PIECES + 5, "{calls:?}");
    assert_eq!(
        (of("xack"), of("mget"), of("del")),
        (BATCHES, BATCHES, BATCHES),
        "acknowledged and unlocked: {calls:?}"
    );
    // The first lock of a batch is a SET, each other one a COPY.
    assert_eq!(of("copy") + BATCHES, ORDERS, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_wait_for_orders_that_another_lane_has_in_progress_and_redis_is_asked_once_for_each() {
    // This is the number of entries that the first read returns.
    const ORDERS: i64 = 20;
    let fixture = Fixture::open().await;
    fixture.load(1, ORDERS).await;
    add_orders(&fixture, 1..ORDERS + 1, 1).await;
    add_event(&fixture, "paid", 1, &[("ref", "p")]).await;
    let proxies = Proxies::start(&fixture).await;
    let hold = proxies.mysql.hold_when(CHECKED_COMMIT);
    let worker = fixture.worker("w").set("WORKER_LANES", 2).set("WORKER_CLAIM_IDLE_MS", 120_000);
    let worker = proxies.before(worker, &fixture).start();
    hold.reached().await.expect("the first lane writes its batch");
    fixture.call("CONFIG RESETSTAT").await;
    repeat_payments(&fixture, (2, ORDERS), 1).await;
    until("the second lane sets them aside", async || fixture.calls_of("xclaim").await > 0).await;
    let asked = (ORDERS - 1) as u64;
    let calls = fixture.calls().await;
    // A few more calls are for the batch as a whole, and for set-aside entries that are tried again.
    assert!((asked..2 * asked).contains(&calls["xpending"]), "{calls:?}");
    hold.release();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    assert_eq!(by_status(&fixture, 1).await, [(2, ORDERS)], "all are paid");
}

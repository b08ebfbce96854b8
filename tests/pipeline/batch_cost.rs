//! What a batch costs Redis, as Redis itself counts it. That includes what scripts call.

use crate::{
    site::{Site, until},
    weight::add_orders,
};

const BATCHES: u64 = 5;
/// The default of `worker.batch`.
const BATCH: u64 = 1_000;
const ORDERS: u64 = BATCHES * BATCH;
/// Calls of XREADGROUP for a batch: the pieces of one go.
const PIECES: u64 = 11;

#[tokio::test(flavor = "multi_thread")]
async fn full_batches_of_plain_orders_cost_redis_so_many_calls_and_no_more() {
    let site = Site::open().await;
    site.load(1, ORDERS as i64).await;
    add_orders(&site, 1..ORDERS as i64 + 1, 1).await;
    site.call("CONFIG RESETSTAT").await;
    // Locks that are not renewed, and reads that wait for long.
    let worker = site.worker("w").set("WORKER_LANES", 1).set("WORKER_LOCK_LEASE_MS", 60_000);
    let worker = worker.set("WORKER_CLAIM_IDLE_MS", 120_000);
    let worker = worker.set("WORKER_BLOCK_MS", 5_000).start();
    site.settled().await;
    until("the last batch is unlocked", async || site.calls_of("mget").await >= BATCHES).await;
    let calls = site.calls().await;
    assert!(worker.stop().await.success());
    assert_eq!(site.mysql_stock(1).await, 0, "all are written");

    let of = |command: &str| calls.get(command).copied().unwrap_or(0);
    // The first batch takes one read more. Behind the last one, a go and a read that waits find nothing.
    assert!(of("xreadgroup") <= (BATCHES + 1) * PIECES + 5, "{calls:?}");
    assert_eq!(
        (of("xack"), of("mget"), of("del")),
        (BATCHES, BATCHES, BATCHES),
        "acknowledged and unlocked: {calls:?}"
    );
    // The first lock of a batch is a SET, each other one a COPY.
    assert_eq!(of("copy") + BATCHES, ORDERS, "{calls:?}");
}

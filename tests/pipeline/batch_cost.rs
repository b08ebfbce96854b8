//! What a batch costs Redis, as Redis itself counts it. That includes what scripts call.

use std::collections::BTreeMap;

use fred::types::Value;

use crate::site::{STREAM, Site, until};

const BATCHES: i64 = 5;
/// The default of `worker.batch`.
const BATCH: i64 = 1_000;
const ORDERS: i64 = BATCHES * BATCH;
/// Calls of XREADGROUP for a batch: the pieces of one go.
const PIECES: i64 = 11;

/// How often Redis was asked for each command.
pub async fn calls(site: &Site) -> BTreeMap<String, i64> {
    let stats = site.call("INFO commandstats").await.as_string().expect("a text");
    let line = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_batches_of_plain_orders_cost_redis_so_many_calls_and_no_more() {
    let site = Site::open().await;
    site.load(1, ORDERS).await;
    let lua = "for id = 1, tonumber(ARGV[1]) do
            redis.call('XADD', KEYS[1], '*', 'userId', id, 'voucherId', 1, 'id', id)
        end";
    let _nothing: Value = site.redis_says(&["EVAL", lua, "1", STREAM, &ORDERS.to_string()]).await;
    site.call("CONFIG RESETSTAT").await;
    // Locks that are not renewed, and reads that wait for long.
    let worker = site.worker("w").set("WORKER_LANES", 1).set("WORKER_LOCK_LEASE_MS", 60_000);
    let worker = worker.set("WORKER_CLAIM_IDLE_MS", 120_000);
    let worker = worker.set("WORKER_BLOCK_MS", 5_000).start();
    site.settled().await;
    until("the last batch is unlocked", async || calls(&site).await.get("mget") >= Some(&BATCHES)).await;
    let calls = calls(&site).await;
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

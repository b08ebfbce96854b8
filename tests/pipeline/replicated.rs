//! Tests of workers that write only replicated orders, with a real replica that stalls and returns.

use tidegate_lab::RedisServer;
use tidegate_orders::scripts::{Admission, AdmitReply};

use crate::fixture::{Fixture, STREAM, connect, until};

fn wanted(id: i64) -> Admission {
    Admission {
        order: id.try_into().expect("an order id"),
        user: id.try_into().expect("a user id"),
        voucher: 7.try_into().expect("a voucher id"),
        quantity: 1.try_into().expect("a quantity"),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    }
}

/// The number of replication queries to the server. The probe of the worker sends the same command as its lanes.
async fn looks(fixture: &Fixture) -> u64 {
    fixture.calls_of("wait").await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_is_written_that_a_promoted_replica_would_not_know() {
    let fixture = Fixture::open().await;
    fixture.load(7, 10).await;
    let port = fixture.redis.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().expect("a replica");
    let copy = connect(&replica.url()).await;
    let has = async |order: i64| {
        use fred::interfaces::HashesInterface;
        copy.hexists::<bool, _, _>("seckill:journal:7", order.to_string()).await.unwrap_or(false)
    };
    let plan = fixture.worker("w").set("GATE_WAIT_REPLICAS", 1).set("GATE_WAIT_MS", 100);
    let worker = plan.set("WORKER_BACKOFF_MAX_MS", 200).start();
    // The callers of this gate do not wait, unlike those of other gates.
    let store = fixture.store().await;
    assert_eq!(store.admissions().admit(&wanted(1)).await.expect("an answer"), AdmitReply::Admitted);
    until("order 1 is written", || async { fixture.orders().await.len() == 1 }).await;
    assert!(has(1).await, "what is written, the replica has");

    replica.stop().expect("it stands still");
    for order in 2..=4 {
        assert_eq!(store.admissions().admit(&wanted(order)).await.expect("an answer"), AdmitReply::Admitted);
    }
    worker.says("no entries are handled until replicas have the entries: 0 of 1 replicas").await;
    let before = looks(&fixture).await;
    until("it goes on asking", || async { looks(&fixture).await > before + 10 }).await;
    // A replay does not write these orders either.
    let replay = [
        "--set",
        "gate.wait_replicas=1",
        "--set",
        "gate.wait_ms=100",
        "replay",
        "--from",
        "-1h",
        "--to",
        "now",
        "--yes",
    ];
    let replay = fixture.tidegate(&replay);
    let said = String::from_utf8_lossy(&replay.stderr);
    assert!(!replay.status.success() && said.contains("until replicas have the entries"), "{replay:?}");
    assert_eq!(fixture.orders().await.len(), 1, "no row of an order that no replica has");
    let outages = worker.log().matches("outage began").count();
    assert!(outages <= 3, "it says so once, or twice where the replica had all until its first try");

    replica.cont().expect("it goes on");
    worker.says("outage over").await;
    until("all are written", || async { fixture.orders().await.len() == 4 }).await;
    for order in 2..=4 {
        assert!(has(order).await, "order {order}");
    }
    fixture.settled().await;
    assert_eq!(fixture.redis_says(&["XLEN", STREAM]).await.as_i64(), Some(4));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_may_not_wait_for_replicas_says_so_and_ends() {
    let fixture = Fixture::open().await;
    fixture.load(7, 10).await;
    fixture.add_users().await;
    fixture.call("ACL SETUSER tidegate-worker -wait").await;
    fixture.add_order(1, 1, 7).await;
    let plan = fixture.worker("w").set("REDIS_URL", fixture.redis_url_of("tidegate-worker"));
    let mut worker = plan.set("GATE_WAIT_REPLICAS", 1).set("GATE_WAIT_MS", 100).start();
    assert_eq!(worker.ended().await.code(), Some(3), "{}", worker.log());
    assert!(worker.log().contains("lacks the right +wait"), "{}", worker.log());
    assert_eq!((fixture.orders().await.len(), fixture.pending().await), (0, 0), "nothing was read");
    assert_eq!(fixture.open_entries().await, Some(1), "nor acknowledged");
}

/// The master keeps no append-only file, so it confirms no batch in one, whatever replicas have in memory.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_append_only_files_goes_on_until_they_have_what_was_read() {
    let fixture = Fixture::open().await;
    fixture.load(7, 10).await;
    let port = fixture.redis.port().to_string();
    let _replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().expect("a replica");
    until("the replica is there", || async { fixture.call("WAIT 1 1000").await.as_i64() == Some(1) }).await;
    fixture.call("CONFIG SET appendonly no").await;
    let plan = fixture.worker("w").set("GATE_WAIT_REPLICAS", 1).set("GATE_WAIT_MS", 100);
    let worker = plan.set("GATE_WAIT_FOR", "file").set("WORKER_BACKOFF_MAX_MS", 200).start();
    fixture.add_order(1, 1, 7).await;
    worker.says("no entries are handled until replicas have the entries").await;
    // The probe must need the replicas, too. A probe that passes while every batch fails would end the outage, and the
    // next batch would begin it again. Before Redis 7, the counts have no subcommands.
    let probes = || async { fixture.calls_of("xgroup|create").await + fixture.calls_of("xgroup").await };
    let before = probes().await;
    until("it goes on asking", || async { probes().await > before + 10 }).await;
    assert!(!worker.log().contains("outage over"), "{}", worker.log());
    // A replay does not write orders that only the memory of the replica has either.
    let wait = ["--set", "gate.wait_replicas=1", "--set", "gate.wait_ms=100", "--set", "gate.wait_for=file"];
    let replay =
        fixture.tidegate(&[&wait[..], &["replay", "--from", "-1h", "--to", "now", "--yes"]].concat());
    let said = String::from_utf8_lossy(&replay.stderr);
    assert!(!replay.status.success() && said.contains("until replicas have the entries"), "{replay:?}");
    assert!(fixture.orders().await.is_empty());
}

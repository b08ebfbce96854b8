//! Tests of Redis outages, lost data and lost connections.

use std::time::Duration;

use fred::types::Value;
use tokio::{net::TcpListener, time::timeout};

use crate::{
    faults::proxies::{LOCK, Proxies, REFUSING_COMMIT, quick},
    fixture::{DEADLINE, Fixture, Worker, WorkerPlan, until},
};

/// A worker that quickly notices the begin and the end of an outage of Redis.
fn impatient(fixture: &Fixture, name: &str) -> WorkerPlan {
    let plan = quick(fixture, name).set("WORKER_LANES", 2).set("WORKER_BATCH", 50);
    let plan = plan.set("REDIS_COMMAND_TIMEOUT_MS", 500);
    plan.set("WORKER_BACKOFF_MAX_MS", 300)
}

struct Scene {
    // These fields come before the fixture, which holds their logs, so that they are dropped first.
    fleet: Vec<Worker>,
    fixture: Fixture,
    proxies: Proxies,
}

impl Scene {
    /// Two workers in the middle of a rush.
    async fn open() -> Self {
        let fixture = Fixture::open().await;
        fixture.open_sale().await;
        let proxies = Proxies::start(&fixture).await;
        let fleet = ["v", "w"].map(|name| proxies.before(impatient(&fixture, name), &fixture).start());
        for worker in &fleet {
            worker.says("worker started").await;
        }
        fixture.rush(1_000, 1_000).await;
        fixture.add_poison().await;
        Self { fixture, proxies, fleet: fleet.into() }
    }

    async fn all_say(&self, text: &str) {
        for worker in &self.fleet {
            worker.says(text).await;
        }
    }

    /// Checks that all orders are handled, including later ones.
    async fn recovers(self) {
        self.fixture.rush(5_000, 200).await;
        self.fixture.settled().await;
        self.fixture.invariants().await;
        for worker in self.fleet {
            assert!(worker.stop().await.success());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_and_restarted_with_its_file() {
    let scene = Scene::open().await;
    scene.fixture.redis.kill9().expect("Redis is killed");
    scene.all_say("outage began").await;
    scene.fixture.redis.restart().expect("Redis starts again");
    scene.all_say("outage over").await;
    for worker in &scene.fleet {
        assert_eq!(worker.log().matches("outage began").count(), 1, "one outage is told once");
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_falls_silent_and_goes_on() {
    let scene = Scene::open().await;
    scene.fixture.redis.stop().expect("Redis is stopped");
    scene.all_say("outage began").await;
    scene.fixture.redis.cont().expect("Redis goes on");
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_and_restarted_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..3 {
        scene.fixture.redis.restart().expect("Redis starts again");
        scene.fixture.rush(2_000 + round * 100, 100).await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_swallows_everything_for_a_while() {
    let scene = Scene::open().await;
    scene.proxies.redis.black_hole();
    scene.fixture.rush(2_000, 200).await;
    scene.all_say("outage began").await;
    scene.proxies.redis.pass();
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_are_killed_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..5 {
        let _: Value = scene.fixture.call("CLIENT KILL TYPE normal").await;
        scene.fixture.rush(2_000 + round * 100, 100).await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_are_cut_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..5 {
        scene.proxies.redis.cut_connections().await;
        scene.proxies.mysql.cut_connections().await;
        scene.fixture.rush(2_000 + round * 100, 100).await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_scripts_are_flushed_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..5 {
        scene.fixture.call("SCRIPT FLUSH").await;
        scene.fixture.rush(2_000 + round * 100, 100).await;
        scene.fixture.add_poison().await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_no_memory_for_a_while() {
    // This is no outage: orders are written, because only that makes room.
    let said = "Redis is out of memory: orders are written without user locks";
    redis_refuses_writes_between("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", said).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_a_replica_for_a_while() {
    redis_refuses_writes_between("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "outage began").await;
}

async fn redis_refuses_writes_between(begin: &str, end: &str, said: &str) {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    fixture.add_poison().await;
    let lock = proxies.redis.hold_when(LOCK);
    // The client reconnects after each refusal, which takes several commands.
    let patient = |name| {
        impatient(&fixture, name).set("WORKER_BACKOFF_MAX_MS", 1_000).set("WORKER_HEARTBEAT_TTL_MS", 2_000)
    };
    let worker = proxies.before(patient("w"), &fixture).start();
    lock.reached().await.expect("a batch is in progress");
    fixture.call(begin).await;
    lock.release();
    worker.says(said).await;
    // The second worker cannot start now, and must not give up.
    let late = patient("late").start();
    late.says("Waiting for Redis").await;
    let requests = fixture.requests_within(Duration::from_secs(1)).await;
    // While lanes continue, each refused order is tried again now and then; a hot loop would send tens of thousands of
    // commands.
    let most = if said == "outage began" { 200 } else { 1_000 };
    assert!(requests < most, "{requests} requests a second while Redis refuses to write");
    fixture.call(end).await;
    fixture.settled().await;
    fixture.invariants().await;
    late.says("worker started").await;
    assert_eq!(late.log().matches("Waiting for Redis").count(), 1);
    assert_eq!(worker.log().matches("outage began").count(), usize::from(said == "outage began"));
    for worker in [worker, late] {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_forgets_everything_while_a_batch_is_in_progress() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    let commit = proxies.mysql.hold_when(REFUSING_COMMIT);
    // This time is long enough that MySQL does not end the transaction meanwhile, even on a busy machine.
    let worker = proxies.before(quick(&fixture, "w").set("WORKER_CLAIM_IDLE_MS", 20_000), &fixture).start();
    commit.reached().await.expect("the batch is in progress");

    fixture.call("FLUSHALL").await;
    commit.release();
    worker.says("the consumer group was gone and was created again").await;
    until("the batch in progress is written", || async { fixture.outcomes().await == 300 }).await;
    fixture.redis_has_forgotten().await;
    fixture.restock_redis(crate::fixture::rush::PLENTY, 10_000).await;
    fixture.restock_redis(crate::fixture::rush::SHORT, 10_000).await;
    fixture.rush(5_000, 200).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_without_redis_waits_for_it_and_says_so_once() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.rush(1_000, 300).await;
    fixture.redis.kill9().expect("Redis is killed");
    let worker = impatient(&fixture, "w").start();
    worker.says("Waiting for Redis").await;
    // The listener takes the place of Redis: it sees each attempt, and answers nothing.
    let listener = TcpListener::bind(("127.0.0.1", fixture.redis.port())).await.expect("the port is free");
    for _ in 0..4 {
        let tried = timeout(DEADLINE, listener.accept()).await.expect("it tries again");
        drop(tried.expect("a connection"));
    }
    drop(listener);
    fixture.redis.restart().expect("Redis starts");
    fixture.settled().await;
    assert_eq!(worker.log().matches("Waiting for Redis").count(), 1);
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_its_name_waits_for_redis_too() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.rush(1_000, 100).await;
    let first = impatient(&fixture, "w").set("WORKER_HEARTBEAT_TTL_MS", 5_000).start();
    fixture.settled().await;
    first.kill9();
    fixture.rush(2_000, 100).await;
    let second = impatient(&fixture, "w").log_as("second").set("WORKER_HEARTBEAT_TTL_MS", 5_000).start();
    second.says("the name of this worker has a heartbeat").await;
    fixture.redis.kill9().expect("Redis is killed");
    second.says("Waiting for Redis").await;
    fixture.redis.restart().expect("Redis starts");
    fixture.settled().await;
    fixture.invariants().await;
    assert!(second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_comes_back_empty_and_that_is_told() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    let worker = proxies.before(impatient(&fixture, "w"), &fixture).start();
    worker.says("worker started").await;
    proxies.redis.cut().await;
    worker.says("outage began").await;
    fixture.call("FLUSHALL").await;
    proxies.redis.pass();
    worker.says("the consumer group was gone").await;
    worker.says("outage over").await;
    assert!(worker.stop().await.success());
}

//! Redis is away, forgets, or loses its connections.

use std::time::Duration;

use fred::types::Value;
use tokio::{net::TcpListener, time::timeout};

use crate::{
    faults::proxies::{LOCK, Proxies, REFUSING_COMMIT, quick},
    site::{DEADLINE, Site, Worker, WorkerPlan, until},
};

/// Workers that notice quickly that Redis does not answer, and that it does again.
fn impatient(site: &Site, name: &str) -> WorkerPlan {
    let plan = quick(site, name).set("WORKER_LANES", 2).set("WORKER_BATCH", 50);
    let plan = plan.set("REDIS_COMMAND_TIMEOUT_MS", 500);
    plan.set("WORKER_BACKOFF_MAX_MS", 300)
}

struct Scene {
    // Dropped before the site, which holds their logs.
    fleet: Vec<Worker>,
    site: Site,
    proxies: Proxies,
}

impl Scene {
    /// Two workers in the middle of a rush.
    async fn open() -> Self {
        let site = Site::open().await;
        site.open_sale().await;
        let proxies = Proxies::start(&site).await;
        let fleet = ["v", "w"].map(|name| proxies.before(impatient(&site, name), &site).start());
        for worker in &fleet {
            worker.says("worker started").await;
        }
        site.rush(1_000, 1_000).await;
        site.add_poison().await;
        Self { site, proxies, fleet: fleet.into() }
    }

    async fn all_say(&self, text: &str) {
        for worker in &self.fleet {
            worker.says(text).await;
        }
    }

    /// All is done, also what comes afterwards.
    async fn recovers(self) {
        self.site.rush(5_000, 200).await;
        self.site.settled().await;
        self.site.invariants().await;
        for worker in self.fleet {
            assert!(worker.stop().await.success());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_and_restarted_with_its_file() {
    let scene = Scene::open().await;
    scene.site.redis.kill9().expect("Redis is killed");
    scene.all_say("outage began").await;
    scene.site.redis.restart().expect("Redis starts again");
    scene.all_say("outage over").await;
    for worker in &scene.fleet {
        assert_eq!(worker.log().matches("outage began").count(), 1, "one outage is told once");
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_falls_silent_and_goes_on() {
    let scene = Scene::open().await;
    scene.site.redis.stop().expect("Redis is stopped");
    scene.all_say("outage began").await;
    scene.site.redis.cont().expect("Redis goes on");
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_and_restarted_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..3 {
        scene.site.redis.restart().expect("Redis starts again");
        scene.site.rush(2_000 + round * 100, 100).await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_swallows_everything_for_a_while() {
    let scene = Scene::open().await;
    scene.proxies.redis.black_hole();
    scene.site.rush(2_000, 200).await;
    scene.all_say("outage began").await;
    scene.proxies.redis.pass();
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_are_killed_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..5 {
        let _: Value = scene.site.call("CLIENT KILL TYPE normal").await;
        scene.site.rush(2_000 + round * 100, 100).await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_are_cut_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..5 {
        scene.proxies.redis.cut_connections().await;
        scene.proxies.mysql.cut_connections().await;
        scene.site.rush(2_000 + round * 100, 100).await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_scripts_are_flushed_again_and_again() {
    let scene = Scene::open().await;
    for round in 0..5 {
        scene.site.call("SCRIPT FLUSH").await;
        scene.site.rush(2_000 + round * 100, 100).await;
        scene.site.add_poison().await;
    }
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_no_memory_for_a_while() {
    // No outage: what can be written is written, for only that makes room.
    let said = "Redis is out of memory: orders are written without user locks";
    redis_refuses_writes_between("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", said).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_a_replica_for_a_while() {
    redis_refuses_writes_between("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "outage began").await;
}

async fn redis_refuses_writes_between(begin: &str, end: &str, said: &str) {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    site.rush(1_000, 300).await;
    site.add_poison().await;
    let lock = proxies.redis.hold_when(LOCK);
    // The client connects anew after each refusal, which is several commands.
    let patient = |name| {
        impatient(&site, name).set("WORKER_BACKOFF_MAX_MS", 1_000).set("WORKER_HEARTBEAT_TTL_MS", 2_000)
    };
    let worker = proxies.before(patient("w"), &site).start();
    lock.reached().await.expect("a batch is in progress");
    site.call(begin).await;
    lock.release();
    worker.says(said).await;
    // It cannot begin now, and must not give up.
    let late = patient("late").start();
    late.says("Waiting for it").await;
    let requests = site.requests_within(Duration::from_secs(1)).await;
    // Where lanes go on, each refused order is tried again now and then; a hot loop would send tens of thousands.
    let most = if said == "outage began" { 200 } else { 1_000 };
    assert!(requests < most, "{requests} requests a second while Redis refuses to write");
    site.call(end).await;
    site.settled().await;
    site.invariants().await;
    late.says("worker started").await;
    assert_eq!(late.log().matches("Waiting for it").count(), 1);
    assert_eq!(worker.log().matches("outage began").count(), usize::from(said == "outage began"));
    for worker in [worker, late] {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_forgets_everything_while_a_batch_is_in_progress() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    site.rush(1_000, 300).await;
    let commit = proxies.mysql.hold_when(REFUSING_COMMIT);
    // Long enough for MySQL not to end the transaction meanwhile, also on a busy machine.
    let worker = proxies.before(quick(&site, "w").set("WORKER_CLAIM_IDLE_MS", 20_000), &site).start();
    commit.reached().await.expect("the batch is in progress");

    site.call("FLUSHALL").await;
    commit.release();
    worker.says("the consumer group was gone and has been made again").await;
    until("the batch in progress is written", || async { site.outcomes().await == 300 }).await;
    site.redis_has_forgotten().await;
    site.restock_redis(crate::site::rush::PLENTY, 10_000).await;
    site.restock_redis(crate::site::rush::SHORT, 10_000).await;
    site.rush(5_000, 200).await;
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_without_redis_waits_for_it_and_says_so_once() {
    let site = Site::open().await;
    site.open_sale().await;
    site.rush(1_000, 300).await;
    site.redis.kill9().expect("Redis is killed");
    let worker = impatient(&site, "w").start();
    worker.says("Waiting for it").await;
    // In the place of Redis: whoever tries again is seen, and gets nothing.
    let listener = TcpListener::bind(("127.0.0.1", site.redis.port())).await.expect("the port is free");
    for _ in 0..4 {
        let tried = timeout(DEADLINE, listener.accept()).await.expect("it tries again");
        drop(tried.expect("a connection"));
    }
    drop(listener);
    site.redis.restart().expect("Redis starts");
    site.settled().await;
    assert_eq!(worker.log().matches("Waiting for it").count(), 1);
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_its_name_waits_for_redis_too() {
    let site = Site::open().await;
    site.open_sale().await;
    site.rush(1_000, 100).await;
    let first = impatient(&site, "w").set("WORKER_HEARTBEAT_TTL_MS", 5_000).start();
    site.settled().await;
    first.kill9();
    site.rush(2_000, 100).await;
    let second = impatient(&site, "w").log_as("second").set("WORKER_HEARTBEAT_TTL_MS", 5_000).start();
    second.says("the name has a heartbeat").await;
    site.redis.kill9().expect("Redis is killed");
    second.says("Waiting for it").await;
    site.redis.restart().expect("Redis starts");
    site.settled().await;
    site.invariants().await;
    assert!(second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_comes_back_empty_and_that_is_told() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    let worker = proxies.before(impatient(&site, "w"), &site).start();
    worker.says("worker started").await;
    proxies.redis.cut().await;
    worker.says("outage began").await;
    site.call("FLUSHALL").await;
    proxies.redis.pass();
    worker.says("the consumer group was gone").await;
    worker.says("outage over").await;
    assert!(worker.stop().await.success());
}

//! Tests of the start and the stop of a worker: names, signals, deadlines, exit codes.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidegate_lab::{Hold, Proxy};

use crate::fixture::{Fixture, Worker, WorkerPlan, rush::SHORT};

/// The end of a batch, with its commit.
const COMMIT: &[u8] = b";COMMIT";
/// The time that a machine with other tests may need for a step that takes no time.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A fixture whose worker has a batch in progress that is about to be committed.
struct InProgress {
    // This field comes before the fixture, which holds the log, so that it is dropped first.
    worker: Worker,
    fixture: Fixture,
    commit: Hold,
    // The proxy is kept to the end, because its drop releases everything that it holds.
    _proxy: Proxy,
}

impl InProgress {
    async fn open(set: impl Fn(WorkerPlan) -> WorkerPlan) -> Self {
        let fixture = Fixture::open().await;
        fixture.open_sale().await;
        let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
        fixture.plain_rush(1_000, 300).await;
        let commit = proxy.hold_when(COMMIT);
        let plan = fixture.worker("w").set("WORKER_LANES", 1).set("MYSQL_URL", proxy.url_for(&fixture.mysql));
        // This time is long enough that MySQL does not end the transaction meanwhile, even on a busy machine.
        let worker = set(plan.set("WORKER_CLAIM_IDLE_MS", 20_000)).start();
        commit.reached().await.expect("a batch is in progress");
        Self { fixture, worker, commit, _proxy: proxy }
    }
}

async fn the_batch_in_progress_is_finished_on(signal: Signal) {
    let InProgress { fixture, mut worker, commit, _proxy } = InProgress::open(|plan| plan).await;
    worker.signal(signal);
    worker.says("stopping").await;
    fixture.plain_rush(2_000, 50).await;
    commit.release();
    assert_eq!(worker.ended().await.code(), Some(0));
    assert_eq!(fixture.orders().await.len(), 300, "the batch in progress is written");
    assert_eq!(fixture.open_entries().await, Some(50), "nothing else was read");
    assert_eq!(fixture.pending().await, 0);

    let next = fixture.worker("w").start();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(next.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_the_batch_in_progress_and_ends_with_0() {
    the_batch_in_progress_is_finished_on(Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_finishes_the_batch_in_progress_and_ends_with_0() {
    the_batch_in_progress_is_finished_on(Signal::SIGINT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once_and_nothing_is_lost() {
    let InProgress { fixture, mut worker, commit, _proxy } = InProgress::open(|plan| plan).await;
    worker.signal(Signal::SIGTERM);
    worker.says("stopping").await;
    let begin = Instant::now();
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.ended().await.code(), Some(4));
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    commit.cut();
    the_next_one_does_it(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_passes_ends_it_with_4_and_nothing_is_lost() {
    let InProgress { fixture, mut worker, commit, _proxy } =
        InProgress::open(|plan| plan.set("WORKER_STOP_DEADLINE_MS", 500)).await;
    let begin = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().await.code(), Some(4));
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_millis(500) + AT_ONCE, "{:?}", begin.elapsed());
    commit.cut();
    the_next_one_does_it(&fixture).await;
}

/// Checks that all entries are still pending, and that another worker writes them.
async fn the_next_one_does_it(fixture: &Fixture) {
    assert_eq!((fixture.pending().await, fixture.orders().await.len()), (300, 0));
    let next = fixture.worker("w").set("WORKER_LOCK_LEASE_MS", 500).start();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(next.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_ends_at_once_however_long_its_reads_wait() {
    let fixture = Fixture::open().await;
    let mut worker = fixture.worker("w").set("WORKER_BLOCK_MS", 5_000).start();
    worker.says("worker started").await;
    // A round of orders shows that the worker has come to its blocking read.
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 10).await;
    fixture.settled().await;
    let begin = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().await.code(), Some(0));
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_redis_obeys_a_signal_at_once() {
    let fixture = Fixture::open().await;
    fixture.redis.kill9().expect("Redis is killed");
    let worker = fixture.worker("w").start();
    worker.says("Waiting for Redis").await;
    ends_at_once(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_mysql_obeys_a_signal_at_once() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.mysql.kill9().expect("MySQL is killed");
    let worker = fixture.worker("w").start();
    worker.says("outage began").await;
    ends_at_once(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_obeys_a_signal_at_once_while_mysql_says_nothing() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.mysql.stop().expect("MySQL is stopped");
    // The worker first queries MySQL, which may take this long.
    let worker = fixture.worker("w").set("MYSQL_ACQUIRE_TIMEOUT_MS", 20_000).start();
    worker.says("consumer group created").await;
    ends_at_once(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_its_name_obeys_a_signal_at_once() {
    let fixture = Fixture::open().await;
    fixture.call("SET tidegate:worker:w somebody PX 60000").await;
    let worker = fixture.worker("w").set("WORKER_HEARTBEAT_TTL_MS", 60_000).start();
    worker.says("checking whether another live process has this name").await;
    ends_at_once(worker).await;
}

async fn ends_at_once(mut worker: Worker) {
    let begin = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().await.code(), Some(0));
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_no_worker_wrote_is_named_with_what_to_delete() {
    let fixture = Fixture::open().await;
    for (wrong, told) in [("SET", "holds \"x\", which never expires"), ("SADD", "holds a set")] {
        fixture.call(&format!("{wrong} tidegate:worker:w x")).await;
        let mut worker = fixture.worker("w").set("WORKER_HEARTBEAT_TTL_MS", 900).log_as(wrong).start();
        assert_eq!(worker.ended().await.code(), Some(3));
        let log = worker.log();
        assert!(log.contains(told) && log.contains("redis-cli DEL tidegate:worker:w"), "{log}");
        fixture.call("DEL tidegate:worker:w").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_of_a_name_is_refused_with_5_and_told_why() {
    let fixture = Fixture::open().await;
    let first = fixture.worker("same").set("WORKER_HEARTBEAT_TTL_MS", 900).start();
    first.says("worker started").await;
    let mut second = fixture.worker("same").set("WORKER_HEARTBEAT_TTL_MS", 900).log_as("second").start();
    assert_eq!(second.ended().await.code(), Some(5));
    let log = second.log();
    assert!(log.contains("another live worker is named \"same\": pid "), "{log}");
    assert!(log.contains("TIDEGATE_WORKER_NAME"), "{log}");
    assert!(first.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_started_again_under_its_name_and_goes_on_with_its_batch() {
    // The entries of a worker are its own, so it does not wait until they may be claimed.
    let claim_never = |plan: WorkerPlan| plan.set("WORKER_CLAIM_IDLE_MS", 600_000);
    let InProgress { fixture, worker, commit, _proxy } = InProgress::open(claim_never).await;
    worker.kill9();
    commit.cut();
    let again = claim_never(fixture.worker("w")).start();
    again.says("checking whether another live process has this name").await;
    again.says("worker started").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(again.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_as_soon_as_its_worker_has_stopped() {
    let fixture = Fixture::open().await;
    let first = fixture.worker("w").set("WORKER_HEARTBEAT_TTL_MS", 600_000).start();
    first.says("worker started").await;
    assert!(first.stop().await.success());
    let second = fixture.worker("w").set("WORKER_HEARTBEAT_TTL_MS", 600_000).start();
    second.says("worker started").await;
    assert!(second.stop().await.success());
}

#[cfg(not(feature = "otel"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_built_without_traces_says_so_where_some_are_wanted() {
    let fixture = Fixture::open().await;
    let worker = fixture.worker("w").variable("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318").start();
    worker.says("worker started").await;
    assert!(worker.log().contains("this program was built without traces"), "{}", worker.log());
    assert!(worker.stop().await.success());
    let worker = fixture.worker("w").variable("OTEL_SDK_DISABLED", "true").log_as("w-2").start();
    worker.says("worker started").await;
    assert!(!worker.log().contains("traces"), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sold_out_rush_has_a_few_lines_in_the_log_and_a_sum() {
    let fixture = Fixture::open().await;
    fixture.load(SHORT, 10).await;
    for order in 1..=500 {
        fixture.add_order(order, order, SHORT).await;
    }
    let mut worker = fixture.worker("w").set("WORKER_LANES", 4).set("WORKER_BATCH", 20).start();
    fixture.settled().await;
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().await.success());
    let log = worker.log();
    assert_eq!(fixture.orders().await.len(), 10);
    assert_eq!(log.matches("order refused order=").count(), 3, "{log}");
    assert_eq!(log.matches("more orders were refused").count(), 1, "{log}");
    assert!(log.contains("reason=\"out_of_stock\" count=487"), "{log}");
}

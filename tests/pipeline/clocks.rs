//! Tests of clocks that are set an hour ahead and back while workers run, as docs/clocks.md describes.

use tidegate_lab::{Clock, MysqlServer, Proxy};

use crate::{
    browser::get,
    fixture::{Fixture, Worker, WorkerPlan, durable_redis, rush::PLENTY, until},
};

/// Far more than [`until`] waits, so a wait for a clock would fail the test.
const HOUR_S: i64 = 3_600;

async fn redis_by(clock: &Clock) -> Fixture {
    let redis = durable_redis().clock(clock).start();
    Fixture::on(redis.expect("a Redis"), MysqlServer::shared().expect("a database")).await.migrated().await
}

async fn mysql_by(clock: &Clock) -> Fixture {
    let redis = durable_redis().start().expect("a Redis");
    let mysql = MysqlServer::options().clock(clock).start().expect("a MySQL");
    Fixture::on(redis, mysql).await.migrated().await
}

fn by(clock: &Clock, plan: WorkerPlan) -> WorkerPlan {
    clock
        .variables()
        .into_iter()
        .fold(plan, |plan, (name, value)| plan.variable(name, value.to_string_lossy()))
}

/// Sets the clock again and again while workers write orders. All orders must be written.
async fn set_under_load(fixture: &Fixture, clock: &Clock, workers: &[Worker]) {
    let mut first = 1_000;
    for ahead in [HOUR_S, 0, -HOUR_S, 0] {
        fixture.rush(first, 300).await;
        first += 1_000;
        clock.set_ahead_by(ahead).expect("the clock is set");
        fixture.rush(first, 300).await;
        first += 1_000;
        fixture.settled().await;
        for worker in workers {
            assert_eq!(get(worker, "/livez").await.status, 200);
        }
    }
    fixture.invariants().await;
    for worker in workers {
        let log = worker.log();
        assert!(!log.contains("outage began"), "{log}");
        assert!(!log.contains("another live worker is named"), "{log}");
    }
}

async fn stop(workers: Vec<Worker>) {
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_redis_is_set_ahead_and_back_and_every_order_is_written_once() {
    let clock = Clock::start().expect("a clock");
    let fixture = redis_by(&clock).await;
    fixture.open_sale().await;
    let workers = vec![fixture.worker("a").start(), fixture.worker("b").start()];
    set_under_load(&fixture, &clock, &workers).await;
    stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_mysql_is_set_ahead_and_back_and_every_order_is_written_once() {
    let clock = Clock::start().expect("a clock");
    let fixture = mysql_by(&clock).await;
    fixture.open_sale().await;
    let workers = vec![fixture.worker("a").start(), fixture.worker("b").start()];
    set_under_load(&fixture, &clock, &workers).await;
    stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_worker_is_set_ahead_and_back_and_nothing_but_its_log_shows_it() {
    let clock = Clock::start().expect("a clock");
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let workers = vec![by(&clock, fixture.worker("a")).start(), fixture.worker("b").start()];
    set_under_load(&fixture, &clock, &workers).await;
    stop(workers).await;
}

/// Another session holds the row of a voucher when the clock of MySQL is set back. If the server waited for a time of
/// its wall clock, the wait would end in an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_held_row_does_not_last_until_the_clock_of_mysql_has_caught_up() {
    let clock = Clock::start().expect("a clock");
    let fixture = mysql_by(&clock).await;
    fixture.open_sale().await;
    let mut holder = fixture.pool.begin().await.expect("a transaction");
    let hold = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
    sqlx::query(hold).bind(PLENTY).execute(&mut *holder).await.expect("the row is held");
    let plan = fixture.worker("w").set("WORKER_LANES", 1);
    let worker = plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 6_000).start();
    worker.says("worker started").await;
    fixture.plain_rush(1_000, 20).await;
    until("a batch waits for the row", || async { fixture.pending().await > 0 }).await;
    clock.set_ahead_by(-HOUR_S).expect("the clock is set");
    fixture.load(3, 1).await;
    fixture.admit(9_000, 9_000, 3, 1).await;
    until("another voucher's order is written", || async { fixture.orders().await.len() == 1 }).await;
    assert_eq!(get(&worker, "/livez").await.status, 200);
    holder.rollback().await.expect("the row is free");
    all_is_written(&fixture).await;
    assert!(worker.stop().await.success());
}

/// The number of turns of each lane.
pub async fn turns(worker: &Worker) -> Vec<u64> {
    let status = get(worker, "/status").await.json();
    let lanes = status["worker"]["lanes"].as_array().expect("lanes").clone();
    lanes.iter().map(|lane| lane["turns"].as_u64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_of_redis_that_is_set_back_is_told_and_holds_up_no_idle_lane() {
    let clock = Clock::start().expect("a clock");
    let fixture = redis_by(&clock).await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    worker.says("worker started").await;
    until("all lanes look for entries", || async { turns(&worker).await.iter().all(|turns| *turns > 2) })
        .await;
    clock.set_ahead_by(-HOUR_S).expect("the clock is set");
    worker.says("the clock of Redis was set back").await;
    let before = turns(&worker).await;
    until("all lanes look for entries again", || async {
        turns(&worker).await.iter().zip(&before).all(|(now, before)| now > &(before + 2))
    })
    .await;
    assert_eq!(get(&worker, "/livez").await.status, 200);
    fixture.plain_rush(1_000, 100).await;
    all_is_written(&fixture).await;
    // Redis 7 keeps blocking the reads, and the worker closes their connections.
    let log = worker.log();
    assert_eq!(log.matches("outage began").count(), log.matches("outage over").count(), "{log}");
    clock.set_ahead_by(0).expect("the clock is set");
    worker.says("the clock of Redis was set ahead").await;
    assert!(worker.stop().await.success());
}

/// A worker that is killed with orders in progress and locked users. Then the clock of Redis is set back by an hour.
async fn killed_before_an_hour_comes_again() -> (Clock, Fixture) {
    let clock = Clock::start().expect("a clock");
    let fixture = redis_by(&clock).await;
    fixture.open_sale().await;
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let commit = mysql.hold_when(";COMMIT");
    let victim = fixture
        .worker("victim")
        .set("WORKER_LANES", 1)
        .set("MYSQL_URL", mysql.url_for(&fixture.mysql))
        .start();
    fixture.plain_rush(1_000, 100).await;
    commit.reached().await.expect("a batch is in progress");
    victim.kill9();
    clock.set_ahead_by(-HOUR_S).expect("the clock is set");
    (clock, fixture)
}

async fn all_is_written(fixture: &Fixture) {
    fixture.settled().await;
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_starts_again_under_its_name_although_its_heartbeat_would_end_in_an_hour() {
    let (_clock, fixture) = killed_before_an_hour_comes_again().await;
    let worker = fixture.worker("victim").start();
    all_is_written(&fixture).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_had_in_progress_is_taken_over_although_it_was_delivered_in_an_hour() {
    let (_clock, fixture) = killed_before_an_hour_comes_again().await;
    let worker = fixture.worker("heir").start();
    all_is_written(&fixture).await;
    assert!(worker.stop().await.success());
}

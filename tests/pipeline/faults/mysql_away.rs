//! Tests of MySQL outages of all kinds: no entry is blamed, and the workers recover by themselves.

use std::time::Duration;

use fred::types::Value;
use sqlx::{AssertSqlSafe, MySqlPool};

use crate::{
    faults::proxies::quick,
    fixture::{Fixture, Worker, WorkerPlan, rush::PLENTY, until},
};

const LANES: usize = 2;
const BATCH: usize = 50;

/// A worker that quickly notices the begin and the end of an outage of MySQL.
fn impatient(fixture: &Fixture) -> WorkerPlan {
    let plan = quick(fixture, "w").set("WORKER_LANES", LANES).set("WORKER_BATCH", BATCH);
    let plan = plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 1_200);
    plan.set("MYSQL_ACQUIRE_TIMEOUT_MS", 500).set("WORKER_BACKOFF_MAX_MS", 300)
}

struct Scene {
    // This field comes before the fixture, which holds the log, so that it is dropped first.
    worker: Worker,
    fixture: Fixture,
}

impl Scene {
    async fn open() -> Self {
        let fixture = Fixture::with_own_mysql().await;
        fixture.open_sale().await;
        let worker = impatient(&fixture).start();
        fixture.rush(1_000, 200).await;
        fixture.add_poison().await;
        fixture.settled().await;
        Self { fixture, worker }
    }

    /// Adds orders during the outage. They wait in the stream: few are pending, and none is buried.
    async fn rush_in_outage(&self) {
        self.fixture.rush(2_000, 1_000).await;
        self.worker.says("outage began").await;
        // The time is long enough for several probes.
        let requests = self.fixture.requests_within(Duration::from_secs(1)).await;
        assert!(requests < 150, "{requests} requests a second while MySQL is away");
        let pending = self.fixture.pending().await;
        assert!(pending <= LANES * BATCH, "{pending} are pending");
        assert_eq!(self.fixture.dead().await.len(), 2, "only the poison is buried");
    }

    /// Checks that all orders are handled after the outage, and that it was logged once.
    async fn recovers(self) {
        self.fixture.settled().await;
        self.fixture.invariants().await;
        let log = self.worker.log();
        let told = (log.matches("outage began").count(), log.matches("outage over").count());
        assert_eq!(told, (1, 1), "one outage is told once:\n{}", lines_with(&log, "outage"));
        assert!(self.worker.stop().await.success());
    }
}

fn lines_with(log: &str, text: &str) -> String {
    log.lines().filter(|line| line.contains(text)).collect::<Vec<_>>().join("\n")
}

async fn sql(pool: &MySqlPool, statement: impl Into<String>) {
    let statement = statement.into();
    let outcome = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(pool).await;
    outcome.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_is_killed_and_restarted() {
    let scene = Scene::open().await;
    scene.fixture.mysql.kill9().expect("MySQL is killed");
    scene.rush_in_outage().await;
    scene.fixture.mysql.restart().expect("MySQL starts again");
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_falls_silent_and_goes_on() {
    let scene = Scene::open().await;
    scene.fixture.mysql.stop().expect("MySQL is stopped");
    scene.rush_in_outage().await;
    scene.fixture.mysql.cont().expect("MySQL goes on");
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_is_read_only_for_a_while() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.open_sale().await;
    // The lab's own user has every right, which includes writing to a read-only server.
    sql(&fixture.pool, "CREATE USER clerk@'%'; GRANT ALL ON tidegate.* TO clerk@'%'").await;
    let worker =
        impatient(&fixture).set("MYSQL_URL", fixture.mysql.url().replace("tidegate@", "clerk@")).start();
    fixture.rush(1_000, 200).await;
    fixture.add_poison().await;
    fixture.settled().await;
    let scene = Scene { fixture, worker };
    sql(&scene.fixture.pool, "SET GLOBAL read_only = 1").await;
    scene.rush_in_outage().await;
    sql(&scene.fixture.pool, "SET GLOBAL read_only = 0").await;
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_orders_is_missing_for_a_while() {
    a_table_is_missing_for_a_while("tb_voucher_order").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_vouchers_is_missing_for_a_while() {
    a_table_is_missing_for_a_while("tb_seckill_voucher").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_refusals_is_missing_for_a_while() {
    a_table_is_missing_for_a_while("tidegate_refusal").await;
}

async fn a_table_is_missing_for_a_while(table: &str) {
    let scene = Scene::open().await;
    sql(&scene.fixture.pool, format!("RENAME TABLE {table} TO elsewhere")).await;
    scene.rush_in_outage().await;
    sql(&scene.fixture.pool, format!("RENAME TABLE elsewhere TO {table}")).await;
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_sessions_are_killed_at_once() {
    let scene = Scene::open().await;
    kill_sessions(&scene.fixture).await;
    scene.fixture.rush(2_000, 1_000).await;
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_killed_again_and_again_while_they_write() {
    let Scene { fixture, worker } = Scene::open().await;
    let killed_often = async {
        for _ in 0..10 {
            kill_sessions(&fixture).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::join!(fixture.rush(2_000, 1_000), killed_often);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_connections_are_not_tried_one_by_one() {
    const MANY: usize = 8;
    let fixture = Fixture::with_own_mysql().await;
    fixture.open_sale().await;
    let plan =
        fixture.worker("w").set("WORKER_LANES", MANY).set("WORKER_BATCH", 5).set("MYSQL_WRITERS", MANY);
    let worker = plan.set("WORKER_CLAIM_IDLE_MS", 60_000).start();
    // All lanes wait for one row at the same time, each on its own connection.
    let mut other = fixture.pool.begin().await.expect("a transaction");
    let lock = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
    sqlx::query(lock).bind(PLENTY).execute(&mut *other).await.expect("the row is locked");
    fixture.plain_rush(1_000, 200).await;
    until("all lanes are connected", || async { sessions(&fixture).await.len() > MANY }).await;
    other.rollback().await.expect("the row is free");
    fixture.settled().await;

    kill_sessions(&fixture).await;
    fixture.plain_rush(2_000, 1).await;
    fixture.settled().await;
    fixture.invariants().await;
    let knocks = worker.log().matches("the store is still unavailable").count();
    assert_eq!(knocks, 0, "the first knock is answered");
    assert!(worker.stop().await.success());
}

/// The sessions of the workers and of the fixture, without this one.
async fn sessions(fixture: &Fixture) -> Vec<i64> {
    let sessions = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                    WHERE user = 'tidegate' AND id <> CONNECTION_ID()";
    sqlx::query_scalar(sessions).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

async fn kill_sessions(fixture: &Fixture) {
    for session in sessions(fixture).await {
        // The session may have ended by itself.
        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&fixture.pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_wait_for_a_row_that_others_hold_locked() {
    let Scene { fixture, worker } = Scene::open().await;
    let mut other = fixture.pool.begin().await.expect("a transaction");
    let lock = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
    sqlx::query(lock).bind(PLENTY).execute(&mut *other).await.expect("the row is locked");
    fixture.rush(2_000, 200).await;
    until("orders wait", || async { fixture.pending().await > 0 }).await;
    let requests = fixture.requests_within(Duration::from_secs(1)).await;
    assert!(requests < 150, "{requests} requests a second while a row is locked");
    other.rollback().await.expect("the row is free");
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_without_mysql_waits_for_it() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.open_sale().await;
    fixture.mysql.kill9().expect("MySQL is killed");
    fixture.rush(1_000, 300).await;
    let worker = impatient(&fixture).start();
    let scene = Scene { fixture, worker };
    scene.worker.says("worker started").await;
    scene.worker.says("outage began").await;
    let _: Value = scene.fixture.call("PING").await;
    assert_eq!(scene.fixture.pending().await, 0, "nothing is read while MySQL is away");
    scene.fixture.mysql.restart().expect("MySQL starts");
    scene.recovers().await;
}

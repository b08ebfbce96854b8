//! MySQL is away, in every way in which a database can be: no entry is at fault, and all goes on by itself.

use std::time::Duration;

use fred::types::Value;
use sqlx::{AssertSqlSafe, MySqlPool};

use crate::{
    faults::proxies::quick,
    site::{Site, Worker, WorkerPlan, rush::PLENTY, until},
};

const LANES: usize = 2;
const BATCH: usize = 50;

/// A worker that notices quickly that MySQL does not answer, and that it does again.
fn impatient(site: &Site) -> WorkerPlan {
    let plan = quick(site, "w").set("WORKER_LANES", LANES).set("WORKER_BATCH", BATCH);
    let plan = plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 1_200);
    plan.set("MYSQL_ACQUIRE_TIMEOUT_MS", 500).set("WORKER_BACKOFF_MAX_MS", 300)
}

struct Scene {
    // Dropped before the site, which holds its log.
    worker: Worker,
    site: Site,
}

impl Scene {
    async fn open() -> Self {
        let site = Site::with_own_mysql().await;
        site.open_sale().await;
        let worker = impatient(&site).start();
        site.rush(1_000, 200).await;
        site.add_poison().await;
        site.settled().await;
        Self { site, worker }
    }

    /// Orders come in while MySQL is away. They wait in the stream: little is pending, nothing is buried.
    async fn rush_in_outage(&self) {
        self.site.rush(2_000, 1_000).await;
        self.worker.says("outage began").await;
        // Long enough for several knocks; nothing is waited for here.
        let requests = self.site.requests_within(Duration::from_secs(1)).await;
        assert!(requests < 150, "{requests} requests a second while MySQL is away");
        let pending = self.site.pending().await;
        assert!(pending <= LANES * BATCH, "{pending} are pending");
        assert_eq!(self.site.dead().await.len(), 2, "only the poison is buried");
    }

    /// MySQL is back. All is done, and the outage was told once.
    async fn recovers(self) {
        self.site.settled().await;
        self.site.invariants().await;
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
    scene.site.mysql.kill9().expect("MySQL is killed");
    scene.rush_in_outage().await;
    scene.site.mysql.restart().expect("MySQL starts again");
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_falls_silent_and_goes_on() {
    let scene = Scene::open().await;
    scene.site.mysql.stop().expect("MySQL is stopped");
    scene.rush_in_outage().await;
    scene.site.mysql.cont().expect("MySQL goes on");
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_is_read_only_for_a_while() {
    let site = Site::with_own_mysql().await;
    site.open_sale().await;
    // The lab's own user has every right, which includes writing to a read-only server.
    sql(&site.pool, "CREATE USER clerk@'%'; GRANT ALL ON tidegate.* TO clerk@'%'").await;
    let worker = impatient(&site).set("MYSQL_URL", site.mysql.url().replace("tidegate@", "clerk@")).start();
    site.rush(1_000, 200).await;
    site.add_poison().await;
    site.settled().await;
    let scene = Scene { site, worker };
    sql(&scene.site.pool, "SET GLOBAL read_only = 1").await;
    scene.rush_in_outage().await;
    sql(&scene.site.pool, "SET GLOBAL read_only = 0").await;
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
    sql(&scene.site.pool, format!("RENAME TABLE {table} TO elsewhere")).await;
    scene.rush_in_outage().await;
    sql(&scene.site.pool, format!("RENAME TABLE elsewhere TO {table}")).await;
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_sessions_are_killed_at_once() {
    let scene = Scene::open().await;
    kill_sessions(&scene.site).await;
    scene.site.rush(2_000, 1_000).await;
    scene.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_killed_again_and_again_while_they_write() {
    let Scene { site, worker } = Scene::open().await;
    let killed_often = async {
        for _ in 0..10 {
            kill_sessions(&site).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::join!(site.rush(2_000, 1_000), killed_often);
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_connections_are_not_tried_one_by_one() {
    const MANY: usize = 8;
    let site = Site::with_own_mysql().await;
    site.open_sale().await;
    let plan = site.worker("w").set("WORKER_LANES", MANY).set("WORKER_BATCH", 5).set("MYSQL_WRITERS", MANY);
    let worker = plan.set("WORKER_CLAIM_IDLE_MS", 60_000).start();
    // All lanes wait for one row at once, each with a connection of its own.
    let mut other = site.pool.begin().await.expect("a transaction");
    let lock = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
    sqlx::query(lock).bind(PLENTY).execute(&mut *other).await.expect("the row is locked");
    site.plain_rush(1_000, 200).await;
    until("all lanes are connected", || async { sessions(&site).await.len() > MANY }).await;
    other.rollback().await.expect("the row is free");
    site.settled().await;

    kill_sessions(&site).await;
    site.plain_rush(2_000, 1).await;
    site.settled().await;
    site.invariants().await;
    let knocks = worker.log().matches("the store is still away").count();
    assert_eq!(knocks, 0, "the first knock is answered");
    assert!(worker.stop().await.success());
}

/// The sessions of workers, and the site's own but for this one.
async fn sessions(site: &Site) -> Vec<i64> {
    let sessions = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                    WHERE user = 'tidegate' AND id <> CONNECTION_ID()";
    sqlx::query_scalar(sessions).fetch_all(&site.pool).await.expect("MySQL answers")
}

async fn kill_sessions(site: &Site) {
    for session in sessions(site).await {
        // It may have gone by itself.
        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&site.pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_wait_for_a_row_that_others_hold_locked() {
    let Scene { site, worker } = Scene::open().await;
    let mut other = site.pool.begin().await.expect("a transaction");
    let lock = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
    sqlx::query(lock).bind(PLENTY).execute(&mut *other).await.expect("the row is locked");
    site.rush(2_000, 200).await;
    until("orders wait", || async { site.pending().await > 0 }).await;
    let requests = site.requests_within(Duration::from_secs(1)).await;
    assert!(requests < 150, "{requests} requests a second while a row is locked");
    other.rollback().await.expect("the row is free");
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_without_mysql_waits_for_it() {
    let site = Site::with_own_mysql().await;
    site.open_sale().await;
    site.mysql.kill9().expect("MySQL is killed");
    site.rush(1_000, 300).await;
    let worker = impatient(&site).start();
    let scene = Scene { site, worker };
    scene.worker.says("worker started").await;
    scene.worker.says("outage began").await;
    let _: Value = scene.site.call("PING").await;
    assert_eq!(scene.site.pending().await, 0, "nothing is read while MySQL is away");
    scene.site.mysql.restart().expect("MySQL starts");
    scene.recovers().await;
}

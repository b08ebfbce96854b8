//! Tests of entries that are set aside: they delay no others, and commands and pages show them.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::{
    browser::{get, until_page},
    clocks::turns,
    fixture::{Fixture, Worker, until},
    program::Program,
};

const VOUCHERS: i64 = 40;

async fn hold_rows(session: &mut MySqlConnection, vouchers: impl IntoIterator<Item = i64>) {
    let ids: Vec<String> = vouchers.into_iter().map(|id| id.to_string()).collect();
    let sql =
        format!("SELECT stock FROM tb_seckill_voucher WHERE voucher_id IN ({}) FOR UPDATE", ids.join(","));
    sqlx::query(AssertSqlSafe(sql)).execute(&mut *session).await.expect("the rows are held");
}

async fn set_aside(worker: &Worker) -> f64 {
    let samples = get(worker, "/metrics").await.samples();
    samples
        .iter()
        .filter(|(name, _)| name.starts_with("tidegate_entries_set_aside{"))
        .map(|(_, value)| value)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_forty_vouchers_twenty_are_held_and_the_others_are_written_at_once_and_no_lane_is_stuck() {
    let fixture = Fixture::open().await;
    for voucher in 101..=100 + VOUCHERS {
        fixture.load(voucher, 1_000).await;
    }
    let worker = fixture
        .worker("w")
        .set("WORKER_LANES", 2)
        .set("WORKER_BATCH", 100)
        .set("MYSQL_STATEMENT_TIMEOUT_MS", 3_000)
        .set("ADMIN_STUCK_AFTER_MS", 6_000)
        .start();
    worker.says("worker started").await;
    let mut session = fixture.pool.acquire().await.expect("a session");
    // Otherwise, the session would lock every row that it reads.
    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    sqlx::query(isolation).execute(&mut *session).await.expect("it is set");
    let mut other = session.begin().await.expect("a transaction");
    hold_rows(&mut other, 101..=120).await;
    for at in 0..1_200 {
        fixture.add_order(10_000 + at, 1 + at, 101 + at % VOUCHERS).await;
    }
    until("the free ones are written", || async { fixture.orders().await.len() == 600 }).await;
    until("the others are set aside", || async { set_aside(&worker).await >= 590.0 }).await;
    // New orders of free vouchers do not wait behind them.
    for at in 0..20 {
        fixture.add_order(20_000 + at, 20_000 + at, 121 + at % 20).await;
    }
    until("new ones are written", || async { fixture.orders().await.len() == 620 }).await;
    let before = turns(&worker).await;
    until("every lane goes on turning", || async {
        turns(&worker).await.iter().zip(&before).all(|(now, before)| now > &(before + 5))
    })
    .await;
    let program = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url());
    until("others are told", || async {
        let shown = program.run("status --json").expect(0).json()["stream"]["set_aside"].clone();
        shown["entries"].as_u64().is_some_and(|entries| entries > 550)
            && shown["causes"][0]["kind"] == "voucher_row"
    })
    .await;
    let shown = program.run("status").expect(0).all();
    assert!(shown.contains("set aside for") && shown.contains("voucher_row"), "{shown}");

    other.rollback().await.expect("the rows are free");
    fixture.settled().await;
    fixture.invariants().await;
    until_page(&worker, "/livez", 200, "alive").await;
    until("nothing is set aside any more", || async { set_aside(&worker).await == 0.0 }).await;
    let status = || program.run("status --json").expect(0).json()["stream"]["set_aside"]["entries"].as_u64();
    until("status says so", || async { status() == Some(0) }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_list_tells_what_is_set_aside_and_an_operator_can_bury_it() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.redis_says(&["SET", "lock:order:1005", "somebody"]).await;
    let worker = fixture.worker("w").start();
    fixture.plain_rush(1_000, 10).await;
    until("all others are written", || async { fixture.orders().await.len() == 9 }).await;
    let program = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url());
    until("it is shown as set aside", || async {
        let list = program.run("pending list --json").expect(0).json();
        list["entries"].as_array().is_some_and(|all| {
            let entry = all.first();
            let cause = entry.map(|entry| (&entry["waits_for"]["kind"], &entry["waits_for"]["key"]));
            all.len() == 1
                && all[0]["set_aside"] == true
                && cause == Some((&"user_lock".into(), &"1005".into()))
        })
    })
    .await;
    let entry = program.run("pending list --json").expect(0).json()["entries"][0]["entry"].clone();
    let entry = entry.as_str().expect("an id");
    // Whenever the entry is tried again, it is in progress for a moment.
    until("people are shown so, too", || async {
        let list = program.run("pending list --set-aside").expect(0).stdout;
        let shown = program.run(&format!("pending show {entry}")).expect(0).stdout;
        list.contains("set aside: user_lock 1005")
            && shown.contains("crashes     0")
            && shown.contains("it has been waiting for user_lock 1005 for")
    })
    .await;
    worker.kill9();
    until("its worker counts as gone", || async {
        program.run(&format!("pending bury {entry} --why test --yes")).code == 0
    })
    .await;
    assert_eq!(fixture.open_entries().await, Some(0));
}

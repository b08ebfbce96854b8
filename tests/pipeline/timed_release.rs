//! Tests of orders that are not paid in time. They expire once and soon, but not if their payment is in the stream, and
//! not while one store is older than the other.

use std::{path::Path, time::Duration};

use fred::interfaces::{KeysInterface, StreamsInterface};
use futures_util::{StreamExt, stream};
use sqlx::AssertSqlSafe;
use tidegate_lab::Endpoint;
use tidegate_orders::scripts::{Admission, AdmitReply};
use tokio::time::{Instant, sleep};

use crate::{
    faults::proxies::{CHECKED_COMMIT, Proxies, quick},
    fixture::{Fixture, STREAM, until},
};

/// Puts a voucher on sale whose orders have to be paid within this many seconds.
async fn load_timed<M: Endpoint>(fixture: &Fixture<M>, voucher: i64, stock: i64, within_s: i64) {
    fixture.load(voucher, stock).await;
    sql(
        fixture,
        &format!("UPDATE tb_seckill_voucher SET pay_within = {within_s} WHERE voucher_id = {voucher}"),
    )
    .await;
}

async fn sql<M: Endpoint>(fixture: &Fixture<M>, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&fixture.pool).await.expect("MySQL answers");
}

async fn number<M: Endpoint>(fixture: &Fixture<M>, select: &str) -> i64 {
    let select = format!("SELECT CAST(({select}) AS SIGNED)");
    sqlx::query_scalar(AssertSqlSafe(select)).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

/// The number of orders with this status.
async fn with_status<M: Endpoint>(fixture: &Fixture<M>, status: i64) -> i64 {
    number(fixture, &format!("SELECT COUNT(*) FROM tb_voucher_order WHERE status = {status}")).await
}

async fn unpaid_with_limit<M: Endpoint>(fixture: &Fixture<M>) -> i64 {
    number(fixture, "SELECT COUNT(*) FROM tidegate_unpaid_order").await
}

async fn add_paid<M: Endpoint>(fixture: &Fixture<M>, order: i64, user: i64, voucher: i64) {
    let (order, user, voucher) = (order.to_string(), user.to_string(), voucher.to_string());
    let fields =
        [("event", "paid"), ("orderId", &*order), ("userId", &user), ("voucherId", &voucher), ("ref", "p")];
    fixture.add(&fields).await;
}

async fn all_is_well<M: Endpoint>(fixture: &Fixture<M>) {
    assert_eq!(fixture.dead().await, [], "nothing is buried");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_not_paid_is_released_within_two_seconds_of_being_due_and_no_other_is() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    fixture.load(2, 10).await;
    fixture.admit(1, 1, 1, 1).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    // From now on, orders of this voucher have a time limit; written orders stay unchanged.
    sql(&fixture, "UPDATE tb_seckill_voucher SET pay_within = 1 WHERE voucher_id = 1").await;
    for order in [2, 3, 4] {
        fixture.admit(order, order, 1, 2).await;
    }
    fixture.admit(5, 5, 2, 1).await;
    add_paid(&fixture, 3, 3, 1).await;
    let limits = "FROM tidegate_unpaid_order WHERE order_id IN (2, 4)";
    until("those that nobody pays have a limit", || async {
        number(&fixture, &format!("SELECT COUNT(*) {limits}")).await == 2
    })
    .await;
    let due = number(&fixture, &format!("SELECT MAX(due_ms) {limits}")).await;
    until("two have expired", || async { with_status(&fixture, 4).await == 2 }).await;
    let late = "SELECT MAX(UNIX_TIMESTAMP(at) * 1000) FROM tidegate_event WHERE event = 'expired'";
    let late = number(&fixture, late).await - due;
    assert!((0..2_000).contains(&late), "{late} ms after it was due");
    fixture.settled().await;
    assert_eq!((fixture.mysql_stock(1).await, fixture.redis_stock(1).await), (7, Some(7)));
    assert_eq!(unpaid_with_limit(&fixture).await, 0);
    // A user whose order has expired orders again.
    fixture.admit(12, 2, 1, 1).await;
    add_paid(&fixture, 12, 2, 1).await;
    until("it is paid", || async { with_status(&fixture, 2).await == 2 }).await;
    fixture.settled().await;
    assert_eq!(with_status(&fixture, 1).await, 2, "the order without a limit, and the one from before");
    let reason =
        "SELECT COUNT(*) FROM tidegate_event WHERE event = 'expired' AND reason = 'not_paid_in_time'";
    assert_eq!(number(&fixture, reason).await, 2);
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
    assert!(
        !fixture.client.exists::<bool, _>("tidegate:sweeper").await.expect("Redis answers"),
        "it is released"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_is_loaded_with_the_time_in_which_its_orders_have_to_be_paid() {
    let fixture = Fixture::open().await;
    let load = |within: &str| {
        fixture.tidegate(&[
            "voucher",
            "load",
            "--voucher",
            "7",
            "--stock",
            "5",
            "--pay-within",
            within,
            "--yes",
        ])
    };
    for wrong in ["1500ms", "366d", "soon"] {
        assert_eq!(load(wrong).status.code(), Some(2), "{wrong}");
    }
    assert!(load("15m").status.success());
    assert_eq!(number(&fixture, "SELECT pay_within FROM tb_seckill_voucher WHERE voucher_id = 7").await, 900);
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said(load("900s")).contains("already loaded"), "the same again");
    let shown = said(fixture.tidegate(&["voucher", "show", "--voucher", "7"]));
    assert!(shown.contains("to be paid within") && shown.contains("15 min"), "{shown}");
    let resumed = fixture.tidegate(&["resume", "--expirations", "--yes"]);
    assert!(resumed.status.success() && said(resumed).contains("so unpaid orders expire"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_counts_for_vouchers_that_say_nothing() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    load_timed(&fixture, 2, 10, 0).await;
    load_timed(&fixture, 3, 10, 3_600).await;
    for voucher in 1..=3 {
        fixture.admit(voucher, voucher, voucher, 1).await;
    }
    let worker = fixture.worker("w").set("ORDER_PAY_WITHIN_S", 1).start();
    until("the first has expired", || async { with_status(&fixture, 4).await == 1 }).await;
    fixture.settled().await;
    assert_eq!((with_status(&fixture, 1).await, unpaid_with_limit(&fixture).await), (2, 1));
    // Every command uses the word of the results; a cancelled order is still cancelled.
    assert!(fixture.tidegate(&["order", "event", "cancelled", "2", "--yes"]).status.success());
    for (user, word) in [("1", "expired"), ("2", "cancelled")] {
        let found = fixture.tidegate(&["order", "find", "--user", user, "--json"]).stdout;
        let found: serde_json::Value = serde_json::from_slice(&found).expect("JSON");
        assert_eq!(found["orders"][0]["is"], word, "{found:#}");
    }
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_is_in_the_stream_wins_although_it_is_still_in_other_hands() {
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, 10, 2).await;
    fixture.admit(1, 1, 1, 1).await;
    let proxies = Proxies::start(&fixture).await;
    let slow = proxies.before(quick(&fixture, "slow"), &fixture).set("WORKER_CLAIM_IDLE_MS", 30_000);
    let slow = slow.start();
    until("the order is written", || async { with_status(&fixture, 1).await == 1 }).await;
    fixture.settled().await;
    let hold = proxies.mysql.hold_when(CHECKED_COMMIT);
    add_paid(&fixture, 1, 1, 1).await;
    hold.reached().await.expect("the payment is in progress");
    fixture.call("DEL lock:order:1").await;
    let other = fixture.worker("other").set("WORKER_CLAIM_IDLE_MS", 30_000).start();
    until("the order is told to expire, and that waits", || async { fixture.pending().await == 2 }).await;
    assert_eq!((with_status(&fixture, 1).await, with_status(&fixture, 4).await), (1, 0));
    hold.release();
    until("it is paid", || async { with_status(&fixture, 2).await == 1 }).await;
    fixture.settled().await;
    let events = "SELECT COUNT(*) FROM tidegate_event WHERE (event, outcome) IN (('paid', 'applied'), ('expired', 'paid'))";
    assert_eq!(number(&fixture, events).await, 2);
    assert_eq!((fixture.mysql_stock(1).await, unpaid_with_limit(&fixture).await), (9, 0));
    all_is_well(&fixture).await;
    assert!(slow.stop().await.success() && other.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_a_service_has_paid_or_cancelled_by_itself_does_not_expire() {
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, 10, 1).await;
    for order in [1, 2, 3] {
        fixture.admit(order, order, 1, 1).await;
    }
    let worker = fixture.worker("w").start();
    until("they are written", || async { unpaid_with_limit(&fixture).await == 3 }).await;
    sql(&fixture, "UPDATE tb_voucher_order SET status = 2 WHERE id = 1").await;
    sql(
        &fixture,
        "UPDATE tb_voucher_order o LEFT JOIN tb_seckill_voucher v ON v.voucher_id = o.voucher_id \
         SET o.status = 4, o.slot = NULL, v.stock = v.stock + o.quantity \
         WHERE o.id = 2 AND COALESCE(o.status, 1) = 1 AND o.slot IS NOT NULL",
    )
    .await;
    until("no limit is left", || async { unpaid_with_limit(&fixture).await == 0 }).await;
    fixture.settled().await;
    assert_eq!(with_status(&fixture, 2).await, 1);
    assert_eq!(with_status(&fixture, 4).await, 2);
    assert_eq!(fixture.mysql_stock(1).await, 9, "each released its unit once");
    assert!(worker.stop().await.success());
}

/// Inserts overdue orders of a voucher: `first` ..= `last`, each with the number of its user. The stock has sold them.
async fn add_overdue<M: Endpoint>(fixture: &Fixture<M>, first: i64, last: i64) {
    for from in (first..=last).step_by(1_000) {
        let to = last.min(from + 999);
        let rows: Vec<String> = (from..=to).map(|id| format!("({id},{id},1,'1-{id}')")).collect();
        let due: Vec<String> = (from..=to).map(|id| format!("({id},{id},1,{id},{id})")).collect();
        let (rows, due) = (rows.join(","), due.join(","));
        sql(
            fixture,
            &format!(
                "INSERT INTO tb_voucher_order (id, user_id, voucher_id, entry_id) VALUES {rows}; \
                 INSERT INTO tidegate_unpaid_order (order_id, user_id, voucher_id, due_ms, ask_ms) VALUES {due}"
            ),
        )
        .await;
    }
    let sold = last - first + 1;
    sql(fixture, &format!("UPDATE tb_seckill_voucher SET stock = stock - {sold} WHERE voucher_id = 1")).await;
}

async fn stream_length<M: Endpoint>(fixture: &Fixture<M>) -> i64 {
    fixture.client.xlen(STREAM).await.expect("Redis answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_fleet_finds_no_more_than_a_bounded_backlog_when_it_goes_on() {
    const ORDERS: i64 = 7_000;
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, 10_000, 60).await;
    fixture.admit(1, 1, 1, 1).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(fixture.tidegate(&["pause", "--workers", "--yes"]).status.success());
    worker.says("fleet").await;
    add_overdue(&fixture, 1_001, 1_000 + ORDERS).await;
    until("the backlog is full", || async { stream_length(&fixture).await == 5_001 }).await;
    // The sweeper raises the restore counter in each pass with due orders: four more passes append nothing.
    let raised = mark(&fixture).await;
    until("the sweeper has looked again", || async { mark(&fixture).await >= raised + 4 }).await;
    assert_eq!(stream_length(&fixture).await, 5_001);
    assert!(fixture.tidegate(&["resume", "--workers", "--yes"]).status.success());
    until("all have expired", || async { with_status(&fixture, 4).await == ORDERS }).await;
    fixture.settled().await;
    assert_eq!(fixture.mysql_stock(1).await, 9_999);
    assert_eq!(stream_length(&fixture).await, ORDERS + 1, "each was told once");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fell_due_while_mysql_was_away_expires_when_it_is_back() {
    let mut fixture = Fixture::with_own_mysql().await;
    load_timed(&fixture, 1, 100, 1).await;
    let worker = fixture.worker("w").start();
    for order in 1..=20 {
        fixture.admit(order, order, 1, 1).await;
    }
    until("they are written", || async { unpaid_with_limit(&fixture).await == 20 }).await;
    fixture.mysql.kill9().expect("it is killed");
    worker.says("unpaid orders do not expire").await;
    tokio::task::block_in_place(|| fixture.mysql.restart()).expect("it comes back");
    fixture.pool = sqlx::MySqlPool::connect(&fixture.mysql.url()).await.expect("MySQL answers");
    until("all have expired", || async { with_status(&fixture, 4).await == 20 }).await;
    fixture.settled().await;
    assert_eq!((fixture.mysql_stock(1).await, fixture.redis_stock(1).await), (100, Some(100)));
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
}

/// The restore counter in Redis: how often the sweeper has raised it.
async fn mark(fixture: &Fixture) -> i64 {
    fixture.client.get::<Option<i64>, _>("tidegate:mark").await.expect("Redis answers").unwrap_or(0)
}

/// Runs `happens` to a store. Afterwards, no order expires until an operator allows it.
async fn stands_still_after(happens: impl AsyncFn(&Fixture), store: &str) {
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, 10, 3_600).await;
    fixture.admit(1, 1, 1, 1).await;
    let worker = fixture.worker("w").start();
    until("the mark is raised", || async {
        unpaid_with_limit(&fixture).await == 1 && mark(&fixture).await >= 2
    })
    .await;
    happens(&fixture).await;
    worker.says("a store went back in time").await;
    assert!(worker.log().contains(&format!("store=\"{store}\"")), "{}", worker.log());
    // The `expired` event of this order was in the stream, and was lost: by itself, the order would get another one
    // after ten minutes.
    sql(&fixture, "UPDATE tidegate_unpaid_order SET due_ms = 1, ask_ms = ask_ms + 600000").await;
    let shown = fixture.tidegate(&["status", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let shown = &shown["expirations"];
    assert_eq!(
        (shown["overdue"].as_i64(), shown["state"].as_str() == Some("whole")),
        (Some(1), false),
        "{shown}"
    );
    let doctor = fixture.tidegate(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains(&format!("{store} lost its newest data")), "{doctor}");
    assert_eq!(with_status(&fixture, 4).await, 0);
    let dry = fixture.tidegate(&["resume", "--expirations", "--dry-run"]);
    assert!(dry.status.success(), "{dry:?}");
    assert_eq!(with_status(&fixture, 4).await, 0);
    let resumed = fixture.tidegate(&["resume", "--expirations", "--yes"]);
    assert!(resumed.status.success(), "{resumed:?}");
    worker.says("unpaid orders expire again").await;
    until("it has expired", || async { with_status(&fixture, 4).await == 1 }).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_expires_after_redis_lost_everything_until_somebody_says_so() {
    stands_still_after(async |fixture| _ = fixture.redis_says(&["FLUSHALL"]).await, "Redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_expires_after_redis_came_back_with_an_older_file_until_somebody_says_so() {
    let older = async |fixture: &Fixture| {
        let file = fixture.redis.folder().expect("a Redis of our own").join("appendonlydir");
        let copy = fixture.redis.folder().expect("a Redis of our own").join("before");
        copy_files(&file, &copy);
        let copied = mark(fixture).await;
        until("the mark is raised since", || async { mark(fixture).await > copied + 1 }).await;
        fixture.redis.kill9().expect("it is killed");
        std::fs::remove_dir_all(&file).expect("its file is gone");
        copy_files(&copy, &file);
        tokio::task::block_in_place(|| fixture.redis.restart()).expect("it comes back");
    };
    stands_still_after(older, "Redis").await;
}

/// Copies all files of a folder without subfolders.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for file in std::fs::read_dir(from).expect("a folder").flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).expect("it is copied");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_expires_after_mysql_was_restored_until_somebody_says_so() {
    let restored = async |fixture: &Fixture| {
        // A backup has the counter of the moment at which it is made.
        sql(fixture, "CREATE TABLE backup_of_mark AS SELECT * FROM tidegate_fleet_mark").await;
        let copied = mark(fixture).await;
        until("the mark is raised since", || async { mark(fixture).await > copied + 1 }).await;
        sql(fixture, "REPLACE INTO tidegate_fleet_mark SELECT * FROM backup_of_mark").await;
    };
    stands_still_after(restored, "MySQL").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_of_a_fleet_lets_orders_expire_and_another_goes_on_when_it_is_killed() {
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, 100, 1).await;
    let (a, b) = (fixture.worker("a").start(), fixture.worker("b").start());
    let holder =
        async || -> Option<String> { fixture.client.get("tidegate:sweeper").await.expect("Redis answers") };
    until("one of them does it", || async { holder().await.is_some() }).await;
    let first = holder().await.expect("a holder");
    let (dies, lives) = if first.starts_with("a ") { (a, b) } else { (b, a) };
    fixture.admit(1, 1, 1, 1).await;
    until("the first has expired", || async { with_status(&fixture, 4).await == 1 }).await;
    dies.kill9();
    fixture.admit(2, 2, 1, 1).await;
    until("the second has expired", || async { with_status(&fixture, 4).await == 2 }).await;
    assert_ne!(holder().await.expect("a holder"), first);
    fixture.settled().await;
    let told = "SELECT COUNT(*) FROM tidegate_event WHERE event = 'expired'";
    assert_eq!(number(&fixture, told).await, 2, "each was told once");
    all_is_well(&fixture).await;
    assert!(lives.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_expires_while_a_worker_lives_that_knows_no_events() {
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, 10, 1).await;
    let worker = fixture.worker("w").start();
    until("the group is there", || async { fixture.open_entries().await.is_some() }).await;
    fixture.redis_says(&["XGROUP", "CREATECONSUMER", STREAM, "g1", "old-0"]).await;
    fixture.redis_says(&["SET", "tidegate:worker:old", "pid 1 on shop", "EX", "600"]).await;
    fixture.admit(1, 1, 1, 1).await;
    worker.says("no unpaid order expires while workers of an older version live").await;
    assert_eq!(stream_length(&fixture).await, 1);
    fixture.redis_says(&["DEL", "tidegate:worker:old"]).await;
    until("it has expired", || async { with_status(&fixture, 4).await == 1 }).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

/// Every second buyer of a voucher never pays. A buyer who finds it sold out asks again until all units are sold for
/// good.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_end_every_unit_is_sold_to_somebody_who_paid() {
    const UNITS: i64 = 1_000;
    const BUYERS: i64 = 3_000;
    let fixture = Fixture::open().await;
    load_timed(&fixture, 1, UNITS, 1).await;
    let store = fixture.store().await;
    let workers = [fixture.worker("a").start(), fixture.worker("b").start()];
    let began = Instant::now();
    let paid = async || with_status(&fixture, 2).await;
    let mut waiting: Vec<i64> = (1..=BUYERS).collect();
    while paid().await < UNITS {
        assert!(began.elapsed() < Duration::from_secs(60), "{} paid", paid().await);
        let admitted: Vec<Option<i64>> = stream::iter(waiting.iter().copied())
            .map(async |buyer| {
                let admission = Admission {
                    order: buyer.try_into().expect("an order id"),
                    user: buyer.try_into().expect("a user id"),
                    voucher: 1.try_into().expect("a voucher id"),
                    quantity: 1.try_into().expect("a quantity"),
                    subjects: tidegate_orders::Subjects::none(),
                    traceparent: None,
                };
                match store.admissions().admit(&admission).await.expect("the store answers") {
                    AdmitReply::Admitted => {
                        if buyer % 2 == 0 {
                            add_paid(&fixture, buyer, buyer, 1).await;
                        }
                        None
                    }
                    _ => Some(buyer),
                }
            })
            .buffer_unordered(64)
            .collect()
            .await;
        waiting = admitted.into_iter().flatten().collect();
        waiting.sort_unstable();
        sleep(Duration::from_millis(50)).await;
        let before = stream_length(&fixture).await;
        if fixture.open_entries().await == Some(0) {
            let wrong = fixture.mismatches().await;
            // No order moved meanwhile, because each movement begins with an entry.
            if stream_length(&fixture).await == before {
                assert_eq!(wrong, Vec::<String>::new(), "at a quiet moment");
            }
        }
    }
    until("no limit is left", || async { unpaid_with_limit(&fixture).await == 0 }).await;
    fixture.settled().await;
    assert_eq!((paid().await, with_status(&fixture, 1).await), (UNITS, 0));
    assert_eq!((fixture.mysql_stock(1).await, fixture.redis_stock(1).await), (0, Some(0)));
    all_is_well(&fixture).await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

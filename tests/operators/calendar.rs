//! Tests of the windows of sales in both stores: `tidegate voucher schedule`, the difference `window`, and workers that
//! carry a window from MySQL to Redis.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use tidegate_orders::{
    RedisStore,
    records::vouchers::{upcoming::upcoming, windows},
    scripts::{AdmitReply, SaleCalendar, SaleWindow},
};

use crate::{
    fixture::{Fixture, until},
    partitions,
    program::Program,
    sale::{ask, open, program, sql},
};

async fn window_in_redis(store: &RedisStore) -> SaleWindow {
    store.sales().read_voucher(7.try_into().unwrap()).await.expect("Redis answers").window
}

/// Changes the end of voucher 7 in MySQL, as a shop does.
async fn set_end(fixture: &Fixture, end: &str) {
    sql(fixture, format!("UPDATE tb_seckill_voucher SET end_time = {end} WHERE voucher_id = 7")).await;
}

fn in_hours(hours: i64) -> Timestamp {
    let now = Timestamp::now() + SignedDuration::from_hours(hours);
    Timestamp::from_second(now.as_second()).expect("a time")
}

/// The kinds of differences that `tidegate reconcile` finds.
fn differences(program: &Program, exit: i32) -> Vec<String> {
    let looked = program.run("reconcile --voucher 7 --json").expect(exit).json();
    let kinds = looked["vouchers"][0]["differences"].as_array().cloned().unwrap_or_default();
    kinds.iter().map(|it| it["kind"].as_str().expect("a kind").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_changes_both_windows_while_the_sale_is_on_and_says_so() {
    let (fixture, program, store) = open().await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    let end = in_hours(2);
    let plan = program.run(&format!("voucher schedule --voucher 7 --end {end} --dry-run")).expect(0);
    assert!(
        plan.stdout.contains("the sale would be on from") && plan.stdout.contains("in both stores"),
        "{plan:?}"
    );
    assert_eq!(window_in_redis(&store).await, SaleWindow::default(), "a dry run changes nothing");
    program.run(&format!("voucher schedule --voucher 7 --end {end} --yes")).expect(0);
    assert_eq!(window_in_redis(&store).await.end, Some(end));
    assert_eq!(differences(&program, 0), [""; 0]);
    let again = program.run(&format!("voucher schedule --voucher 7 --end {end} --yes")).expect(0);
    assert!(again.stdout.contains("nothing was changed"), "{again:?}");

    let begin = in_hours(1);
    program.run(&format!("voucher schedule --voucher 7 --begin {begin} --yes")).expect(0);
    assert_eq!(
        window_in_redis(&store).await,
        SaleWindow { begin: Some(begin), end: Some(end) },
        "the end stays"
    );
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::NotBegun);
    program.run("voucher schedule --voucher 7 --begin now --no-end --yes").expect(0);
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::Admitted);
    program.run("voucher schedule --voucher 7 --end now --yes").expect(0);
    assert_eq!(ask(&store, 3, 3, 1).await, AdmitReply::Over);
    assert_eq!(differences(&program, 0), [""; 0]);
    let reader = "SELECT CAST(end_time <= NOW() AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = 7";
    let is_over: i64 = sqlx::query_scalar(reader).fetch_one(&fixture.pool).await.unwrap();
    assert_eq!(is_over, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_refuses_what_cannot_be_and_changes_mysql_alone_where_nothing_is_loaded() {
    let (fixture, program, store) = open().await;
    let (soon, later) = (in_hours(1), in_hours(2));
    program.run("voucher schedule --voucher 7 --yes").expect(2);
    program.run(&format!("voucher schedule --voucher 7 --end {soon} --no-end --yes")).expect(2);
    let unknown = program.run("voucher schedule --voucher 8 --end now --yes").expect(1);
    assert!(unknown.stdout.contains("MySQL has no row of this voucher"), "{unknown:?}");
    let line = format!("voucher schedule --voucher 7 --begin {later} --end {soon} --yes");
    let backwards = program.run(&line).expect(1);
    assert!(backwards.stdout.contains("must begin before it ends"), "{backwards:?}");
    sql(&fixture, "INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (9, 5)").await;
    let done =
        program.run(&format!("voucher schedule --voucher 9 --begin {soon} --end {later} --yes")).expect(0);
    assert!(done.stdout.contains("Redis does not have the voucher"), "{done:?}");
    let state = store.sales().read_voucher(9.try_into().unwrap()).await.unwrap();
    assert!(!state.has_keys(), "{state:?}");
    program.run("voucher delist --voucher 7 --yes").expect(0);
    let delisted = program.run("voucher schedule --voucher 7 --no-end --yes").expect(1);
    assert!(delisted.stdout.contains("is delisted"), "{delisted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_a_shop_changed_is_a_difference_that_reconcile_audit_and_doctor_name() {
    let (fixture, program, store) = open().await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    set_end(&fixture, "NOW() + INTERVAL 1 HOUR").await;
    let looked = program.run("reconcile").expect(1);
    assert!(
        looked.stdout.contains("Redis sells the voucher without a begin or an end, but MySQL has: "),
        "{looked:?}"
    );
    assert_eq!(differences(&program, 1), ["window"]);
    let audit = program.run("audit").expect(1);
    assert!(audit.stdout.contains("Redis sells the voucher without a begin"), "{audit:?}");
    let doctor = program.run("doctor").expect(1);
    assert!(doctor.stdout.contains("tidegate voucher schedule --voucher 7"), "{doctor:?}");
    program.run("voucher schedule --voucher 7 --no-end --yes").expect(0);
    assert_eq!(differences(&program, 0), [""; 0]);
    program.run("audit").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_windows_of_the_tutorial_are_no_difference_and_end_no_sale() {
    let (fixture, program, store) = open().await;
    // The default of the table is the moment of the insert.
    sql(&fixture, "UPDATE tb_seckill_voucher SET end_time = begin_time WHERE voucher_id = 7").await;
    assert_eq!(differences(&program, 0), [""; 0]);
    // A sale that the shop's own SET began.
    fixture.redis_says(&["DEL", "seckill:journal:7"]).await;
    for times in [
        "begin_time = NOW(), end_time = NOW()",
        "begin_time = '2022-01-25 00:00:00', end_time = '2022-01-26 00:00:00'",
    ] {
        sql(
            &fixture,
            format!("UPDATE tb_seckill_voucher SET {times}, initial_stock = NULL WHERE voucher_id = 7"),
        )
        .await;
        assert_eq!(differences(&program, 0), [""; 0], "{times}");
    }
    program.run("voucher load --voucher 8 --stock 5").expect(0);
    sql(&fixture, "UPDATE tb_seckill_voucher SET end_time = '2022-01-27 00:00:00' WHERE voucher_id = 7")
        .await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET end_time = '2036-01-01 00:00:00' WHERE voucher_id = 8")
        .await;
    let _worker = fixture.worker("w").set("CALENDAR_CARRY_WINDOWS", "yes").start();
    let other =
        || async { store.sales().read_voucher(8.try_into().unwrap()).await.unwrap().window.end.is_some() };
    until("the window of another voucher is carried", other).await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_carry_a_window_that_changed_in_mysql_within_five_seconds() {
    let (fixture, program, store) = open().await;
    let carrying = |name| fixture.worker(name).set("CALENDAR_CARRY_WINDOWS", "yes").start();
    let workers = [carrying("a"), carrying("b")];
    let carried = |end: Timestamp| {
        let store = &store;
        async move { window_in_redis(store).await.end == Some(end) }
    };
    let (soon, later) = (in_hours(1), in_hours(2));
    set_end(&fixture, &format!("FROM_UNIXTIME({})", soon.as_second())).await;
    let changed = std::time::Instant::now();
    until("the new end is in Redis", || carried(soon)).await;
    assert!(changed.elapsed() < Duration::from_secs(5), "{:?}", changed.elapsed());
    set_end(&fixture, "NOW()").await;
    let is_over = || async { window_in_redis(&store).await.is_over(Timestamp::now()) };
    until("the sale is over", is_over).await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Over);
    set_end(&fixture, &format!("FROM_UNIXTIME({})", later.as_second())).await;
    until("the sale goes on", || async { ask(&store, 1, 1, 1).await == AdmitReply::Admitted }).await;
    assert_eq!(differences(&program, 0), [""; 0]);

    // An operator changed Redis alone: from now on, nothing is carried, and the difference stays visible.
    let by_hand = in_hours(3);
    let window = SaleWindow { begin: None, end: Some(by_hand) };
    SaleCalendar::of(&store).schedule(7.try_into().unwrap(), window, None).await.unwrap();
    set_end(&fixture, &format!("FROM_UNIXTIME({})", soon.as_second())).await;
    let told = || async { workers.iter().any(|it| it.log().contains("its window in Redis changed, too")) };
    until("a worker says so", told).await;
    assert_eq!(window_in_redis(&store).await, window);
    assert_eq!(differences(&program, 1), ["window"]);
    program.run(&format!("voucher schedule --voucher 7 --end {soon} --yes")).expect(0);
    set_end(&fixture, &format!("FROM_UNIXTIME({})", later.as_second())).await;
    until("windows are carried again", || carried(later)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_locked_keeps_the_windows_of_other_sales_waiting_for_one_statement_only() {
    let (fixture, program, store) = open().await;
    program.run("voucher load --voucher 8 --stock 5").expect(0);
    let _worker = fixture.worker("w").set("CALENDAR_CARRY_WINDOWS", "yes").start();
    let mut holder = fixture.pool.begin().await.expect("a transaction");
    let row = "SELECT voucher_id FROM tidegate_carried_window WHERE voucher_id = 7 FOR UPDATE";
    sqlx::query(row).fetch_one(&mut *holder).await.expect("the row is locked");
    let end = in_hours(1);
    sql(&fixture, format!("UPDATE tb_seckill_voucher SET end_time = FROM_UNIXTIME({})", end.as_second()))
        .await;
    let eight = 8.try_into().unwrap();
    let is_carried = || async { store.sales().read_voucher(eight).await.unwrap().window.end == Some(end) };
    until("the window of the other sale is carried", is_carried).await;
    holder.rollback().await.expect("the row is free");
    let are_noted =
        || async { windows::changed(&fixture.pool, store.keys().partition()).await.unwrap().is_empty() };
    until("both windows are noted", are_noted).await;
    assert_eq!(window_in_redis(&store).await.end, Some(end));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_was_loaded_earlier_is_carried_once_a_comparison_has_seen_it() {
    let (fixture, _program, store) = open().await;
    sql(&fixture, "DELETE FROM tidegate_carried_window").await;
    let noted = || async {
        let rows = "SELECT COUNT(*) FROM tidegate_carried_window WHERE voucher_id = 7";
        sqlx::query_scalar::<_, i64>(rows).fetch_one(&fixture.pool).await.unwrap() == 1
    };
    let _worker =
        fixture.worker("w").set("CALENDAR_CARRY_WINDOWS", "yes").set("RECONCILE_EVERY_S", 1).start();
    until("the comparison has noted the window", noted).await;
    let soon = in_hours(1);
    set_end(&fixture, &format!("FROM_UNIXTIME({})", soon.as_second())).await;
    until("the new end is in Redis", || async { window_in_redis(&store).await.end == Some(soon) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_without_a_zone_are_read_in_the_zone_of_the_setting_and_doctor_shows_both_readings() {
    let fixture = Fixture::open().await;
    let (program, store) = (program(&fixture), fixture.store().await);
    sql(&fixture, "ALTER TABLE tb_seckill_voucher MODIFY begin_time DATETIME NOT NULL, MODIFY end_time DATETIME NOT NULL").await;
    let east = "--set mysql.time_zone=+08:00";
    let (begin, end) = ("2036-11-20T02:00:00Z", "2036-11-20T04:00:00Z");
    program.run(&format!("voucher load --voucher 7 --stock 5 --begin {begin} --end {end} {east}")).expect(0);
    let stored = "SELECT CAST(begin_time AS CHAR) FROM tb_seckill_voucher WHERE voucher_id = 7";
    let stored: String = sqlx::query_scalar(stored).fetch_one(&fixture.pool).await.unwrap();
    assert_eq!(stored, "2036-11-20 10:00:00", "the shop reads its own time");
    assert_eq!(window_in_redis(&store).await.begin, Some(begin.parse().unwrap()));
    program.run(&format!("reconcile --voucher 7 {east}")).expect(0);
    assert_eq!(differences(&program, 1), ["window"], "read as UTC, it begins eight hours later");
    sql(&fixture, "SET GLOBAL time_zone = '+00:00'").await;
    let doctor = program.run(&format!("doctor {east}")).stdout;
    for part in ["2036-11-20 10:00:00", "read as 2036-11-20T02:00:00Z", "it would be 2036-11-20T10:00:00Z"] {
        assert!(doctor.contains(part), "{part}: {doctor}");
    }
    let wrong = program.run("doctor --set mysql.time_zone=Asia/Shanghai").expect(2);
    assert!(wrong.stderr.contains("must be UTC, or an offset such as +08:00"), "{wrong:?}");
}

/// Publishes voucher 7 as the tutorial's service does: two statements, and no call of Redis.
async fn publish(fixture: &Fixture, units: i64, begin: &str) {
    sql(
        fixture,
        format!(
            "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) \
             VALUES (7, {units}, {begin}, NOW() + INTERVAL 1 DAY)"
        ),
    )
    .await;
}

async fn empty() -> (Fixture, Program, RedisStore) {
    let fixture = Fixture::open().await;
    let (program, store) = (program(&fixture), fixture.store().await);
    (fixture, program, store)
}

fn warming(fixture: &Fixture, name: &str) -> crate::fixture::Worker {
    fixture.worker(name).set("CALENDAR_WARM_UP", "10m").set("CALENDAR_CARRY_WINDOWS", "yes").start()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_voucher_sells_at_its_begin_without_a_command_and_survives_an_emptied_redis() {
    let (fixture, program, store) = empty().await;
    let worker = warming(&fixture, "w");
    publish(&fixture, 3, "NOW() + INTERVAL 8 SECOND").await;
    let is_loaded = || async { fixture.redis_stock(7).await == Some(3) };
    until("the voucher is loaded", is_loaded).await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::NotBegun);
    fixture.call("FLUSHALL").await;
    until("the voucher is loaded again", is_loaded).await;
    until("the sale has begun", || async { ask(&store, 1, 1, 1).await != AdmitReply::NotBegun }).await;
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::Admitted);
    assert_eq!(ask(&store, 3, 3, 1).await, AdmitReply::Admitted);
    assert_eq!(ask(&store, 4, 4, 1).await, AdmitReply::SoldOut);
    until("the orders are written", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    // After the begin, an emptied Redis is not filled from MySQL alone: a rebuild also knows the orders.
    fixture.call("FLUSHALL").await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 1 WHERE voucher_id = 7").await;
    let told = || async { worker.log().contains("run tidegate rebuild") };
    until("the worker says what to do", told).await;
    let counted = crate::browser::get(&worker, "/metrics").await.samples();
    assert_eq!(counted.get("tidegate_sales_not_loaded"), Some(&1.0));
    assert_eq!(fixture.redis_stock(7).await, None);
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 0 WHERE voucher_id = 7").await;
    program.run("rebuild --voucher 7 --yes").expect(0);
    assert_eq!(ask(&store, 5, 5, 1).await, AdmitReply::SoldOut);
    set_end(&fixture, "NOW()").await;
    let is_over = || async { window_in_redis(&store).await.is_over(Timestamp::now()) };
    until("the sale ends as MySQL says", is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_that_changes_before_the_begin_is_carried_until_an_order_exists() {
    let (fixture, program, store) = empty().await;
    let _workers = [warming(&fixture, "a"), warming(&fixture, "b")];
    publish(&fixture, 100, "NOW() + INTERVAL 5 MINUTE").await;
    let has = |units: i64| {
        let fixture = &fixture;
        async move { fixture.redis_stock(7).await == Some(units) }
    };
    until("the voucher is loaded", || has(100)).await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 150 WHERE voucher_id = 7").await;
    until("the new stock is in Redis", || has(150)).await;
    let initial = "SELECT CAST(initial_stock AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = 7";
    until("MySQL has noted it", || async {
        sqlx::query_scalar::<_, i64>(initial).fetch_one(&fixture.pool).await.unwrap() == 150
    })
    .await;
    program.run("voucher add --voucher 7 --units 10 --yes").expect(0);
    assert!(has(160).await, "an operator's change is made once");
    for units in [200, 0, 30, 160] {
        sql(&fixture, format!("UPDATE tb_seckill_voucher SET stock = {units} WHERE voucher_id = 7")).await;
        until("the next stock is in Redis", || has(units)).await;
    }
    fixture.call("SET seckill:stock:7 40").await;
    until("a stock that Redis lost is there again", || has(160)).await;
    let change = store.sales().read_change(7.try_into().unwrap()).await.unwrap().expect("a note");
    assert_eq!(
        (change.by.as_str(), change.units),
        ("warm_up", 120),
        "an operator sees who changed the stock"
    );
    program.run("voucher take --voucher 7 --units 10 --yes").expect(0);
    program.run("voucher add --voucher 7 --units 10 --yes").expect(0);
    assert!(has(160).await);

    // A program that does not look at the window sells a unit: from now on, the stock is the operator's.
    program.run("voucher schedule --voucher 7 --begin now --yes").expect(0);
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    let later = in_hours(0) + SignedDuration::from_mins(5);
    program.run(&format!("voucher schedule --voucher 7 --begin {later} --yes")).expect(0);
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 500 WHERE voucher_id = 7").await;
    program.run("voucher load --voucher 8 --stock 1").expect(0);
    sql(
        &fixture,
        "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) VALUES (9, 5, \
        NOW() + INTERVAL 1 MINUTE, NOW() + INTERVAL 1 DAY)",
    )
    .await;
    let other = || async { fixture.redis_stock(9).await == Some(5) };
    until("another voucher is loaded", other).await;
    assert!(has(159).await, "{:?}", fixture.redis_stock(7).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_the_shop_itself_put_into_redis_and_one_without_a_window_are_left_alone() {
    let (fixture, _program, store) = empty().await;
    fixture.call("SET seckill:stock:7 100").await;
    publish(&fixture, 100, "NOW() + INTERVAL 1 MINUTE").await;
    sql(
        &fixture,
        "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) VALUES \
         (8, 5, NOW() + INTERVAL 1 MINUTE, NOW() + INTERVAL 1 MINUTE), \
         (9, 5, NOW() + INTERVAL 1 MINUTE, NOW() - INTERVAL 1 DAY), \
         (10, 5, NOW() + INTERVAL 1 DAY, NOW() + INTERVAL 2 DAY), \
         (11, 5, NOW() + INTERVAL 1 MINUTE, NOW() + INTERVAL 1 DAY)",
    )
    .await;
    let _worker = warming(&fixture, "w");
    until("the voucher with a window is loaded", || async { fixture.redis_stock(11).await == Some(5) }).await;
    for voucher in [8, 9, 10] {
        assert_eq!(fixture.redis_stock(voucher).await, None, "{voucher}");
    }
    assert_eq!(window_in_redis(&store).await, SaleWindow::default());
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted, "the tutorial's sale is on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_the_calendar_reads_none_of_a_hundred_thousand_other_vouchers() {
    // The counters are those of the whole server, so that no other test may use it.
    let fixture = Fixture::with_own_mysql().await;
    let (program, store) = (program(&fixture), fixture.store().await);
    let digits = "(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)";
    sql(
        &fixture,
        format!(
            "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) \
             SELECT 1000 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n, 5, NOW() + INTERVAL 30 DAY, \
             NOW() + INTERVAL 300 DAY FROM {digits} a, {digits} b, {digits} c, {digits} d, {digits} e"
        ),
    )
    .await;
    sql(&fixture, "ANALYZE TABLE tb_seckill_voucher").await;
    publish(&fixture, 5, "NOW() + INTERVAL 5 MINUTE").await;
    program.run("voucher load --voucher 8 --stock 5").expect(0);
    sql(&fixture, "UPDATE tb_seckill_voucher SET end_time = NOW() + INTERVAL 1 DAY WHERE voucher_id = 8")
        .await;
    let read = || async {
        let counters = "SHOW GLOBAL STATUS LIKE 'Handler_read%'";
        let counters: Vec<(String, String)> =
            sqlx::query_as(counters).fetch_all(&fixture.pool).await.unwrap();
        counters.iter().map(|(_, rows)| rows.parse::<u64>().expect("a number")).sum::<u64>()
    };
    let partition = store.keys().partition();
    let (before, counting) = (read().await, read().await);
    let soon = upcoming(&fixture.pool, partition, Duration::from_secs(600)).await.unwrap();
    let changed = windows::changed(&fixture.pool, partition).await.unwrap();
    let rows = read().await - counting - (counting - before);
    assert_eq!((soon.len(), changed.len()), (2, 1), "one has just begun");
    assert!(rows < 40, "{rows} rows or places in keys read");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_vouchers_that_begin_at_the_same_time_are_loaded_however_many_there_are() {
    let (fixture, _program, _store) = empty().await;
    let rows: Vec<String> = (1..=1_200)
        .map(|id| format!("({id}, 5, NOW() + INTERVAL 9 MINUTE, NOW() + INTERVAL 1 DAY)"))
        .collect();
    let insert = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) VALUES ";
    sql(&fixture, [insert, &rows.join(",")].concat()).await;
    let _workers = [warming(&fixture, "a"), warming(&fixture, "b")];
    let are_loaded = || async {
        let keys = fixture.redis_says(&["KEYS", "seckill:stock:*"]).await.into_array();
        keys.len() == 1_200
    };
    until("all vouchers are loaded", are_loaded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_takes_over_the_vouchers_of_all_partitions_from_a_frozen_worker() {
    let fixture = Fixture::open().await;
    let program = partitions::program(&fixture, partitions::TAGS);
    let worker = |name| {
        let worker = fixture.worker(name).set("STREAM_PARTITIONS", partitions::TAGS);
        worker.set("CALENDAR_WARM_UP", "10m").set("CALENDAR_CARRY_WINDOWS", "yes").start()
    };
    let stocks = || async {
        let reply = fixture.redis_says(&[
            "MGET",
            "{3}:seckill:stock:3",
            "{1}:seckill:stock:4",
            "{0}:seckill:stock:5",
        ]);
        reply.await.into_array().into_iter().filter_map(|stock| stock.as_i64()).collect::<Vec<_>>()
    };
    let workers = [worker("a"), worker("b")];
    let publish = |voucher: i64| {
        let begin = Timestamp::now() + SignedDuration::from_mins(5);
        program
            .run(&format!("voucher publish --voucher {voucher} --stock {voucher} --begin {begin:.0}"))
            .expect(0);
    };
    publish(3);
    until("a voucher of one partition is loaded", || async { stocks().await == [3] }).await;
    workers[0].signal(Signal::SIGSTOP);
    publish(4);
    publish(5);
    until("the other worker loads the vouchers of all partitions", || async { stocks().await == [3, 4, 5] })
        .await;
    let end = in_hours(1);
    sql(&fixture, format!("UPDATE tb_seckill_voucher SET end_time = FROM_UNIXTIME({})", end.as_second()))
        .await;
    let has_end = || async {
        let reply = fixture.redis_says(&["HGET", "{0}:seckill:voucher:5", "end_ms"]).await;
        reply.as_string() == Some(end.as_millisecond().to_string())
    };
    until("the other worker carries the new end", has_end).await;
    workers[0].signal(Signal::SIGCONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seller_publishes_a_voucher_with_one_command_and_workers_load_it() {
    let (fixture, program, store) = empty().await;
    let (begin, end) = (in_hours(0) + SignedDuration::from_mins(5), in_hours(1));
    let line = format!("voucher publish --voucher 7 --stock 50 --begin {begin} --end {end}");
    let plan = program.run(&format!("{line} --dry-run")).expect(0);
    assert!(plan.stdout.contains("would be published with 50 units"), "{plan:?}");
    let done = program.run(&line).expect(0);
    assert!(done.stderr.contains("calendar.warm_up is off"), "{done:?}");
    let again = program.run(&format!("{line} --set calendar.warm_up=10m")).expect(0);
    assert!(again.stdout.contains("already published") && !again.stderr.contains("warm_up"), "{again:?}");
    let other = program.run(&line.replace("--stock 50", "--stock 60")).expect(1);
    assert!(
        other.stdout.contains("MySQL already has this voucher, with a stock of 50 and a sale from"),
        "{other:?}"
    );
    program.run("voucher publish --voucher 8 --stock 1 --begin now").expect(2);
    program.run(&format!("voucher publish --voucher 8 --stock 1 --begin {end} --end {begin}")).expect(2);
    assert!(!store.sales().read_voucher(7.try_into().unwrap()).await.unwrap().has_keys());
    let _worker = warming(&fixture, "w");
    until("a worker loads the voucher", || async { fixture.redis_stock(7).await == Some(50) }).await;
    assert_eq!(window_in_redis(&store).await, SaleWindow { begin: Some(begin), end: Some(end) });
    program.run("voucher delist --voucher 7 --yes").expect(0);
    let delisted = program.run(&line).expect(1);
    assert!(delisted.stdout.contains("is delisted"), "{delisted:?}");
}

//! Runbook: stores that are down, come back, or come back with less than they had.

use fred::interfaces::KeysInterface;
use jiff::{Timestamp, ToSpan, Zoned};
use sqlx::Executor;
use tidegate_lab::{MysqlServer, RedisServer};

use crate::{
    fixture::{
        DEAD, Fixture, GROUP, STREAM, Worker, WorkerPlan,
        rush::{Wanted, Way},
        until,
    },
    runbook::recipes::Operator,
};

/// A worker that quickly notices the begin and the end of an outage.
fn impatient(fixture: &Fixture, name: &str) -> WorkerPlan {
    let plan = fixture.worker(name).set("WORKER_BACKOFF_MAX_MS", 300).set("MYSQL_ACQUIRE_TIMEOUT_MS", 500);
    plan.set("REDIS_COMMAND_TIMEOUT_MS", 500)
}

/// A fixture that sells voucher 7, an operator, and a worker.
async fn at_work(voucher: i64) -> (Worker, Operator, Fixture) {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(voucher, 1_000).await;
    let worker = impatient(&fixture, "w").start();
    worker.says("worker started").await;
    (worker, Operator::at(&fixture), fixture)
}

async fn stops_in_good_order(worker: Worker) {
    assert!(worker.stop().await.success());
}

/// Sells orders with these ids. The user of each order has its number.
async fn sell(fixture: &Fixture, voucher: i64, ids: std::ops::Range<i64>) {
    for id in ids {
        fixture.admit(id, id, voucher, 1).await;
    }
}

/// Appends an order for every twelve seconds of the last hour, as another producer than the gate.
async fn an_hour_of_orders(fixture: &Fixture) {
    let begin = Timestamp::now().as_millisecond() - 3_600_000;
    for at in 0..300 {
        let (entry, id) = (format!("{}-0", begin + at * 12_000), 10_000 + at);
        let text = id.to_string();
        fixture.redis_says(&["XADD", STREAM, &entry, "userId", &text, "voucherId", "113", "id", &text]).await;
        fixture.caller_log.note(id, Wanted { user: id, voucher: 113, quantity: 1, way: Way::Xadd });
    }
}

/// Deletes the orders from this one on from MySQL.
async fn mysql_forgets_from(fixture: &Fixture, order: i64) {
    let orders = sqlx::query("DELETE FROM tb_voucher_order WHERE id >= ?").bind(order);
    orders.execute(&fixture.pool).await.expect("the orders are deleted");
    let stock =
        "UPDATE tb_seckill_voucher SET stock = initial_stock - (SELECT COUNT(*) FROM tb_voucher_order)";
    sqlx::query(stock).execute(&fixture.pool).await.expect("the stock is set");
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_is_down_for_an_hour_and_comes_back_then_it_comes_back_without_that_hour() {
    let (worker, operator, fixture) = at_work(113).await;
    fixture.mysql.kill9().expect("MySQL is killed");
    an_hour_of_orders(&fixture).await;
    sell(&fixture, 113, 1_000..1_020).await;
    worker.says("outage began").await;
    operator.types("MySQL is down", "tidegate doctor", &[]).ends_with(&[1, 3]).shows(&[
        "error mysql Failed to reach MySQL",
        "do: start MySQL",
        "undelivered 31",
        "pending",
    ]);

    fixture.mysql.restart().expect("MySQL starts");
    worker.says("outage over").await;
    fixture.settled().await;
    assert_eq!(worker.log().matches("outage began").count(), 1);
    operator.types("MySQL is down", "tidegate status", &[]).succeeds().shows(&[
        "undelivered 0",
        "pending 0",
        "It holds: 320 admitted orders",
    ]);
    fixture.invariants().await;

    // MySQL is restored from the backup of last night.
    mysql_forgets_from(&fixture, 10_100).await;
    let audit = operator.types("The audit fails", "tidegate audit --voucher", &[("118", "113")]);
    audit.ends_with(&[1]).shows(&["lost"]);
    let minute = |moment: Zoned| moment.strftime("%Y-%m-%d %H:%M").to_string();
    let from = minute(&Zoned::now() - 2.hours());
    let to = minute(&Zoned::now() + 1.minute());
    let hour = [("2026-11-20 10:00", from.as_str()), ("2026-11-20 11:00", to.as_str())];
    operator
        .types(
            "Orders are missing in MySQL",
            "tidegate replay --from '2026-11-20 10:00' --to '2026-11-20 11:00' --dry-run",
            &hour,
        )
        .succeeds()
        .shows(&["200 would be created"]);
    assert_eq!(fixture.orders().await.len(), 120, "it has changed nothing");
    operator
        .types(
            "Orders are missing in MySQL",
            "tidegate replay --from '2026-11-20 10:00' --to '2026-11-20 11:00'\n",
            &hour,
        )
        .succeeds()
        .shows(&["200 created", "It holds"]);
    fixture.invariants().await;

    mysql_forgets_from(&fixture, 10_100).await;
    operator
        .types("A store went back in time", "tidegate pause --workers", &[])
        .succeeds()
        .shows(&["200 orders", "It holds"]);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_down_and_is_restarted_with_its_file() {
    let (worker, operator, fixture) = at_work(110).await;
    sell(&fixture, 110, 1_000..1_020).await;
    fixture.redis.kill9().expect("Redis is killed");
    worker.says("outage began").await;
    operator.types("Nothing is written", "tidegate doctor", &[]).shows(&["error redis", "do: start Redis"]);
    fixture.redis.restart().expect("Redis starts");
    worker.says("outage over").await;
    sell(&fixture, 110, 1_020..1_040).await;
    fixture.settled().await;
    operator.types("Redis is down", "tidegate status", &[]).succeeds().shows(&[
        "pending 0",
        "No problem was found, and no entry waits for too long.",
        "It holds: 40 admitted orders",
    ]);
    operator.types("Runbook", "tidegate status", &[]).succeeds().shows(&[
        "pending 0",
        "alive",
        "No problem was found, and no entry waits for too long.",
    ]);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_loses_its_data_and_is_filled_from_mysql() {
    let (worker, operator, fixture) = at_work(109).await;
    sell(&fixture, 109, 1_000..1_020).await;
    fixture.settled().await;
    fixture.call("FLUSHALL").await;
    // An operator has loaded a stock too early: no user may order before Redis knows the buyers.
    fixture.call("SET seckill:stock:109 500").await;
    worker.says("the consumer group was gone and was created again").await;
    fixture.redis_has_forgotten().await;

    // Two units of MySQL's stock belong to an order that stays pending, and three to a dead letter.
    fixture.call("SET lock:order:3001 somebody").await;
    fixture.call("SET lock:order:3002 somebody").await;
    for (order, quantity) in [("3001", "2"), ("3002", "3")] {
        let order = ["userId", order, "voucherId", "109", "id", order, "quantity", quantity];
        fixture.redis_says(&[&["XADD", STREAM, "*"], &order[..]].concat()).await;
    }
    until("they are pending", || async { fixture.pending().await == 2 }).await;
    let buried = [
        "dead:entry",
        "1-0",
        "dead:reason",
        "unknown_voucher",
        "dead:error",
        "it was not there",
        "dead:consumer",
        "w-0",
        "dead:deliveries",
        "1",
        "dead:at_ms",
        "1",
    ];
    let order = ["userId", "3003", "voucherId", "109", "id", "3003", "quantity", "3"];
    fixture.redis_says(&[&["XADD", DEAD, "*"], &order[..], &buried[..]].concat()).await;

    let filled = operator.types("Redis lost data", "tidegate rebuild --all", &[]).succeeds();
    filled.shows(&["20 live orders", "2 orders in flight (5 units)", "1 order dead (3 units)"]);
    assert_eq!(fixture.redis_stock(109).await, Some(980 - 2 - 3 - 3));
    let buy = |user| fixture.tidegate(&["admit", "--voucher", "109", "--user", user]);
    let refused = buy("1001");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("has an order"), "{refused:?}");
    assert!(buy("5000").status.success());
    until("the new order is written", || async { fixture.orders().await.len() == 21 }).await;
    assert!(String::from_utf8_lossy(&buy("3001").stdout).contains("has an order"), "it is pending");
    assert!(String::from_utf8_lossy(&buy("3003").stdout).contains("has an order"), "it may be put back");
    fixture.call("DEL lock:order:3001 lock:order:3002").await;
    let requeued = fixture.tidegate(&["dead", "requeue", "--all", "--yes"]);
    assert!(requeued.status.success(), "{requeued:?}");
    fixture.settled().await;
    let audit = operator.types("Redis lost data", "tidegate audit", &[]).succeeds();
    audit.shows(&["It holds: 24 admitted orders"]);
    assert_eq!(fixture.redis_stock(109).await, Some(fixture.mysql_stock(109).await));
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushall_is_cut_off_the_end_of_the_file() {
    let (worker, operator, fixture) = at_work(109).await;
    sell(&fixture, 109, 1_000..1_020).await;
    fixture.settled().await;
    fixture.call("FLUSHALL").await;
    worker.says("the consumer group was gone and was created again").await;
    worker.says("the stream was also gone and is empty now").await;
    operator.types("The consumer group was lost", "redis INFO commandstats", &[]).succeeds().shows(&[
        "cmdstat_flushall",
        "uptime_in_seconds",
        "in the stream 0",
    ]);

    // The producer of this order needs no stock, and continues.
    fixture.add_order(5_000, 5_000, 109).await;
    fixture.settled().await;
    operator.types("Redis lost data", "tidegate export --from -1h", &[]).succeeds();

    operator.types("Redis lost data", "redis INFO commandstats", &[]).succeeds().shows(&["cmdstat_flushall"]);
    let shown = operator.types("Redis lost data", "redis CONFIG SET auto-aof", &[]).succeeds();
    let shown = shown.shows(&["OK", "dir"]).shown;
    let dir = shown.lines().last().and_then(|line| line.split('"').nth(1)).expect("the folder");
    fixture.redis.shutdown().expect("Redis stops");
    let folder = ("/var/lib/redis", dir);
    let found = operator.types("Redis lost data", "grep -abioHE", &[folder]).succeeds().shown;
    let mut last = found.lines().last().expect("it is found").split(':');
    let (Some(file), Some(place)) = (last.next(), last.next()) else { panic!("no place: {found}") };
    assert!(file.ends_with("/appendonly.aof.1.incr.aof"), "{file}");
    operator.types("Redis lost data", "cp -a", &[folder, ("123464", place)]).succeeds();
    fixture.redis.restart().expect("Redis starts");
    worker.says("outage over").await;
    assert_eq!(fixture.redis_stock(109).await, Some(980));
    operator.types("Redis lost data", "tidegate replay --file since.jsonl", &[]).succeeds();
    sell(&fixture, 109, 1_020..1_040).await;
    fixture.settled().await;
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_flushall_one_command_lets_the_sale_go_on() {
    let (worker, operator, fixture) = at_work(109).await;
    sell(&fixture, 109, 1_000..1_020).await;
    fixture.settled().await;
    fixture.call("FLUSHALL").await;
    worker.says("the consumer group was gone and was created again").await;
    let filled = operator.types("Redis lost data", "tidegate rebuild --all", &[]).succeeds();
    filled.shows(&["voucher 109: rebuilt with 980 units left, 20 live orders"]);
    sell(&fixture, 109, 1_020..1_040).await;
    fixture.settled().await;
    operator
        .types("Redis lost data", "tidegate audit", &[])
        .succeeds()
        .shows(&["It holds: 40 admitted orders"]);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_group_is_destroyed() {
    let (worker, operator, fixture) = at_work(116).await;
    sell(&fixture, 116, 1_000..1_050).await;
    fixture.add(&[("userId", "nobody"), ("voucherId", "116"), ("id", "9")]).await;
    fixture.settled().await;
    assert_eq!(fixture.dead().await.len(), 1);
    fixture.call(&format!("XGROUP DESTROY {STREAM} {GROUP}")).await;
    worker.says("the consumer group was gone and was created again").await;
    worker.says("the stream exists (entries: 51, ").await;
    fixture.settled().await;
    operator.types("The consumer group was lost", "redis INFO commandstats", &[]).succeeds().shows(&[
        "xgroup|destroy",
        "uptime_in_seconds",
        "in the stream 51",
        "undelivered 0",
        "pending 0",
    ]);
    operator.types("The consumer group was lost", "tidegate dead list", &[]).succeeds().shows(&[
        "bad_value",
        "2",
        "2 letters",
    ]);
    assert_eq!(fixture.dead().await.len(), 0);
    let audit = operator.types("The consumer group was lost", "tidegate audit", &[]).succeeds();
    audit.shows(&["It holds: 50 admitted orders"]);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_out_of_memory() {
    let (worker, operator, fixture) = at_work(111).await;
    sell(&fixture, 111, 1_000..1_020).await;
    fixture.settled().await;
    fixture.call("CONFIG SET maxmemory 1").await;
    let refused = fixture.tidegate(&["admit", "--voucher", "111", "--user", "5000"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("OOM command not allowed"), "{refused:?}");
    operator
        .types("Redis is out of memory", "redis INFO memory", &[])
        .succeeds()
        .shows(&["maxmemory:1", "seckill:journal:111"]);
    operator.types("Redis is out of memory", "redis CONFIG SET maxmemory 8gb", &[]).succeeds().shows(&["OK"]);
    sell(&fixture, 111, 2_000..2_010).await;
    fixture.settled().await;
    fixture.invariants().await;
    operator
        .types("Redis is out of memory", "redis UNLINK seckill:journal:111", &[])
        .succeeds()
        .shows(&["1"]);
    // The journal is not needed: the stock and the orders stay.
    assert_eq!(fixture.redis_stock(111).await, Some(fixture.mysql_stock(111).await));
    fixture.judge_except(&["voucher 111: 970 left in Redis, and 1000 by its journal"]).await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_of_redis_is_full() {
    // This Redis does not use `appendfsync always`: with that setting, it would end.
    let redis = RedisServer::start().expect("a Redis");
    let fixture = Fixture::on(redis, MysqlServer::start().expect("a MySQL")).await.migrated().await;
    fixture.load(112, 1_000).await;
    let operator = Operator::at(&fixture);
    let worker = impatient(&fixture, "w").start();
    sell(&fixture, 112, 1_000..1_020).await;
    fixture.settled().await;

    fixture.redis.fill_disk().expect("its files cannot grow");
    until("Redis refuses writes", || async {
        let set = fixture.client.set::<(), _, _>("written", 1, None, None, false);
        set.await.is_err()
    })
    .await;
    worker.says("outage began").await;
    worker.says("is the disk of Redis full?").await;
    let refused = fixture.tidegate(&["admit", "--voucher", "112", "--user", "5000"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("MISCONF"), "{refused:?}");
    operator.types("A disk is full", "tidegate doctor", &[]).ends_with(&[1, 0, 0]).shows(&[
        "Redis cannot write its append-only file",
        "do: free space on the disk of Redis; do not restart Redis before",
        "aof_last_write_status:err",
        "20",
    ]);

    // A client that logs in gets the reason; other clients are refused at the login.
    let doctor = fixture.tidegate(&["doctor"]);
    let found = String::from_utf8_lossy(&doctor.stdout);
    for word in [
        "MISCONF",
        "is the disk of Redis full?",
        "do: free space on the disk of Redis; do not restart Redis before",
    ] {
        assert!(found.contains(word), "{word}: {doctor:?}");
    }

    fixture.redis.free_disk().expect("there is room");
    worker.says("outage over").await;
    sell(&fixture, 112, 2_000..2_020).await;
    fixture.settled().await;
    operator.types("A disk is full", "tidegate status", &[]).succeeds().shows(&[
        "undelivered 0",
        "pending 0",
        "dead letters 0",
        "It holds: 40 admitted orders",
    ]);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_holds_the_row_of_a_voucher_is_found_and_killed() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(103, 1_000).await;
    let operator = Operator::at(&fixture);
    let worker = impatient(&fixture, "w").start();
    // The transaction of a backup is older, and locks no row.
    let mut backup = fixture.pool.acquire().await.expect("a connection");
    backup.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.expect("it begins");
    let mut holder = fixture.pool.begin().await.expect("a transaction");
    holder.execute("SELECT stock FROM tb_seckill_voucher FOR UPDATE").await.expect("the row is locked");
    for id in 1_000..1_020 {
        fixture.admit(id, id, 103, 1).await;
    }
    worker.says("locked by another session").await;
    until("the worker has told others", || async {
        fixture.call("EXISTS stream.orders.set_aside").await == 1.into()
    })
    .await;
    let told = operator.types("Entries are set aside", "tidegate status", &[]).succeeds();
    told.shows(&["voucher_row", "103", "set aside: voucher_row 103"]);

    let seen = operator.types("Entries are set aside", "SELECT t.trx_mysql_thread_id", &[]).succeeds();
    let [_, line] = seen.shown.lines().collect::<Vec<_>>()[..] else { panic!("not one: {}", seen.shown) };
    let (id, rest) = line.split_once(' ').expect("an id and more");
    assert!(rest.contains("Sleep"), "{rest}");
    operator.types("Entries are set aside", "KILL 156", &[("156", id)]).succeeds();
    fixture.settled().await;
    holder.execute("SELECT 1").await.expect_err("its connection is gone");
    backup.execute("COMMIT").await.expect("the backup went on");
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

/// A trigger raises the error of a full disk. A real full disk would need a file system of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_disk_of_mysql_is_full() {
    let (worker, operator, fixture) = at_work(112).await;
    let sql = async |text: &'static str| sqlx::raw_sql(text).execute(&fixture.pool).await.expect(text);
    let full = "CREATE TRIGGER full BEFORE INSERT ON tb_voucher_order FOR EACH ROW SIGNAL SQLSTATE 'HY000' \
                SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table ''tb_voucher_order'' is full'";
    sql(full).await;
    sell(&fixture, 112, 1_000..1_200).await;
    worker.says("is the disk of the server full?").await;
    // The entry fails more often than an entry may fail by its own fault.
    until("it was tried ten times", || async { worker.log().matches("outage began").count() >= 10 }).await;
    assert!(
        fixture.dead().await.is_empty() && fixture.orders().await.is_empty(),
        "nobody is to blame for a full disk"
    );
    assert_eq!(fixture.open_entries().await, Some(200));

    sql("DROP TRIGGER full").await;
    fixture.settled().await;
    operator.types("A disk is full", "tidegate status", &[]).succeeds().shows(&[
        "undelivered 0",
        "pending 0",
        "dead letters 0",
        "It holds: 200 admitted orders",
    ]);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_expire_late_and_then_a_store_goes_back_in_time() {
    let (worker, operator, fixture) = at_work(115).await;
    let limit = "UPDATE tb_seckill_voucher SET pay_within = 3600";
    fixture.pool.execute(limit).await.expect("MySQL answers");
    sell(&fixture, 115, 1_000..1_003).await;
    fixture.settled().await;
    fixture.redis_says(&["SET", "tidegate:pause", "tests", "EX", "600"]).await;
    worker.says("paused: no entries are read").await;
    let overdue = "UPDATE tidegate_unpaid_order SET due_ms = due_ms - 7200000, ask_ms = ask_ms - 7200000";
    fixture.pool.execute(overdue).await.expect("MySQL answers");
    operator.types("A store went back in time", "tidegate status", &[]).succeeds().shows(&[
        "The workers are paused",
        "orders to be paid in time 3",
        "overdue 3, the oldest for 1 h",
        "expired by w",
        "agree (restore counter",
    ]);
    fixture.redis_says(&["DEL", "tidegate:pause"]).await;
    until("they have expired", || async { fixture.live_orders().await.is_empty() }).await;

    sell(&fixture, 115, 1_010..1_013).await;
    fixture.settled().await;
    // A replica that was delayed for a long time has become the master.
    fixture.redis_says(&["SET", "tidegate:mark", "0"]).await;
    worker.says("a store went back in time").await;
    fixture.pool.execute(overdue).await.expect("MySQL answers");
    operator
        .types("A store went back in time", "tidegate status", &[])
        .succeeds()
        .shows(&["Redis went back in time: its restore counter is 0", "docs/runbook/store-went-back.md"]);
    operator
        .types("A store went back in time", "tidegate resume --expirations --dry-run", &[])
        .succeeds()
        .shows(&["3 overdue unpaid orders would expire", "unpaid orders expire again"]);
    until("they have expired", || async { fixture.live_orders().await.is_empty() }).await;
    fixture.settled().await;
    let over = operator.types("A store went back in time", "tidegate status", &[]).succeeds();
    assert!(!over.shown.contains("overdue") && !over.shown.contains("went back"), "{}", over.shown);
    fixture.invariants().await;
    stops_in_good_order(worker).await;
}

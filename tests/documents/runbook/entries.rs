//! Entries that wait, die, or are missing, one by one.

use crate::{
    runbook::recipes::Operator,
    site::{DEAD, GROUP, STREAM, Site, Worker, until},
};

/// A site that sells voucher 7, and somebody who operates it.
async fn open() -> (Operator, Site) {
    let site = Site::with_own_mysql().await;
    site.load(7, 100).await;
    (Operator::at(&site), site)
}

/// As [`open`], but MySQL has no row of the voucher.
async fn open_without_row() -> (Operator, Site) {
    let site = Site::with_own_mysql().await;
    site.call("SET seckill:stock:7 100").await;
    site.book.write(|pages| _ = pages.loaded.insert(7, 100));
    (Operator::at(&site), site)
}

async fn started(site: &Site) -> Worker {
    let worker = site.worker("w").set("WORKER_LOCK_LEASE_MS", 600).set("WORKER_CLAIM_IDLE_MS", 1_000).start();
    worker.says("worker started").await;
    worker
}

async fn stopped(site: &Site, worker: Worker) {
    site.settled().await;
    assert!(worker.stop().await.success());
}

/// A consumer that is gone has read all there is.
async fn all_is_held_by(site: &Site, consumer: &str) {
    site.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]).await;
    site.redis_says(&["XREADGROUP", "GROUP", GROUP, consumer, "STREAMS", STREAM, ">"]).await;
    // A minute ago.
    let pending = site.call(&format!("XPENDING {STREAM} {GROUP} - + 100")).await.into_array();
    for entry in pending {
        let id = entry.into_array()[0].as_string().expect("an entry id");
        site.call(&format!("XCLAIM {STREAM} {GROUP} {consumer} 0 {id} IDLE 60000 JUSTID")).await;
    }
}

/// The entry id of the oldest dead letter.
async fn first_letter(site: &Site) -> String {
    let letters = site.call(&format!("XRANGE {DEAD} - + COUNT 1")).await.into_array();
    letters[0].clone().into_array()[0].as_string().expect("an entry id")
}

async fn letters(site: &Site, count: usize) {
    until("they are buried", || async { site.dead().await.len() == count }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wave_of_poison_is_kept_in_a_file_and_dropped() {
    let (operator, site) = open().await;
    let worker = started(&site).await;
    for at in 0..50 {
        site.admit(1_000 + at, 1_000 + at, 7, 1).await;
        site.add(&[("userId", "nobody"), ("voucherId", "7"), ("id", "1")]).await;
    }
    letters(&site, 50).await;
    site.settled().await;
    operator.types("A wave of poison", "tidegate dead list --from -1h", &[]).succeeds().shows(&[
        "50 letters",
        "bad_value",
        "50 letters dropped",
        "It holds: 50 admitted orders",
    ]);
    let file = operator.file("poison.jsonl");
    assert_eq!(file.lines().filter(|line| line.contains("nobody")).count(), 50, "{file}");
    site.invariants().await;
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_without_a_row_gets_one_and_its_letters_are_requeued() {
    let (operator, site) = open_without_row().await;
    let worker = started(&site).await;
    for at in 0..10 {
        site.admit(1_000 + at, 1_000 + at, 7, 1).await;
    }
    letters(&site, 10).await;
    let letter = first_letter(&site).await;
    operator
        .types(
            "Dead letters appear",
            "tidegate dead list\ntidegate dead show",
            &[("1795175193179-0", &letter)],
        )
        .succeeds()
        .shows(&["10 letters", "unknown_voucher", "7"]);

    operator
        .types(
            "A voucher is missing in MySQL",
            "INSERT INTO tb_seckill_voucher",
            &[("2026-11-21", "2037-11-21")],
        )
        .succeeds();
    // Loaded, the stock in MySQL, that in Redis, and the oversell risk.
    operator
        .types("A voucher is missing in MySQL", "tidegate audit --voucher 7", &[])
        .shows(&["100 100 90 0"]);
    operator
        .types("Dead letters appear", "tidegate dead requeue --reason unknown_voucher", &[])
        .succeeds()
        .shows(&["10 letters requeued", "It holds: 10 admitted orders"]);
    site.settled().await;
    assert_eq!(site.orders().await.len(), 10);
    site.invariants().await;
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_nobody_wants_are_cancelled_and_their_units_are_on_sale_again() {
    let (operator, site) = open_without_row().await;
    let worker = started(&site).await;
    for at in 0..3 {
        site.admit(1_000 + at, 1_000 + at, 7, 2).await;
    }
    // Its producer takes nothing from the stock in Redis.
    site.add_order(2_000, 2_000, 7).await;
    letters(&site, 4).await;
    assert_eq!(site.redis_stock(7).await, Some(94));
    operator
        .types("Dead letters appear", "tidegate dead cancel --voucher 7 --dry-run", &[])
        .succeeds()
        .shows(&["4 letters"]);
    assert_eq!(site.redis_stock(7).await, Some(101));
    operator.types("Dead letters appear", "redis DECRBY seckill:stock:7 1", &[]).succeeds().shows(&["100"]);
    site.book.write(|pages| _ = pages.loaded.insert(7, 99));
    assert!(site.dead().await.is_empty());
    site.invariants().await;
    site.admit(3_000, 1_000, 7, 1).await;
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_id_was_forged_gets_another_one() {
    let (operator, site) = open().await;
    let worker = started(&site).await;
    site.add(&[("userId", "9001"), ("voucherId", "7"), ("id", "60001")]).await;
    site.settled().await;
    site.admit(60_001, 1_001, 7, 1).await;
    letters(&site, 1).await;
    let (letter, entry) = (first_letter(&site).await, site.dead().await[0]["dead:entry"].clone());
    operator
        .types("An order id is taken", "mysql -e ", &[])
        .succeeds()
        .shows(&["9001", r#"\"by\":\"1001\""#]);

    // The row is the forgery.
    for text in [
        "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 60001",
        "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 7",
    ] {
        sqlx::query(text).execute(&site.pool).await.expect(text);
    }
    operator
        .types("An order id is taken", "redis INCRBY seckill:stock:7 1", &[("USER", "1001")])
        .succeeds()
        .shows(&["100", "1"]);
    site.admit(60_002, 1_001, 7, 1).await;
    let drop = site.tidegate(&["dead", "drop", &letter, "--yes"]);
    assert_eq!(drop.status.code(), Some(1), "{drop:?}");
    operator
        .types(
            "An order id is taken",
            "redis XDEL stream.orders.dead 1795175193179-0",
            &[("1795175193179-0", &letter)],
        )
        .succeeds()
        .shows(&["1"]);
    site.settled().await;
    let users: Vec<(i64, i64)> = site.orders().await.iter().map(|order| (order.id, order.user)).collect();
    assert_eq!(users, [(60_001, 9_001), (60_002, 1_001)]);

    let audit = operator.types("The audit fails", "tidegate audit --voucher 7", &[]).ends_with(&[1]);
    audit.shows(&["differs from what was admitted under its id: 60001"]);
    operator
        .types("An order id is taken", "redis HDEL seckill:journal:7 60001", &[("1795175193100-0", &entry)])
        .succeeds()
        .shows(&["1", "1"]);
    assert_eq!(site.mismatches().await, Vec::<String>::new());
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_entries_are_shown_and_one_is_buried_by_hand() {
    let (operator, site) = open().await;
    for (entry, id) in [("1000-0", "501"), ("2000-0", "502")] {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let order = ["userId", id, "voucherId", "7", "id", id, "traceparent", trace];
        site.redis_says(&[&["XADD", STREAM, entry], &order[..]].concat()).await;
    }
    all_is_held_by(&site, "shop-7-0").await;
    let own = [("1795174742858-0", "1000-0")];
    operator
        .types("An order has no trace", "redis XRANGE stream.orders", &own)
        .succeeds()
        .shows(&["traceparent", "203331-00"]);
    operator.types("Pending grows", "tidegate consumers list", &own).succeeds().shows(&[
        "shop-7-0",
        "gone",
        "was in progress",
        "1000-0",
        "501",
    ]);
    site.redis_says(&["HSET", &format!("{STREAM}.deaths"), "1000-0", "2"]).await;
    let crashes =
        operator.types("Workers die of an entry", "tidegate pending list --crashes 1", &own).succeeds();
    let crashes = crashes.shows(&["1000-0", "was in progress", "2", "501", "crashes 2"]);
    assert!(!crashes.shown.contains("2000-0"), "{}", crashes.shown);
    operator
        .types("Pending grows", "tidegate pending bury 1795174742858-0", &own)
        .succeeds()
        .shows(&["Nothing was changed", "1 entry buried"]);

    let worker = started(&site).await;
    site.settled().await;
    let orders: Vec<i64> = site.orders().await.iter().map(|order| order.id).collect();
    assert_eq!(orders, [502]);
    let letters = site.dead().await;
    assert_eq!((letters.len(), letters[0]["dead:reason"].as_str()), (1, "by_operator"));
    assert!(letters[0]["dead:error"].contains("crashes every worker"), "{letters:?}");
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_nobody_is_deleted_and_the_order_is_written() {
    let (operator, site) = open().await;
    let worker = started(&site).await;
    site.call("SET lock:order:3001 somebody").await;
    site.admit(662_196_605_998_333_958, 3_001, 7, 1).await;
    site.admit(1_001, 1_001, 7, 1).await;
    until("the other one is written", || async { site.orders().await.len() == 1 }).await;
    operator
        .types("A lock that is stuck", "tidegate pending list --older-than 10s", &[("10s", "0s")])
        .ends_with(&[0, 0, 0, 0, 0])
        .shows(&["pending", "string", "-1", "somebody"]);
    operator.types("A lock that is stuck", "redis DEL lock:order:3001", &[]).succeeds().shows(&["1"]);
    site.settled().await;

    // A lock of Redisson.
    site.call("HSET lock:order:3002 c0ffee:41 1").await;
    site.admit(1_002, 3_002, 7, 1).await;
    let own = [("3001", "3002")];
    operator
        .types("A lock that is stuck", "redis HGETALL lock:order:3001", &own)
        .succeeds()
        .shows(&["c0ffee:41"]);
    assert_eq!(site.orders().await.len(), 2);
    operator.types("A lock that is stuck", "redis DEL lock:order:3001", &own).succeeds().shows(&["1"]);
    site.settled().await;
    site.invariants().await;
    operator
        .types("Where is my order?", "tidegate order show 662196605998333958", &[])
        .succeeds()
        .shows(&["written", "1001"]);
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_pod_held_is_taken_over_at_once_and_its_names_are_removed() {
    let (operator, site) = open().await;
    for id in 1_000..1_020 {
        site.admit(id, id, 7, 1).await;
    }
    all_is_held_by(&site, "shop-7-0").await;
    let worker = site.worker("w").set("WORKER_CLAIM_IDLE_MS", 3_600_000);
    let worker = worker.start();
    worker.says("worker started").await;
    operator.types("A worker or a pod is dead", "tidegate consumers list", &[]).succeeds().shows(&[
        "shop-7-0",
        "gone",
        "20",
        "removed",
        "It holds: 20 admitted orders",
    ]);
    site.settled().await;
    let consumers = site.tidegate(&["consumers", "list"]);
    assert!(!String::from_utf8_lossy(&consumers.stdout).contains("shop-7"), "{consumers:?}");
    site.invariants().await;
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_the_name_of_a_dead_one_goes_on_at_once() {
    let (_, site) = open().await;
    for id in 1_000..1_020 {
        site.admit(id, id, 7, 1).await;
    }
    all_is_held_by(&site, "shop-7-0").await;
    let worker = site.worker("shop-7").set("WORKER_CLAIM_IDLE_MS", 600_000).start();
    site.settled().await;
    site.invariants().await;
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_acknowledged_by_hand_is_appended_again_and_wrong_stocks_are_repaired() {
    let (operator, site) = open().await;
    site.admit(662_196_605_998_333_958, 7_001, 7, 1).await;
    all_is_held_by(&site, "c1").await;
    let pending = site.call(&format!("XPENDING {STREAM} {GROUP} - + 1")).await.into_array();
    let entry = pending[0].clone().into_array()[0].as_string().expect("an entry id");
    site.call(&format!("XACK {STREAM} {GROUP} {entry}")).await;
    operator
        .types("The audit fails", "tidegate audit --voucher 7", &[])
        .ends_with(&[1])
        .shows(&["lost", "662196605998333958"]);
    let worker = started(&site).await;
    operator
        .types("Admitted orders are lost", "redis HGET seckill:journal:7", &[])
        .succeeds()
        .shows(&[r#"\"by\":\"7001\""#]);
    until("it is written", || async { site.orders().await.len() == 1 }).await;
    site.settled().await;
    site.invariants().await;

    let less = "UPDATE tb_seckill_voucher SET stock = stock - 5 WHERE voucher_id = 7";
    sqlx::query(less).execute(&site.pool).await.expect("the stock is changed");
    let wrong = operator.types("The audit fails", "tidegate audit --voucher 7", &[]).ends_with(&[1]);
    wrong.shows(&["the stock in MySQL is 94, but"]);
    operator.types("The stock in MySQL is wrong", "UPDATE tb_seckill_voucher v", &[]).succeeds();
    site.invariants().await;

    site.call("INCR seckill:stock:7").await;
    let wrong = operator.types("The audit fails", "tidegate audit --voucher 7", &[]).ends_with(&[1]);
    wrong.shows(&["Redis offers 1 unit or more that MySQL does not have"]);
    operator
        .types("The stock in Redis is wrong", "redis DECRBY seckill:stock:7 1", &[])
        .succeeds()
        .shows(&["99"]);
    site.call("DECR seckill:stock:7").await;
    operator
        .types("The stock in Redis is wrong", "redis INCRBY seckill:stock:7 1", &[])
        .succeeds()
        .shows(&["99"]);
    operator
        .types("The stock in Redis is wrong", "tidegate reconcile --voucher 7 --repair", &[])
        .succeeds()
        .shows(&["Nothing is different"]);
    operator.types("The audit fails", "tidegate audit --voucher 7", &[]).succeeds().shows(&["It holds"]);
    site.invariants().await;
    stopped(&site, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_audit_cannot_read_or_understand_is_put_right() {
    let (operator, site) = open().await;
    let worker = started(&site).await;
    site.admit(60_001, 1_001, 7, 1).await;
    site.settled().await;

    sqlx::query("UPDATE tb_voucher_order SET status = 4").execute(&site.pool).await.expect("a row");
    let audit = operator.types("The audit fails", "tidegate audit --voucher 7", &[]).ends_with(&[1]);
    audit.shows(&["1 order is neither live nor cancelled", "60001"]);
    operator
        .types("Orders are neither live nor cancelled", "UPDATE tb_voucher_order SET status = 4", &[])
        .succeeds();
    operator.types("The stock in MySQL is wrong", "UPDATE tb_seckill_voucher v", &[]).succeeds();
    operator.types("The audit fails", "tidegate audit --voucher 7", &[]).succeeds().shows(&["It holds"]);

    site.call("RENAME seckill:stock:7 kept").await;
    site.call("RPUSH seckill:stock:7 strange").await;
    let audit = operator.types("The audit fails", "tidegate audit --voucher 7", &[]).ends_with(&[1]);
    audit.shows(&["seckill:stock:7: WRONGTYPE"]);
    operator
        .types("A key holds something else than it should", "redis TYPE seckill:stock:7", &[])
        .succeeds()
        .shows(&["list"]);
    operator
        .types("A key holds something else than it should", "redis RENAMENX seckill:stock:7", &[])
        .succeeds()
        .shows(&["1"]);
    site.call("RENAME kept seckill:stock:7").await;

    let entry = site.add(&[("user_id", "1"), ("voucher_id", "7"), ("order_id", "9")]).await;
    until("it is buried", || async { site.dead().await.len() == 1 }).await;
    site.call("DEL stream.orders.dead").await;
    let audit = operator.types("The audit fails", "tidegate audit --voucher 7", &[]).ends_with(&[1]);
    audit.shows(&["1 unreadable entry was acknowledged", &entry]);
    let own = [("1795174742858-0", entry.as_str())];
    operator
        .types("An unreadable entry was acknowledged", "redis XRANGE stream.orders", &own)
        .succeeds()
        .shows(&["user_id"]);
    operator
        .types("An unreadable entry was acknowledged", "redis XDEL stream.orders", &own)
        .succeeds()
        .shows(&["1"]);
    operator.types("The audit fails", "tidegate audit --voucher 7", &[]).succeeds().shows(&["It holds"]);
    stopped(&site, worker).await;
}

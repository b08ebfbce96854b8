//! Runbook: single entries that wait, die or are missing.

use crate::{
    fixture::{DEAD, Fixture, GROUP, STREAM, Worker, until},
    runbook::recipes::Operator,
};

/// A fixture that sells voucher 7, and an operator.
async fn open(voucher: i64) -> (Operator, Fixture) {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(voucher, 100).await;
    (Operator::at(&fixture), fixture)
}

/// Opens the same fixture, but MySQL has no row of the voucher.
async fn open_without_row() -> (Operator, Fixture) {
    let fixture = Fixture::with_own_mysql().await;
    fixture.call("SET seckill:stock:104 100").await;
    fixture.caller_log.write(|pages| _ = pages.loaded.insert(104, 100));
    (Operator::at(&fixture), fixture)
}

async fn started(fixture: &Fixture) -> Worker {
    let worker =
        fixture.worker("w").set("WORKER_LOCK_LEASE_MS", 600).set("WORKER_CLAIM_IDLE_MS", 1_000).start();
    worker.says("worker started").await;
    worker
}

async fn stopped(fixture: &Fixture, worker: Worker) {
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

/// Delivers all entries to a consumer that is gone.
async fn all_is_held_by(fixture: &Fixture, consumer: &str) {
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]).await;
    fixture.redis_says(&["XREADGROUP", "GROUP", GROUP, consumer, "STREAMS", STREAM, ">"]).await;
    // The entries were delivered a minute ago.
    let pending = fixture.call(&format!("XPENDING {STREAM} {GROUP} - + 100")).await.into_array();
    for entry in pending {
        let id = entry.into_array()[0].as_string().expect("an entry id");
        fixture.call(&format!("XCLAIM {STREAM} {GROUP} {consumer} 0 {id} IDLE 60000 JUSTID")).await;
    }
}

/// The entry id of the oldest dead letter.
async fn first_letter(fixture: &Fixture) -> String {
    let letters = fixture.call(&format!("XRANGE {DEAD} - + COUNT 1")).await.into_array();
    letters[0].clone().into_array()[0].as_string().expect("an entry id")
}

async fn letters(fixture: &Fixture, count: usize) {
    until("they are buried", || async { fixture.dead().await.len() == count }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wave_of_poison_is_kept_in_a_file_and_dropped() {
    let (operator, fixture) = open(104).await;
    let worker = started(&fixture).await;
    for at in 0..50 {
        fixture.admit(1_000 + at, 1_000 + at, 104, 1).await;
        fixture.add(&[("userId", "nobody"), ("voucherId", "104"), ("id", "1")]).await;
    }
    letters(&fixture, 50).await;
    fixture.settled().await;
    operator.types("Dead letters appear", "tidegate dead list --from -1h", &[]).succeeds().shows(&[
        "50 letters",
        "bad_value",
        "50 letters dropped",
        "It holds: 50 admitted orders",
    ]);
    let file = operator.file("poison.jsonl");
    assert_eq!(file.lines().filter(|line| line.contains("nobody")).count(), 50, "{file}");
    fixture.invariants().await;
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_without_a_row_gets_one_and_its_letters_are_requeued() {
    let (operator, fixture) = open_without_row().await;
    let worker = started(&fixture).await;
    for at in 0..10 {
        fixture.admit(1_000 + at, 1_000 + at, 104, 1).await;
    }
    letters(&fixture, 10).await;
    let letter = first_letter(&fixture).await;
    operator
        .types(
            "Dead letters appear",
            "tidegate dead list\ntidegate dead show",
            &[("1795175193179-0", &letter)],
        )
        .succeeds()
        .shows(&["10 letters", "unknown_voucher", "104"]);

    operator
        .types("Dead letters appear", "INSERT INTO tb_seckill_voucher", &[("2026-11-21", "2037-11-21")])
        .succeeds();
    // The columns are the loaded units, the stock in MySQL, the stock in Redis, and the oversell risk.
    operator.types("Dead letters appear", "tidegate audit --voucher 104", &[]).shows(&["100 100 90 0"]);
    operator
        .types("Dead letters appear", "tidegate dead requeue --reason unknown_voucher", &[])
        .succeeds()
        .shows(&["10 letters requeued", "It holds: 10 admitted orders"]);
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 10);
    fixture.invariants().await;
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_nobody_wants_are_cancelled_and_their_units_are_on_sale_again() {
    let (operator, fixture) = open_without_row().await;
    let worker = started(&fixture).await;
    for at in 0..3 {
        fixture.admit(1_000 + at, 1_000 + at, 104, 2).await;
    }
    // The producer of this order takes nothing from the stock in Redis.
    fixture.add_order(2_000, 2_000, 104).await;
    letters(&fixture, 4).await;
    assert_eq!(fixture.redis_stock(104).await, Some(94));
    operator
        .types("Dead letters appear", "tidegate dead cancel --voucher 104 --dry-run", &[])
        .succeeds()
        .shows(&["4 letters"]);
    assert_eq!(fixture.redis_stock(104).await, Some(101));
    operator.types("Dead letters appear", "redis DECRBY seckill:stock:104 1", &[]).succeeds().shows(&["100"]);
    fixture.caller_log.write(|pages| _ = pages.loaded.insert(104, 99));
    assert!(fixture.dead().await.is_empty());
    fixture.invariants().await;
    fixture.admit(3_000, 1_000, 104, 1).await;
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_id_was_forged_gets_another_one() {
    let (operator, fixture) = open(105).await;
    let worker = started(&fixture).await;
    fixture.add(&[("userId", "9001"), ("voucherId", "105"), ("id", "60105")]).await;
    fixture.settled().await;
    fixture.admit(60_105, 1_001, 105, 1).await;
    letters(&fixture, 1).await;
    let (letter, entry) = (first_letter(&fixture).await, fixture.dead().await[0]["dead:entry"].clone());
    operator
        .types("An order id is taken", "mysql -e ", &[])
        .succeeds()
        .shows(&["9001", r#"\"by\":\"1001\""#]);

    // In this case, the row is the forged part.
    for text in [
        "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 60105",
        "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 105",
    ] {
        sqlx::query(text).execute(&fixture.pool).await.expect(text);
    }
    operator
        .types("An order id is taken", "redis INCRBY seckill:stock:105 1", &[("USER", "1001")])
        .succeeds()
        .shows(&["100", "1"]);
    fixture.admit(60_106, 1_001, 105, 1).await;
    let drop = fixture.tidegate(&["dead", "drop", &letter, "--yes"]);
    assert_eq!(drop.status.code(), Some(1), "{drop:?}");
    operator
        .types(
            "An order id is taken",
            "redis XDEL stream.orders.dead 1795175193179-0",
            &[("1795175193179-0", &letter)],
        )
        .succeeds()
        .shows(&["1"]);
    fixture.settled().await;
    let users: Vec<(i64, i64)> = fixture.orders().await.iter().map(|order| (order.id, order.user)).collect();
    assert_eq!(users, [(60_105, 9_001), (60_106, 1_001)]);

    let audit =
        operator.types("The audit fails", "tidegate audit --voucher", &[("118", "105")]).ends_with(&[1]);
    audit.shows(&["differs from the admitted order with the same id: 60105"]);
    operator
        .types("An order id is taken", "redis HDEL seckill:journal:105 60105", &[("1795175193100-0", &entry)])
        .succeeds()
        .shows(&["1", "1"]);
    assert_eq!(fixture.mismatches().await, Vec::<String>::new());
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_entries_are_shown_and_one_is_buried_by_hand() {
    let (operator, fixture) = open(102).await;
    for (entry, id) in [("1000-0", "501"), ("2000-0", "502")] {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let order = ["userId", id, "voucherId", "102", "id", id, "traceparent", trace];
        fixture.redis_says(&[&["XADD", STREAM, entry], &order[..]].concat()).await;
    }
    all_is_held_by(&fixture, "shop-7-0").await;
    let own = [("1795174742858-0", "1000-0")];
    operator
        .types("Probes, scrapes and traces fail", "redis XRANGE stream.orders", &own)
        .succeeds()
        .shows(&["traceparent", "203331-00"]);
    operator.types("Pending grows", "tidegate consumers list", &own).succeeds().shows(&[
        "shop-7-0",
        "gone",
        "was in progress",
        "1000-0",
        "501",
    ]);
    fixture.redis_says(&["HSET", &format!("{STREAM}.deaths"), "1000-0", "2"]).await;
    let crashes = operator.types("Dead letters appear", "tidegate pending list --crashes 1", &own).succeeds();
    let crashes = crashes.shows(&["1000-0", "was in progress", "2", "501", "crashes 2"]);
    assert!(!crashes.shown.contains("2000-0"), "{}", crashes.shown);
    operator
        .types("Pending grows", "tidegate pending bury 1795174742858-0", &own)
        .succeeds()
        .shows(&["Nothing was changed", "1 entry buried"]);

    let worker = started(&fixture).await;
    fixture.settled().await;
    let orders: Vec<i64> = fixture.orders().await.iter().map(|order| order.id).collect();
    assert_eq!(orders, [502]);
    let letters = fixture.dead().await;
    assert_eq!((letters.len(), letters[0]["dead:reason"].as_str()), (1, "by_operator"));
    assert!(letters[0]["dead:error"].contains("crashes every worker"), "{letters:?}");
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_nobody_is_deleted_and_the_order_is_written() {
    let (operator, fixture) = open(103).await;
    let worker = started(&fixture).await;
    fixture.call("SET lock:order:1031 somebody").await;
    fixture.admit(662_196_605_998_334_103, 1_031, 103, 1).await;
    fixture.admit(1_061, 1_061, 103, 1).await;
    until("the other one is written", || async { fixture.orders().await.len() == 1 }).await;
    operator
        .types("Entries are set aside", "tidegate pending list --older-than 10s", &[("10s", "0s")])
        .ends_with(&[0, 0, 0, 0, 0])
        .shows(&["pending", "string", "-1", "somebody"]);
    operator.types("Entries are set aside", "redis DEL lock:order:1031", &[]).succeeds().shows(&["1"]);
    fixture.settled().await;

    // A lock of Redisson.
    fixture.call("HSET lock:order:1032 c0ffee:41 1").await;
    fixture.admit(1_002, 1_032, 103, 1).await;
    let own = [("1031", "1032")];
    operator
        .types("Entries are set aside", "redis HGETALL lock:order:1031", &own)
        .succeeds()
        .shows(&["c0ffee:41"]);
    assert_eq!(fixture.orders().await.len(), 2);
    operator.types("Entries are set aside", "redis DEL lock:order:1031", &own).succeeds().shows(&["1"]);
    // With the rights for lock.layout = "redisson". No Java waits here.
    fixture.call("ACL SETUSER tidegate-operator &redisson_lock__channel:* +publish").await;
    operator
        .types("Entries are set aside", "redis PUBLISH redisson_lock__channel:{lock:order:1031} 0", &own)
        .succeeds()
        .shows(&["0"]);
    fixture.settled().await;
    fixture.invariants().await;
    operator
        .types("Where is my order?", "tidegate order show", &[("662196605998334106", "662196605998334103")])
        .succeeds()
        .shows(&["written", "1061"]);
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_pod_held_is_taken_over_at_once_and_its_names_are_removed() {
    let (operator, fixture) = open(124).await;
    for id in 1_000..1_020 {
        fixture.admit(id, id, 124, 1).await;
    }
    all_is_held_by(&fixture, "shop-7-0").await;
    let worker = fixture.worker("w").set("WORKER_CLAIM_IDLE_MS", 3_600_000);
    let worker = worker.start();
    worker.says("worker started").await;
    operator.types("A worker or a pod is dead", "tidegate consumers list", &[]).succeeds().shows(&[
        "shop-7-0",
        "gone",
        "20",
        "removed",
        "It holds: 20 admitted orders",
    ]);
    fixture.settled().await;
    let consumers = fixture.tidegate(&["consumers", "list"]);
    assert!(!String::from_utf8_lossy(&consumers.stdout).contains("shop-7"), "{consumers:?}");
    fixture.invariants().await;
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_the_name_of_a_dead_one_goes_on_at_once() {
    let (_, fixture) = open(124).await;
    for id in 1_000..1_020 {
        fixture.admit(id, id, 124, 1).await;
    }
    all_is_held_by(&fixture, "shop-7-0").await;
    let worker = fixture.worker("shop-7").set("WORKER_CLAIM_IDLE_MS", 600_000).start();
    fixture.settled().await;
    fixture.invariants().await;
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_acknowledged_by_hand_is_appended_again_and_wrong_stocks_are_repaired() {
    let (operator, fixture) = open(118).await;
    fixture.admit(662_196_605_998_334_118, 1_181, 118, 1).await;
    all_is_held_by(&fixture, "c1").await;
    let pending = fixture.call(&format!("XPENDING {STREAM} {GROUP} - + 1")).await.into_array();
    let entry = pending[0].clone().into_array()[0].as_string().expect("an entry id");
    fixture.call(&format!("XACK {STREAM} {GROUP} {entry}")).await;
    operator
        .types("The audit fails", "tidegate audit --voucher 118", &[])
        .ends_with(&[1])
        .shows(&["lost", "662196605998334118"]);
    let worker = started(&fixture).await;
    operator
        .types("The audit fails", "redis HGET seckill:journal:118", &[])
        .succeeds()
        .shows(&[r#"\"by\":\"1181\""#]);
    until("it is written", || async { fixture.orders().await.len() == 1 }).await;
    fixture.settled().await;
    fixture.invariants().await;

    // The voucher of this page in the place of that of the other.
    let own = [("119", "118")];
    let less = "UPDATE tb_seckill_voucher SET stock = stock - 5 WHERE voucher_id = 118";
    sqlx::query(less).execute(&fixture.pool).await.expect("the stock is changed");
    let wrong = operator.types("The audit fails", "tidegate audit --voucher 118", &[]).ends_with(&[1]);
    wrong.shows(&["the stock in MySQL is 94, but"]);
    operator.types("The stock is wrong", "UPDATE tb_seckill_voucher v", &own).succeeds();
    fixture.invariants().await;

    fixture.call("INCR seckill:stock:118").await;
    let wrong = operator.types("The audit fails", "tidegate audit --voucher 118", &[]).ends_with(&[1]);
    wrong.shows(&["Redis offers 1 unit or more that MySQL does not have"]);
    operator.types("The stock is wrong", "redis DECRBY seckill:stock:119 1", &own).succeeds().shows(&["99"]);
    fixture.call("DECR seckill:stock:118").await;
    operator.types("The stock is wrong", "redis INCRBY seckill:stock:119 1", &own).succeeds().shows(&["99"]);
    operator
        .types("The stock is wrong", "tidegate reconcile --voucher 119 --repair", &own)
        .succeeds()
        .shows(&["Both stores agree"]);
    operator.types("The audit fails", "tidegate audit --voucher 118", &[]).succeeds().shows(&["It holds"]);
    fixture.invariants().await;
    stopped(&fixture, worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_audit_cannot_read_or_understand_is_put_right() {
    let (operator, fixture) = open(118).await;
    let worker = started(&fixture).await;
    fixture.admit(60_118, 1_182, 118, 1).await;
    fixture.settled().await;

    sqlx::query("UPDATE tb_voucher_order SET status = 4").execute(&fixture.pool).await.expect("a row");
    let audit = operator.types("The audit fails", "tidegate audit --voucher 118", &[]).ends_with(&[1]);
    audit.shows(&["1 order is neither live nor cancelled", "60118"]);
    operator.types("The audit fails", "UPDATE tb_voucher_order SET status = 4", &[]).succeeds();
    operator.types("The stock is wrong", "UPDATE tb_seckill_voucher v", &[("119", "118")]).succeeds();
    operator.types("The audit fails", "tidegate audit --voucher 118", &[]).succeeds().shows(&["It holds"]);

    fixture.call("RENAME seckill:stock:118 kept").await;
    fixture.call("RPUSH seckill:stock:118 strange").await;
    let audit = operator.types("The audit fails", "tidegate audit --voucher 118", &[]).ends_with(&[1]);
    audit.shows(&["seckill:stock:118: WRONGTYPE"]);
    operator.types("The audit fails", "redis TYPE seckill:stock:118", &[]).succeeds().shows(&["list"]);
    operator.types("The audit fails", "redis RENAMENX seckill:stock:118", &[]).succeeds().shows(&["1"]);
    fixture.call("RENAME kept seckill:stock:118").await;

    let entry = fixture.add(&[("user_id", "1"), ("voucher_id", "118"), ("order_id", "9")]).await;
    until("it is buried", || async { fixture.dead().await.len() == 1 }).await;
    fixture.call("DEL stream.orders.dead").await;
    let audit = operator.types("The audit fails", "tidegate audit --voucher 118", &[]).ends_with(&[1]);
    audit.shows(&["1 unreadable entry was acknowledged", &entry]);
    let own = [("1795174742858-0", entry.as_str())];
    operator.types("Dead letters appear", "redis XRANGE stream.orders", &own).succeeds().shows(&["user_id"]);
    operator.types("Dead letters appear", "redis XDEL stream.orders", &own).succeeds().shows(&["1"]);
    operator.types("The audit fails", "tidegate audit --voucher 118", &[]).succeeds().shows(&["It holds"]);
    stopped(&fixture, worker).await;
}

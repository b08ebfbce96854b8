//! Tests of `tidegate order show` and `tidegate order find`, with orders in all states, on real servers.

use serde_json::Value as Json;
use tidegate_lab::Proxy;

use crate::{
    fixture::{DEAD, Fixture, GROUP, STREAM, WorkerPlan, rush::PLENTY, rush::SHORT, until},
    program::{Program, Run, closed_port},
};

const BIG: i64 = 9_007_199_254_740_993;

fn operator(fixture: &Fixture) -> Program {
    with_stores(&fixture.redis.url(), &fixture.mysql.url())
}

fn with_stores(redis_url: &str, mysql_url: &str) -> Program {
    Program::with_variables(redis_url, mysql_url)
}

fn quick(fixture: &Fixture, name: &str) -> WorkerPlan {
    fixture
        .worker(name)
        .set("WORKER_LANES", 1)
        .set("WORKER_LOCK_LEASE_MS", 600)
        .set("WORKER_HEARTBEAT_TTL_MS", 600)
}

/// The report of an order, which must have this fate.
#[track_caller]
fn shown(fixture: &Fixture, question: &str, fate: &str) -> Json {
    let run = operator(fixture).run(&format!("order show {question} --json")).expect(0);
    let told = run.json();
    assert_eq!(told["fate"]["is"], fate, "{told:#}");
    told
}

#[track_caller]
fn says(told: &Json, sentence: &str) {
    assert!(told["fate"]["sentence"].as_str().expect("a sentence").contains(sentence), "{told:#}");
}

fn commands(told: &Json) -> Vec<&str> {
    told["fate"]["commands"].as_array().expect("an array").iter().filter_map(Json::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_within_an_id_is_told_unless_its_entry_is_of_another() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(BIG, 42, PLENTY, 1).await;
    let told = shown(&fixture, &BIG.to_string(), "undelivered");
    assert_eq!(told["made_ms"], Json::Null, "by this id, which is none of ours, it would be of 2022");
    let admitted =
        operator(&fixture).run(&format!("admit --voucher {PLENTY} --user 43 --json")).expect(0).json();
    let told = shown(&fixture, admitted["order"].as_str().expect("an id"), "undelivered");
    assert!(told["made_ms"].as_u64().is_some(), "{told:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_followed_from_its_admission_to_its_row() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(BIG, 42, PLENTY, 2).await;
    let told = shown(&fixture, &BIG.to_string(), "undelivered");
    says(&told, "no living worker reads the stream: start a worker");
    assert_eq!(
        (&told["order"], &told["journal"][0]["by"]),
        (&BIG.to_string().into(), &"42".into()),
        "{told:#}"
    );
    assert_eq!(told["buyer_of"][0], PLENTY.to_string(), "{told:#}");
    let entry = told["entries"][0]["id"].as_str().expect("an id").to_owned();
    fixture.judge_except(&[format!("{STREAM} has 1 entries, and no group {GROUP}")]).await;

    // The entry is in progress at a worker, which is killed later.
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let hold = proxy.hold_reply_when("lock:order:");
    let victim = quick(&fixture, "victim").set("REDIS_URL", proxy.url_for(&fixture.redis)).start();
    hold.reached().await.expect("it has locked the user");
    let told = shown(&fixture, &BIG.to_string(), "pending");
    says(&told, "victim-0 holds entry");
    says(&told, "has the entry in progress: you need not do anything");
    assert!(told["lock"]["holder"].as_str().expect("a lock").starts_with("tidegate-"), "{told:#}");
    victim.kill9();
    hold.cut();
    until("its heartbeat is over", || async {
        shown(&fixture, &BIG.to_string(), "pending")["entries"][0]["state"]["alive"] == false
    })
    .await;
    let told = shown(&fixture, &BIG.to_string(), "pending");
    says(&told, "no living worker reads the stream: start a worker");
    fixture.judge_with_open(1).await;

    let heir = quick(&fixture, "heir").set("WORKER_CLAIM_EVERY_MS", 3_600_000).start();
    heir.says("worker started").await;
    let told = shown(&fixture, &format!("{BIG} --voucher {PLENTY}"), "pending");
    says(&told, "or at once after tidegate consumers drain");
    assert_eq!(commands(&told), ["tidegate consumers drain victim-0"]);
    assert!(heir.stop().await.success());

    let worker = quick(&fixture, "victim").start();
    fixture.settled().await;
    let told = shown(&fixture, &BIG.to_string(), "written");
    says(&told, "order 9007199254740993 of user 42 for voucher 1 (2 units)");
    assert_eq!(
        (&told["row"]["entry"], &told["row"]["user"]),
        (&entry.clone().into(), &"42".into()),
        "{told:#}"
    );
    assert_eq!(told["entries"][0]["state"]["is"], "settled", "{told:#}");
    assert_eq!(told["searched"]["stream"]["entries"], 0, "what is known is not searched for");

    fixture.call(&format!("XTRIM {STREAM} MAXLEN 0")).await;
    let told = shown(&fixture, &BIG.to_string(), "written");
    assert_eq!(told["trimmed"][0], entry, "{told:#}");
    let text = operator(&fixture).run(&format!("order show {BIG}")).expect(0).stdout;
    assert!(text.contains(&format!("stream   {entry}: not there any more")), "{text}");
    assert!(text.contains("MySQL    user 42, voucher 1, 2 units, unpaid, written "), "{text}");
    assert!(
        text.contains("journal  voucher 1: admitted ") && text.contains("You need not do anything."),
        "{text}"
    );

    sqlx::query("UPDATE tb_voucher_order SET status = 2, pay_time = NOW()")
        .execute(&fixture.pool)
        .await
        .expect("a row");
    assert!(shown(&fixture, &BIG.to_string(), "written")["row"]["paid_ms"].is_number());
    assert!(worker.stop().await.success());
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_dead_letters_and_stolen_ids_are_told_with_what_can_be_done() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    // MySQL has twelve units, and Redis offers many more.
    for order in 100..113 {
        fixture.admit(order, order, SHORT, 1).await;
    }
    fixture.admit(200, 7, PLENTY, 1).await;
    fixture.add_order(201, 7, PLENTY).await;
    let unknown = fixture.add(&[("userId", "9"), ("voucherId", "999"), ("id", "300")]).await;
    let stolen = fixture.add(&[("userId", "8"), ("voucherId", "1"), ("id", "200")]).await;
    // When this entry is buried, its fields are packed into one, because its first field has a name that Tidegate uses.
    fixture.add(&[("dead:fields", "x"), ("userId", "9"), ("voucherId", "999"), ("id", "302")]).await;
    let no_order = fixture.add(&[("userId", "x"), ("voucherId", "1"), ("id", "301")]).await;
    says(&shown(&fixture, "301", "undelivered"), "The entry is no order (the field userId");
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    until("all are buried", || async { fixture.dead().await.len() == 4 }).await;
    assert!(worker.stop().await.success());

    let told = shown(&fixture, "112", "refused");
    says(&told, "MySQL had too few units left");
    assert_eq!(
        (&told["refusal"]["reason"], &told["journal"][0]["action"]),
        (&"out_of_stock".into(), &"release".into())
    );
    assert!(told["buyer_of"].as_array().expect("an array").is_empty(), "{told:#}");
    says(&shown(&fixture, "201", "refused"), "its user had an order for this voucher already");

    let told = shown(&fixture, "300", "dead");
    assert_eq!(
        (&told["letters"][0]["reason"], &told["letters"][0]["entry"]),
        (&"unknown_voucher".into(), &unknown.clone().into())
    );
    let letter = told["letters"][0]["id"].as_str().expect("an id");
    let typed = ["show", "requeue", "cancel"].map(|word| format!("tidegate dead {word} {letter}"));
    assert_eq!(commands(&told), typed);
    assert_eq!(commands(&shown(&fixture, "302", "dead")).len(), 3);
    let found = operator(&fixture).run("order find --user 9 --json").expect(0).json();
    let dead: Vec<&Json> = found["orders"].as_array().expect("an array").iter().collect();
    assert_eq!((dead.len(), &dead[1]["letter"]), (2, &letter.into()), "{found:#}");
    assert_eq!(dead[1]["entry"], unknown, "the entry that was buried: {found:#}");
    let told = shown(&fixture, "301", "dead");
    assert_eq!(
        (&told["letters"][0]["reason"], &told["letters"][0]["entry"]),
        (&"bad_value".into(), &no_order.into())
    );
    assert_eq!(told["letters"][0]["wanted"]["voucher"], "1", "what can be read of it is shown: {told:#}");
    assert!(commands(&told)[1].starts_with("tidegate dead drop "), "{told:#}");
    let told = shown(&fixture, "200", "written");
    says(&told, "A dead letter of user 8 has the same id");
    assert_eq!(told["letters"][0]["entry"], stolen, "{told:#}");
    fixture.judge().await;

    // An operator buries an entry that was delivered to a consumer which does not exist any more.
    fixture.admit(400, 40, PLENTY, 1).await;
    fixture.hand_over("ghost", 1).await;
    let flags = ["pending", "bury", "--consumer", "ghost", "--why", "asked for", "--yes"];
    operator(&fixture).run_with(&flags, &[]).expect(0);
    says(&shown(&fixture, "400", "dead"), "for the reason by_operator (asked for)");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_released_or_lost_is_told_apart_and_a_lost_order_can_be_brought_back() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let released = tidegate_orders::scripts::Release {
        order: 10.try_into().unwrap(),
        user: 10.try_into().unwrap(),
        voucher: PLENTY.try_into().unwrap(),
        units: Some(1.try_into().unwrap()),
        user_after: tidegate_orders::scripts::UserAfter::Freed,
        by: "operator:test".into(),
    };
    fixture.store().await.releases().release(&released).await.expect("the store answers");
    says(&shown(&fixture, "10", "released"), "by operator:test, and is not written");

    fixture.admit(20, 20, PLENTY, 3).await;
    fixture.admit(21, 21, PLENTY, 1).await;
    let entry = fixture.add_order(22, 22, PLENTY).await;
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    // MySQL has lost commits, and one of the entries was trimmed.
    sqlx::query("DELETE FROM tb_voucher_order WHERE id IN (20, 22)")
        .execute(&fixture.pool)
        .await
        .expect("rows");
    sqlx::query("UPDATE tb_seckill_voucher SET stock = stock + 4 WHERE voucher_id = 1")
        .execute(&fixture.pool)
        .await
        .expect("a row");
    let first = shown(&fixture, "20", "lost");
    assert_eq!(commands(&first).len(), 1, "{first:#}");
    assert!(
        commands(&first)[0].starts_with("tidegate replay --from "),
        "its entry is still there: {first:#}"
    );
    fixture.call(&format!("XDEL {STREAM} {}", first["entries"][0]["id"].as_str().expect("an id"))).await;
    let told = shown(&fixture, "20", "lost");
    assert_eq!(
        commands(&told),
        [
            "redis-cli -u \"$TIDEGATE_REDIS_URL\" XADD stream.orders '*' userId 20 voucherId 1 id 20 quantity 3"
        ]
    );
    let told = shown(&fixture, "22", "lost");
    assert_eq!(commands(&told), [format!("tidegate replay --from {entry} --to {entry}")], "{told:#}");
    fixture.judge_except(&[
        &*format!("voucher 1: order 22 of entry {entry} is settled, and nowhere; its id has None"),
        "voucher 1: order 20 is admitted as Some(Held { user: 20, quantity: 3 }), and found as None, refused: None",
        "voucher 1: users without an order may not buy: [20]",
    ])
    .await;

    fixture.add(&[("userId", "20"), ("voucherId", "1"), ("id", "20"), ("quantity", "3")]).await;
    fixture.add(&[("userId", "22"), ("voucherId", "1"), ("id", "22")]).await;
    let told = shown(&fixture, "22", "undelivered");
    assert_eq!(told["entries"].as_array().map(Vec::len), Some(2), "the one before is shown, too: {told:#}");
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    for order in ["20", "22"] {
        shown(&fixture, order, "written");
    }
    fixture.judge().await;

    // The entry is pending, and its payload is deleted.
    let gone = fixture.add_order(30, 30, PLENTY).await;
    fixture.hand_over("ghost", 1).await;
    fixture.call(&format!("XDEL {STREAM} {gone}")).await;
    let told = shown(&fixture, &format!("30 --entry {gone}"), "lost");
    says(&told, "its payload was deleted or trimmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_without_a_trace_is_unknown_and_what_was_not_searched_is_said() {
    let fixture = Fixture::open().await;
    let operator = operator(&fixture);
    let unknown = operator.run("order show 77").expect(1);
    assert!(unknown.stdout.contains("No store knows the order"), "{unknown:?}");
    assert!(unknown.stdout.contains("ask the caller for the reply"), "{unknown:?}");
    operator.run("order show x").expect(2);
    operator.run("order find").expect(2);
    operator.run("order find --user 1").expect(1);

    fixture.load(PLENTY, 10_000).await;
    // An order id of Tidegate shows where to search, whatever was added since.
    let admitted = operator.run("admit --voucher 1 --user 5 --json").expect(0).json();
    let order = admitted["order"].as_str().expect("an id").to_owned();
    fixture.call("DEL seckill:journal:1").await;
    for other in 0..300 {
        fixture.add_order(1_000 + other, 1_000 + other, PLENTY).await;
    }
    let told = shown(&fixture, &order, "undelivered");
    assert!(told["made_ms"].is_number(), "{told:#}");
    // An id of another program does not show that.
    let cut = operator.run("order show 1000 --scan 100 --json").expect(1).json();
    says(&cut, "of the stream, only the newest 100 entries were searched, down to id");
    assert_eq!(commands(&cut), ["tidegate order show 1000 --scan 10000"]);
    says(&shown(&fixture, "1000 --scan 10000", "undelivered"), "no living worker reads the stream");
    let hinted = operator.run(&format!(
        "order show 1000 --scan 1 --entry {}",
        told["entries"][0]["id"].as_str().expect("an id")
    ));
    assert_eq!(hinted.code, 0, "what is named is shown: {hinted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_wrong_type_and_stores_that_are_away_are_told_and_the_rest_is_shown() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(50, 50, PLENTY, 1).await;
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let failed = |program: &Program, fate: &str, error: &str| {
        let run = program.run("order show 50 --json").expect(3).json();
        assert_eq!(run["fate"]["is"], fate, "{run:#}");
        assert!(run["errors"].to_string().contains(error), "{run:#}");
        run
    };
    let operator = operator(&fixture);
    fixture.call("SET lock:order:50 x").await;
    fixture.call("DEL seckill:journal:1").await;
    fixture.call("SET seckill:journal:1 x").await;
    failed(&operator, "written", "the journals: Invalid Argument: seckill:journal:1: WRONGTYPE");
    fixture.call(&format!("SET {DEAD} x")).await;
    failed(&operator, "written", "the dead letters: Invalid Argument: stream.orders.dead: WRONGTYPE");
    let closed = closed_port();
    let no_mysql = with_stores(&fixture.redis.url(), &format!("mysql://nobody@127.0.0.1:{closed}/hmdp"));
    let run = failed(&no_mysql, "unsure", "Failed to reach MySQL");
    assert_eq!(run["entries"][0]["state"]["is"], "settled", "{run:#}");
    let no_redis = with_stores(&format!("redis://127.0.0.1:{closed}"), &fixture.mysql.url());
    let run = failed(&no_redis, "written", "Failed to reach Redis");
    assert_eq!(run["row"]["order"], "50", "{run:#}");
    fixture.call(&format!("DEL {STREAM}")).await;
    fixture.call(&format!("SET {STREAM} x")).await;
    failed(&operator, "written", "the stream: Invalid Argument: stream.orders: WRONGTYPE");
    operator.run("order find --user 50").expect(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_waits_for_a_lock_says_whose_it_is() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = quick(&fixture, "w").start();
    for (order, lock, told) in [
        (80, "SET lock:order:80 shop", "shop holds the lock, which never expires"),
        (81, "HSET lock:order:81 c0ffee:41 1", "c0ffee:41 holds the lock, which never expires"),
        (82, "RPUSH lock:order:82 a", "whose lock has an unknown layout"),
        (83, "HSET lock:order:83 mode read c0ffee:41 1", "whose lock has an unknown layout"),
    ] {
        fixture.call(lock).await;
        fixture.admit(order, order, PLENTY, 1).await;
        until("it is set aside", || async {
            let run = operator(&fixture).run(&format!("order show {order} --json")).expect(0).json();
            run["entries"][0]["state"]["deliveries"].as_u64() == Some(0)
        })
        .await;
        says(&shown(&fixture, &order.to_string(), "pending"), told);
        fixture.call(&format!("DEL lock:order:{order}")).await;
    }
    fixture.settled().await;
    shown(&fixture, "80", "written");
    assert!(worker.stop().await.success());
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_found_by_user_and_by_voucher_wherever_they_are() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(60, 6, PLENTY, 1).await;
    fixture.add_order(61, 6, PLENTY).await;
    fixture.add(&[("userId", "6"), ("voucherId", "999"), ("id", "62")]).await;
    fixture.admit(70, 7, PLENTY, 1).await;
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    until("one is buried", || async { fixture.dead().await.len() == 1 }).await;
    assert!(worker.stop().await.success());
    fixture.admit(63, 6, SHORT, 1).await;
    fixture.hand_over("ghost", 1).await;
    fixture.add_order(64, 6, SHORT).await;

    let operator = operator(&fixture);
    let found = |flags: &str| -> Vec<(String, String)> {
        let answer: Run = operator.run(&format!("order find {flags} --json")).expect(0);
        let answer = answer.json();
        let text = |it: &Json, field: &str| it[field].as_str().expect("text").to_owned();
        let orders = answer["orders"].as_array().expect("an array").iter();
        let mut orders: Vec<_> = orders.map(|it| (text(it, "order"), text(it, "is"))).collect();
        orders.sort();
        orders
    };
    let pair = |order: &str, is: &str| (order.to_owned(), is.to_owned());
    let all = [
        pair("60", "written"),
        pair("61", "refused"),
        pair("62", "dead"),
        pair("63", "pending"),
        pair("64", "undelivered"),
    ];
    assert_eq!(found("--user 6"), all);
    assert_eq!(found("--user 6 --voucher 2"), all[3..]);
    assert_eq!(found("--voucher 1"), [pair("60", "written"), pair("61", "refused"), pair("70", "written")]);
    assert_eq!(found("--user 6 --limit 2").len(), 2);
    let table = operator.run("order find --user 6 --limit 2").expect(0).stdout;
    assert!(table.contains("The search is incomplete: more orders match than --limit shows."), "{table}");
    assert!(
        table.contains("the buyers of vouchers 2, 1") || table.contains("the buyers of vouchers 1, 2"),
        "{table}"
    );
    operator.run("order find --user 600").expect(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_vouchers_that_mysql_does_not_know_are_found_by_what_redis_holds() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(90, 9, PLENTY, 1).await;
    fixture.admit(91, 9, SHORT, 1).await;
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    // An older backup: the rows of a voucher are gone, the order of the other one is left.
    for sql in ["DELETE FROM tb_voucher_order WHERE id = 90", "DELETE FROM tb_seckill_voucher"] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("a statement");
    }
    fixture.call(&format!("XTRIM {STREAM} MAXLEN 0")).await;

    let told = shown(&fixture, "90", "lost");
    assert_eq!((&told["journal"][0]["voucher"], &told["journal"][0]["by"]), (&"1".into(), &"9".into()));
    assert_eq!(
        commands(&told),
        ["redis-cli -u \"$TIDEGATE_REDIS_URL\" XADD stream.orders '*' userId 9 voucherId 1 id 90"]
    );
    let operator = operator(&fixture);
    assert!(operator.run("order show 92").expect(1).stdout.contains("No store knows the order"));

    let found = operator.run("order find --user 9 --json").expect(0).json();
    assert_eq!(found["orders"][0]["order"], "91", "{found:#}");
    assert_eq!(found["buyer_of"], Json::from(vec!["1", "2"]), "{found:#}");
    assert_eq!(found["unsearched"], Json::Array(Vec::new()), "{found:#}");
    operator.run("order find --user 10").expect(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_a_voucher_without_a_row_and_without_buyers_are_found_by_their_user() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(90, 9, PLENTY, 1).await;
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    // Another program sold an older voucher, which is unknown everywhere else.
    for sql in [
        "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (91, 9, 77), (92, 10, 77), (93, 9, 78)",
        "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
         VALUES (94, 9, 79, 1, 'out_of_stock', '1-0')",
    ] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("a statement");
    }
    let orders = |flags: &str| -> Vec<String> {
        let found = operator(&fixture).run(&format!("order find {flags} --json")).expect(0).json();
        assert_eq!(found["unsearched"], Json::Array(Vec::new()), "{found:#}");
        let orders = found["orders"].as_array().expect("an array").iter();
        let mut orders: Vec<String> =
            orders.map(|it| it["order"].as_str().expect("an id").to_owned()).collect();
        orders.sort();
        orders
    };
    assert_eq!(orders("--user 9"), ["90", "91", "93", "94"]);
    assert_eq!(orders("--user 9 --voucher 77"), ["91"]);
    assert_eq!(orders("--user 9 --voucher 79"), ["94"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_shown_also_where_the_table_has_none_of_the_tutorials_moments() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.admit(90, 9, PLENTY, 1).await;
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    for moment in ["create_time", "pay_time", "use_time", "refund_time", "update_time"] {
        let sql = format!("ALTER TABLE tb_voucher_order DROP COLUMN {moment}");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&fixture.pool).await.expect("the column is dropped");
        let told = shown(&fixture, "90", "written");
        assert_eq!(told["errors"], Json::Array(Vec::new()), "{told:#}");
    }
    let found = operator(&fixture).run("order find --user 9 --json").expect(0).json();
    assert_eq!((&found["orders"][0]["order"], &found["orders"][0]["at_ms"]), (&"90".into(), &Json::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_neither_live_nor_cancelled_is_called_so() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    for order in [90, 91, 92] {
        fixture.admit(order, order, PLENTY, 1).await;
    }
    let worker = quick(&fixture, "w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    for sql in [
        "UPDATE tb_voucher_order SET status = 4 WHERE id = 90",
        "UPDATE tb_voucher_order SET slot = NULL WHERE id = 91",
        "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 92",
    ] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("a statement");
    }
    says(&shown(&fixture, "90", "contradictory"), "has slot 1 and is cancelled");
    says(&shown(&fixture, "91", "contradictory"), "has no slot and is unpaid");
    shown(&fixture, "92", "cancelled");
    for (user, is) in [(90, "contradictory"), (91, "contradictory"), (92, "cancelled")] {
        let found = operator(&fixture).run(&format!("order find --user {user} --json")).expect(0).json();
        assert_eq!(found["orders"][0]["is"], is, "{found:#}");
    }
    let contradictory = ["order 90: slot Some(1) and status 4", "order 91: slot None and status 1"];
    // The program that changed the rows did not change the stock.
    fixture
        .judge_except(
            &[&contradictory[..], &["voucher 1: Some(100000) loaded, 1 sold, 99997 left in MySQL"]].concat(),
        )
        .await;
}

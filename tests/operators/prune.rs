//! Tests of `tidegate prune refusals events dead-letters`: it removes final and old data of orders that cannot come
//! back.

use std::process::Stdio;

use serde_json::{Value as Json, json};
use sqlx::AssertSqlSafe;
use tidegate_lab::Proxy;
use tidegate_orders::{RedisStore, scripts::AdmitReply};

use crate::{
    fixture::{Fixture, STREAM, until},
    partitions::{self, TAGS, by_partition},
    program::Program,
    sale::{ask, open, program, sql},
};

async fn buy(store: &RedisStore, id: i64, user: i64) {
    assert_eq!(ask(store, id, user, 1).await, AdmitReply::Admitted);
}

async fn numbers(fixture: &Fixture, select: &str) -> Vec<i64> {
    sqlx::query_scalar(AssertSqlSafe(select.to_owned()))
        .fetch_all(&fixture.pool)
        .await
        .expect("MySQL answers")
}

/// Makes all rows a hundred days old.
async fn grow_old(fixture: &Fixture) {
    for table in ["tidegate_refusal", "tidegate_event"] {
        sql(fixture, &format!("UPDATE {table} SET at = NOW() - INTERVAL 100 DAY")).await;
    }
}

/// Empties the stream, as the retention does.
async fn trim(fixture: &Fixture) {
    fixture.settled().await;
    fixture.redis_says(&["XTRIM", STREAM, "MAXLEN", "0"]).await;
}

fn pruned(program: &Program, line: &str, kind: &str) -> (u64, u64) {
    let report: Json = program.run(&format!("{line} --yes --json")).expect(0).json();
    (report[kind]["purged"].as_u64().unwrap(), report[kind]["kept"].as_u64().unwrap())
}

async fn agrees(fixture: &Fixture, program: &Program) {
    let look = program.run("reconcile --json").expect(0).json();
    for voucher in look["vouchers"].as_array().unwrap() {
        assert_eq!(voucher["differences"], json!([]), "nothing is told, not even what is no failure");
    }
    fixture.judge().await;
}

const REFUSALS: &str = "SELECT order_id FROM tidegate_refusal ORDER BY order_id";

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_goes_only_where_no_entry_no_letter_and_no_journal_names_its_order() {
    let (fixture, program, store) = open().await;
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    buy(&store, 1, 1).await;
    fixture.settled().await;
    // Order 11 came by XADD alone, and order 12 through the gate, whose journal has its release.
    fixture.add_order(11, 1, 7).await;
    fixture.redis_says(&["SREM", "seckill:order:7", "1"]).await;
    buy(&store, 12, 1).await;
    fixture.add_order(13, 1, 7).await;
    fixture.add_order(14, 1, 7).await;
    until("four are refused", || async { numbers(&fixture, REFUSALS).await.len() == 4 }).await;
    fixture.settled().await;
    fixture.redis_says(&["SADD", "seckill:order:7", "1"]).await;
    grow_old(&fixture).await;
    sql(&fixture, "UPDATE tidegate_refusal SET at = NOW() WHERE order_id = 14").await;
    let line = "prune refusals --older-than 90d";
    assert!(
        program.run(&format!("{line} --yes")).expect(0).stdout.contains("3 of the same age stay"),
        "the stream names them"
    );
    assert_eq!(numbers(&fixture, REFUSALS).await, [11, 12, 13, 14]);

    // An event of order 13 becomes a dead letter, which names the order.
    worker.stop().await;
    let entry =
        fixture.add(&[("event", "cancelled"), ("orderId", "13"), ("userId", "1"), ("voucherId", "7")]).await;
    fixture.hand_over("gone-0", 10).await;
    program.run(&format!("pending bury {entry} --why test --yes")).expect(0);
    trim(&fixture).await;
    let plan = program.run(&format!("{line} --dry-run")).expect(0);
    assert!(plan.stdout.contains("1 refusal would be deleted; 2 of the same age stay"), "{plan:?}");
    assert_eq!(numbers(&fixture, REFUSALS).await.len(), 4, "a dry run deletes nothing");
    assert_eq!(pruned(&program, line, "refusals"), (1, 2));
    assert_eq!(numbers(&fixture, REFUSALS).await, [12, 13, 14]);
    agrees(&fixture, &program).await;

    program.run("dead drop --all --yes").expect(0);
    program.run("voucher delist --voucher 7 --yes").expect(0);
    program.run("voucher delist --voucher 7 --remove-keys --yes").expect(0);
    assert_eq!(pruned(&program, line, "refusals"), (2, 0));
    assert_eq!(numbers(&fixture, REFUSALS).await, [14], "the young one stays");
    agrees(&fixture, &program).await;
    let log = program.run("log").expect(0).stdout;
    assert!(log.contains("prune"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_ended_orders_go_but_for_payments_and_the_last_and_both_sides_still_agree() {
    let (fixture, program, store) = open().await;
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    for id in 1..=5 {
        buy(&store, id, id).await;
    }
    until("five are written", || async { fixture.orders().await.len() == 5 }).await;
    for line in [
        // Order 1 is used, 2 is refunded, 3 is only paid, 4 is cancelled and paid too late, and 5 is paid twice and
        // used.
        "order event paid 1 --ref p1 --yes",
        "order event paid 1 --ref p1 --yes",
        "order event used 1 --yes",
        "order event paid 2 --ref p2 --yes",
        "order event refunding 2 --yes",
        "order event refund_failed 2 --yes",
        "order event refunded 2 --ref r2 --yes",
        "order event paid 3 --ref p3 --yes",
        "order event cancelled 4 --yes",
        "order event paid 4 --ref p4 --yes",
        "order event paid 5 --ref p5 --yes",
        "order event paid 5 --ref p5b --yes",
        "order event used 5 --yes",
    ] {
        program.run(line);
    }
    fixture.settled().await;
    let all = [11, 12, 13, 21, 22, 23, 24, 31, 41, 42, 51, 52, 53];
    assert_eq!(numbers(&fixture, EVENTS).await, all);
    let line = "prune events --older-than 90d";
    assert_eq!(pruned_none(&program, line), "0 events would be deleted");
    grow_old(&fixture).await;
    assert!(
        pruned_none(&program, line).starts_with("0 events would be deleted; 13 of the same age stay"),
        "the stream names them"
    );
    trim(&fixture).await;
    // The repeated payment and the failed refund are pruned.
    assert_eq!(pruned(&program, line, "events"), (3, 10));
    assert_eq!(numbers(&fixture, EVENTS).await, [11, 13, 21, 24, 31, 41, 42, 51, 52, 53]);
    agrees(&fixture, &program).await;
    let units = program.run("voucher show --voucher 7 --json").expect(0).json()["mysql"]["units"].clone();
    assert_eq!((&units["released"], &units["unaccounted"]), (&json!(2), &json!(0)), "{units}");
    program.run("order show 2").expect(0);

    // The same final event again changes nothing, and is recorded as a step of its own.
    program.run("order event used 1 --yes").expect(0);
    fixture.settled().await;
    assert_eq!(numbers(&fixture, EVENTS).await[..3], [11, 13, 14]);
    assert_eq!(fixture.mysql_stock(7).await, 97);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_prune_a_payment_is_decided_as_before_it() {
    let (fixture, program, store) = open().await;
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    for id in 1..=3 {
        buy(&store, id, id).await;
    }
    until("three are written", || async { fixture.orders().await.len() == 3 }).await;
    for line in [
        // Order 1 is used, 2 is refunded, and 3 is cancelled, paid too late and refunded.
        "order event paid 1 --ref p1 --yes",
        "order event used 1 --yes",
        "order event used 1 --yes",
        "order event used 1 --yes",
        "order event paid 2 --ref p2 --yes",
        "order event refunded 2 --ref r2 --yes",
        "order event cancelled 3 --yes",
        "order event paid 3 --ref p3 --yes",
        "order event refunded 3 --ref r3 --yes",
        "order event cancelled 3 --yes",
    ] {
        program.run(line);
    }
    fixture.settled().await;
    grow_old(&fixture).await;
    trim(&fixture).await;
    assert_eq!(pruned(&program, "prune events --older-than 90d", "events"), (1, 9));
    let outcome = |line: &str| {
        let report = program.run(&format!("order event {line} --yes --json")).json();
        report["orders"][0]["outcome"].as_str().expect("an outcome").to_owned()
    };
    for (line, expected) in [
        // The same payments and refunds change nothing.
        ("paid 1 --ref p1", "unchanged"),
        ("paid 2 --ref p2", "unchanged"),
        ("paid 3 --ref p3", "unchanged"),
        ("refunded 2 --ref r2", "unchanged"),
        ("refunded 3 --ref r3", "unchanged"),
        // Second payments have to be refunded.
        ("paid 1 --ref p1b", "refund_due"),
        ("paid 2 --ref p2b", "refund_due"),
        ("paid 3 --ref p3b", "refund_due"),
        ("refunded 1 --payment p1b", "applied"),
        ("refunded 1 --payment p1b", "unchanged"),
        ("refunded 1 --payment nobodys", "rejected"),
    ] {
        assert_eq!(outcome(line), expected, "{line}");
    }
    assert_eq!(
        numbers(&fixture, "SELECT CAST(status AS SIGNED) FROM tb_voucher_order ORDER BY id").await,
        [3, 6, 6]
    );
    agrees(&fixture, &program).await;
    worker.stop().await;
}

/// The output of a prune that has nothing to do.
fn pruned_none(program: &Program, line: &str) -> String {
    program.run(&format!("{line} --yes")).expect(0).stdout.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_only_where_its_order_has_ended_in_mysql_and_never_one_about_money() {
    let (fixture, program, store) = open().await;
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    worker.says("consumer group created").await;
    worker.stop().await;
    // Copies of an order that will be written and of one that will be refused, an order of a user without any other
    // order, a payment, and an entry that is no order.
    let mut entries = Vec::new();
    for (id, user) in [(1, 1), (11, 1), (31, 31)] {
        entries.push(fixture.add_order(id, user, 7).await);
    }
    entries
        .push(fixture.add(&[("event", "paid"), ("orderId", "1"), ("userId", "1"), ("voucherId", "7")]).await);
    entries.push(fixture.add(&[("nothing", "1")]).await);
    fixture.hand_over("gone-0", 10).await;
    program.run(&format!("pending bury {} --why test --yes", entries.join(" "))).expect(0);
    assert_eq!(fixture.dead().await.len(), 5);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    buy(&store, 1, 1).await;
    until("one is written", || async { fixture.orders().await.len() == 1 }).await;
    fixture.add_order(11, 1, 7).await;
    until("one is refused", || async { numbers(&fixture, REFUSALS).await.len() == 1 }).await;
    fixture.settled().await;
    worker.stop().await;
    assert_eq!(
        pruned_none(&program, "prune dead-letters --older-than 1h"),
        "0 dead letters would be deleted"
    );
    assert_eq!(pruned(&program, "prune dead-letters --older-than 0s", "dead_letters"), (2, 3));
    let left = fixture.dead().await;
    assert!(
        left.iter().all(|letter| !["1", "11"].contains(&letter.get("id").map_or("", String::as_str))),
        "{left:?}"
    );
    assert_eq!(left.len(), 3);
}

const EVENTS: &str =
    "SELECT CAST(order_id * 10 + step AS SIGNED) FROM tidegate_event ORDER BY order_id, step";

/// The numbers of pruned and kept items of a kind, in all partitions together.
fn in_all_partitions(stdout: &str, kind: &str) -> (u64, u64) {
    let counts = by_partition(stdout).into_iter().map(|(_, own)| own[kind].clone());
    counts.fold((0, 0), |(purged, kept), own| {
        (purged + own["purged"].as_u64().unwrap(), kept + own["kept"].as_u64().unwrap())
    })
}

/// Vouchers 3, 4 and 5 belong to the partitions 3, 1 and 0. The stream of partition 1 still names orders 14 and 24.
async fn refused_and_ended_orders_in_each_partition(fixture: &Fixture) {
    for tag in TAGS.split(',') {
        let stream = format!("{{{tag}}}:{STREAM}");
        fixture.redis_says(&["XGROUP", "CREATE", &stream, "g1", "0", "MKSTREAM"]).await;
    }
    for (voucher, refused, ended) in [(3, 13, 23), (4, 14, 24), (5, 15, 25)] {
        sql(fixture, &format!(
            "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
             VALUES ({refused}, 7, {voucher}, 1, 'out_of_stock', '1-0'); \
             INSERT INTO tb_voucher_order (id, user_id, voucher_id, status, slot) VALUES ({ended}, 8, {voucher}, 4, NULL); \
             INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, from_status, to_status, released, entry_id) \
             VALUES ({ended}, 1, 'cancelled', 'applied', 8, {voucher}, 1, 4, 1, '1-0'), \
             ({ended}, 2, 'cancelled', 'unchanged', 8, {voucher}, NULL, NULL, 0, '2-0'), \
             ({ended}, 3, 'cancelled', 'unchanged', 8, {voucher}, NULL, NULL, 0, '3-0')"
        ))
        .await;
    }
    for order in ["14", "24"] {
        let stream = format!("{{1}}:{STREAM}");
        fixture.redis_says(&["XADD", &stream, "*", "userId", "7", "voucherId", "4", "id", order]).await;
    }
    grow_old(fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_of_one_partition_leaves_the_rows_of_the_others_in_a_mysql_that_they_share() {
    let fixture = Fixture::open().await;
    let program = partitions::program(&fixture, TAGS);
    refused_and_ended_orders_in_each_partition(&fixture).await;
    // An event of order 24 that names a voucher of another partition: it belongs to the partition of its order.
    sql(&fixture, "UPDATE tidegate_event SET voucher_id = 5 WHERE order_id = 24 AND step = 2").await;
    let line = "prune refusals events --older-than 90d";
    let dry = program.run(&format!("{line} --dry-run --json")).expect(0).stdout;
    assert_eq!(in_all_partitions(&dry, "refusals"), (2, 1), "each row is counted once: {dry}");
    assert_eq!(in_all_partitions(&dry, "events"), (2, 7), "each row is counted once: {dry}");
    let found = program.run("order find --user 7").expect(0);
    for order in ["13", "14", "15"] {
        let rows = found
            .stdout
            .lines()
            .filter(|line| line.contains("refused") && line.split_whitespace().next() == Some(order));
        assert_eq!(rows.count(), 1, "{found:#?}");
    }

    program.run(&format!("{line} --partition 0 --yes")).expect(0);
    assert_eq!(numbers(&fixture, REFUSALS).await, [13, 14]);
    assert_eq!(numbers(&fixture, EVENTS).await, [231, 232, 233, 241, 242, 243, 251, 253]);
    let all = program.run(&format!("{line} --yes --json")).expect(0).stdout;
    assert_eq!((in_all_partitions(&all, "refusals"), in_all_partitions(&all, "events")), ((1, 1), (1, 7)));
    assert_eq!(numbers(&fixture, REFUSALS).await, [14], "the stream of its partition names it");
    assert_eq!(numbers(&fixture, EVENTS).await, [231, 233, 241, 242, 243, 251, 253]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_stream_or_a_store_nothing_is_pruned_and_nothing_by_default() {
    let fixture = Fixture::with_own_mysql().await;
    let program = program(&fixture);
    let insert = "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id, at) \
                  VALUES (1, 1, 7, 1, 'out_of_stock', '1-0', NOW() - INTERVAL 100 DAY)";
    sqlx::query(insert).execute(&fixture.pool).await.unwrap();
    let line = "prune refusals --older-than 90d --yes";
    let refused = program.run(line);
    assert!(refused.code != 0 && refused.stderr.contains("does not exist"), "{refused:?}");
    fixture.redis_says(&["SET", STREAM, "x"]).await;
    let refused = program.run(line);
    assert!(refused.code != 0 && refused.stderr.contains("is a string"), "{refused:?}");
    let nothing = program.run("prune --older-than 90d --yes").expect(2);
    assert!(nothing.stderr.contains("<WHAT>"), "{nothing:?}");
    let ageless = program.run("prune refusals --yes").expect(2);
    assert!(ageless.stderr.contains("--older-than is missing"), "{ageless:?}");
    let both = program.run("prune stream refusals --older-than 90d --yes").expect(2);
    assert!(both.stderr.contains("the stream cannot be pruned together"), "{both:?}");
    fixture.redis_says(&["DEL", STREAM]).await;
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, "g1", "0", "MKSTREAM"]).await;
    fixture.mysql.kill9().expect("MySQL is gone");
    assert_eq!(program.run(line).code, 3);
    fixture.mysql.restart().expect("MySQL is back");
    program.run(line).expect(0);
    until("the row is gone", || async {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM tidegate_refusal")
            .fetch_one(&fixture.pool)
            .await
            .unwrap_or(1);
        count == 0
    })
    .await;
}

/// Rows of a realistic size, enough for many chunks.
async fn many_rows(fixture: &Fixture, rows: i64) {
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, "g1", "0", "MKSTREAM"]).await;
    for from in (0..rows).step_by(2_000) {
        let ids = from..(from + 2_000).min(rows);
        let order = |nth: i64| 693_106_606_080_001 + nth;
        let refusals = ids.clone().map(|nth| {
            format!(
                "({}, {nth}, 7, 1, 'out_of_stock', '1795420296089-{nth}', NOW() - INTERVAL 100 DAY)",
                order(nth)
            )
        });
        let refusals = refusals.collect::<Vec<_>>().join(",");
        sql(fixture, &format!("INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id, at) VALUES {refusals}")).await;
        let events = ids.map(|nth| {
            format!(
                "({}, 1, 'paid', 'applied', {nth}, 7, 'pay-{nth:016}', 1, 2, '1795420296089-{nth}')",
                order(nth)
            )
        });
        let events = events.collect::<Vec<_>>().join(",");
        sql(fixture, &format!("INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, ref, from_status, to_status, entry_id) VALUES {events}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_that_is_killed_between_two_bites_leaves_the_rest_to_the_next_one() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    many_rows(&fixture, 2_500).await;
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let through = Program::with_flags(&[
        "--redis-url",
        &fixture.redis.url(),
        "--mysql-url",
        &mysql.url_for(&fixture.mysql),
    ]);
    let line = "prune refusals --older-than 90d --yes";
    // The last chunk is the one with the last order.
    let hold = mysql.hold_when(b"693106606082500)");
    let mut command = through.command(&line.split(' ').collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs");
    hold.reached().await.expect("it comes to the last chunk");
    assert_eq!(numbers(&fixture, REFUSALS).await.len(), 500, "each chunk is a transaction of its own");
    child.kill().expect("it is there");
    child.wait().expect("it is gone");
    hold.cut();
    assert_eq!(pruned(&program, "prune refusals --older-than 90d", "refusals"), (500, 0));
    assert_eq!(numbers(&fixture, REFUSALS).await, [0_i64; 0]);
}

/// docs/prune.md names these sizes.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_takes_no_more_bytes_on_disk_than_the_documents_say() {
    let fixture = Fixture::open().await;
    const ROWS: i64 = 20_000;
    many_rows(&fixture, ROWS).await;
    for (table, most) in [("tidegate_refusal", 150), ("tidegate_event", 200)] {
        sql(&fixture, &format!("ANALYZE TABLE {table}")).await;
        let select = format!(
            "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = '{table}'"
        );
        let bytes = numbers(&fixture, &select).await[0] / ROWS;
        println!("{table}: {bytes} bytes a row");
        assert!((50..=most).contains(&bytes), "{table}: {bytes} bytes a row");
    }
}

//! Tests of `tidegate audit` after a real worker has run. The tests of its findings are in tidegate-compare.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tidegate_compare::{Comparison, ComparisonRequest, Job, Pace, Silent};
use tidegate_orders::{
    Quantity,
    scripts::{Release, UserAfter},
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, rush::SHORT, until};

const BIG: i64 = 9_007_199_254_740_993;
/// The time for which a moving pipeline is audited.
const MOVING: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn it_holds_after_a_worker_and_fails_with_the_order_that_is_taken_away() {
    let fixture = Fixture::open().await;
    fixture.load(10, 100).await;
    for order in 0..20 {
        fixture.add_order(BIG + order, 1000 + order, 10).await;
    }
    fixture.add(&[("userId", "1"), ("voucherId", "10")]).await;
    let before = fixture.tidegate(&["audit"]);
    assert_eq!(before.status.code(), Some(0), "all in flight: {before:?}");

    let worker = fixture.worker("w").start();
    until_dead(&fixture, 1).await;
    fixture.settled().await;
    worker.signal(Signal::SIGTERM);
    let held = fixture.tidegate(&["audit"]);
    let text = String::from_utf8_lossy(&held.stdout).into_owned();
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    assert!(text.contains("It holds: 20 admitted orders"), "{text}");
    // A bare XADD takes no units in Redis.
    let risk = "Voucher 10 has an oversell risk of 20: see \
                docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong";
    assert!(text.find(risk) < text.find("It holds") && text.contains(risk), "{text}");
    assert!(text.contains("Entries that are no orders: 1 (1 dead"), "{text}");
    assert!(!text.contains("by the field names in [fields]"), "{text}");
    let misnamed = fixture.add(&[("user_id", "1"), ("voucher_id", "10"), ("order_id", "9")]).await;
    let told = fixture.tidegate(&["audit"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("1 entry is no order according to the field names in [fields]: "), "{told}");
    assert!(told.contains("Correct these names for workers and commands"), "{told}");
    fixture.call(&format!("XDEL stream.orders {misnamed}")).await;

    let typo = fixture.tidegate(&["audit", "--voucher", "9999"]);
    assert_eq!(
        typo.status.code(),
        Some(1),
        "nobody is told that all is well with what is not there: {typo:?}"
    );
    assert!(String::from_utf8_lossy(&typo.stderr).contains("voucher 9999 is unknown"), "{typo:?}");

    let lost = (BIG + 7).to_string();
    sqlx::query("DELETE FROM tb_voucher_order WHERE id = ?")
        .bind(BIG + 7)
        .execute(&fixture.pool)
        .await
        .expect("a row");
    let failed = fixture.tidegate(&["audit", "--json"]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let json: Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    let voucher = &json["vouchers"][0];
    assert_eq!((&json["holds"], &voucher["voucher"]), (&Value::Bool(false), &Value::from("10")));
    assert_eq!(voucher["lost"]["first"], Value::from(vec![lost]), "{json}");
    // Another voucher is not concerned.
    fixture.load(11, 5).await;
    assert_eq!(fixture.tidegate(&["audit", "--voucher", "11"]).status.code(), Some(0));
    // The audit cannot know which orders Redis lost, but it reports the loss.
    fixture.redis_says(&["FLUSHALL"]).await;
    let (code, text) = audit(&fixture);
    assert!(text.contains("MySQL holds 19 orders that Redis does not know"), "{text}");
    let forgotten = "voucher 10: Redis does not know the voucher: its sale is on, and MySQL has 80 units left and 19 \
                     orders that came through Redis, but Redis has no stock under the configured key names; see \
                     docs/runbook/redis-lost-data.md";
    assert!(code == Some(1) && text.contains(forgotten), "{text}");
    assert!(!text.contains("voucher 11: "), "nobody has bought of it: {text}");
    // An order that ends now leaves a note in the journal, which brings nothing back.
    let note = r#"{"action":"release","from":null,"to":null,"change":0,"by":"worker:expired","timestamp":1}"#;
    let order = (BIG + 1).to_string();
    let sql = "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = ?";
    sqlx::query(sql).bind(BIG + 1).execute(&fixture.pool).await.expect("a row");
    fixture.redis_says(&["HSET", "seckill:journal:10", &order, note]).await;
    let (code, text) = audit(&fixture);
    assert!(code == Some(1) && text.contains("voucher 10: Redis does not know the voucher"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_redis_need_not_know_are_no_failure() {
    let fixture = Fixture::open().await;
    fixture.load(10, 100).await;
    fixture.add_order(1, 1_001, 10).await;
    let worker = fixture.worker("w").start();
    until("it is written", || async { fixture.orders().await.len() == 1 }).await;
    assert!(worker.stop().await.success());
    fixture.call("FLUSHALL").await;
    assert_eq!(audit(&fixture).0, Some(1));
    for (change, back) in [
        // The voucher was taken over, or another program sells it.
        ("UPDATE tb_voucher_order SET entry_id = NULL", "UPDATE tb_voucher_order SET entry_id = '1-0'"),
        (
            "UPDATE tb_seckill_voucher SET begin_time = NOW() - INTERVAL 2 HOUR, end_time = NOW() - INTERVAL 1 HOUR",
            "UPDATE tb_seckill_voucher SET end_time = NOW() + INTERVAL 1 HOUR",
        ),
        (
            "UPDATE tb_seckill_voucher SET stock = 0, initial_stock = 1",
            "UPDATE tb_seckill_voucher SET stock = 99, initial_stock = 100",
        ),
    ] {
        sqlx::query(change).execute(&fixture.pool).await.expect("the row is changed");
        let (code, text) = audit(&fixture);
        assert!(code == Some(0) && text.contains("It holds"), "{change}: {text}");
        sqlx::query(back).execute(&fixture.pool).await.expect("the row is changed back");
        assert_eq!(audit(&fixture).0, Some(1), "{back}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_orders_are_told_with_their_time_and_the_command_that_writes_them() {
    let fixture = Fixture::open().await;
    fixture.load(10, 100).await;
    let worker = fixture.worker("w").start();
    worker.says("consumer group created").await;
    assert!(worker.stop().await.success());
    for order in 1..=3 {
        fixture.admit(order, 1_000 + order, 10, 1).await;
    }
    let entries = fixture.call("XRANGE stream.orders - +").await.into_array();
    let entries: Vec<String> =
        entries.into_iter().map(|entry| entry.into_array()[0].as_string().expect("an id")).collect();
    fixture.call("XREADGROUP GROUP g1 hand STREAMS stream.orders >").await;
    for entry in &entries {
        fixture.call(&format!("XACK stream.orders g1 {entry}")).await;
    }
    fixture.call(&format!("XDEL stream.orders {}", entries[0])).await;
    let (code, text) = audit(&fixture);
    let command = format!("tidegate replay --voucher 10 --from {} --to {} --dry-run", entries[1], entries[2]);
    assert!(code == Some(1) && text.contains(&command), "{text}");
    assert!(text.contains("Lost orders of voucher 10 were admitted from 20"), "{text}");
    assert!(text.contains("The stream has no entry of 1 lost order"), "{text}");

    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let plan = fixture.tidegate(&words);
    assert!(String::from_utf8_lossy(&plan.stdout).contains("2 would be created"), "{plan:?}");
    let words: Vec<&str> = words.into_iter().filter(|word| *word != "--dry-run").chain(["--yes"]).collect();
    assert_eq!(fixture.tidegate(&words).status.code(), Some(0));
    let (_, text) = audit(&fixture);
    assert!(
        !text.contains("tidegate replay") && text.contains("voucher 10: 1 admitted order is lost: 1"),
        "{text}"
    );
    let json = fixture.tidegate(&["audit", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let span = &json["vouchers"][0]["lost_span"];
    assert_eq!((&span["in_stream"], &span["entries"]), (&Value::from(0), &Value::Null), "{json}");
    // The journal has the time of the admission.
    assert!(span["from_ms"].as_u64().expect("a time") > 1_700_000_000_000, "{json}");
}

/// The findings of the operation behind the command. The oversell risk of [`SHORT`] is left out, because that voucher
/// is there to have one.
async fn audit_failures(fixture: &Fixture) -> Vec<String> {
    let request = ComparisonRequest { vouchers: Vec::new(), since_ms: None, pace: Pace::Full };
    let comparison = Comparison::new((fixture.store().await, fixture.pool.clone()), request);
    let job = Job { stop: CancellationToken::new(), progress: Box::new(Silent) };
    let report = tidegate_compare::audit::audit(&comparison, &job).await;
    let failures = report.expect("both answer").failures();
    let is_meant = format!("voucher {SHORT}: Redis offers");
    let failures = failures.into_iter().filter(|failure| !failure.starts_with(&is_meant));
    failures.map(|failure| format!("audit: {failure}")).collect()
}

/// The exit code of `tidegate audit`, and its output.
fn audit(fixture: &Fixture) -> (Option<i32>, String) {
    let output = fixture.tidegate(&["audit"]);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_of_a_moving_pipeline_raises_no_false_alarm() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    // Small batches: many moments at which an order is between two places.
    let worker = |name: &str| fixture.worker(name).set("WORKER_BATCH", 20).start();
    let workers = [worker("a"), worker("b")];
    let began = Instant::now();
    let (mut rushes, mut audits) = (1, 0);
    while began.elapsed() < MOVING || audits < 3 {
        let rush = async {
            fixture.rush(rushes * 200, 200).await;
            fixture.add_poison().await;
        };
        let ((), failures) = tokio::join!(rush, audit_failures(&fixture));
        assert_eq!(failures, Vec::<String>::new(), "audit {audits}, beside the rush");
        assert_eq!(audit_failures(&fixture).await, Vec::<String>::new(), "audit {audits}, behind it");
        (rushes, audits) = (rushes + 1, audits + 1);
    }
    fixture.settled().await;
    assert!(!fixture.refused().await.is_empty(), "refusals were going on");
    fixture.invariants().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_vouchers_that_only_redis_knows_are_followed() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.load(7, 100).await;
    let store = fixture.store().await;
    for order in 1..=5 {
        fixture.admit(order, order, 7, 1).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    // MySQL was restored from an older backup, which has nothing of the sale, and the stream was trimmed.
    for sql in ["DELETE FROM tb_voucher_order", "DELETE FROM tb_seckill_voucher WHERE voucher_id = 7"] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("a statement");
    }
    assert!(worker.stop().await.success());
    fixture.redis_says(&["XTRIM", "stream.orders", "MAXLEN", "0"]).await;
    // There are many other keys, and one of them is no text.
    let others = "for at = 1, 5000 do redis.call('SET', 'other:' .. at, '') end \
                  redis.call('SET', 'seckill:journal:\\255', '') return 1";
    fixture.redis_says(&["EVAL", others, "0"]).await;
    for flags in [&["audit"][..], &["audit", "--voucher", "7"]] {
        let audit = fixture.tidegate(flags);
        let text = String::from_utf8_lossy(&audit.stdout).into_owned();
        assert_eq!(audit.status.code(), Some(1), "{audit:?}");
        assert!(text.contains("voucher 7: 5 admitted orders are lost: 1, 2, 3, 4, 5"), "{text}");
    }

    // A released order needs no row.
    for order in 1..=5 {
        let release = Release {
            order: order.try_into().expect("an id"),
            user: order.try_into().expect("an id"),
            voucher: 7.try_into().expect("an id"),
            units: Some(Quantity::ONE),
            user_after: UserAfter::Freed,
            by: "operator:test".into(),
        };
        store.releases().release(&release).await.expect("the store answers");
    }
    let held = fixture.tidegate(&["audit"]);
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    assert!(String::from_utf8_lossy(&held.stdout).contains("It holds: 5 admitted orders"), "{held:?}");
    assert_eq!(fixture.tidegate(&["audit", "--voucher", "7"]).status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_wrong_type_is_a_finding_about_its_voucher_and_the_others_are_audited() {
    let fixture = Fixture::open().await;
    for voucher in [7, 8] {
        fixture.load(voucher, 100).await;
        fixture.admit(voucher, 1_000, voucher, 1).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    fixture.call("DEL seckill:journal:8 seckill:stock:8 stream.orders").await;
    fixture.call("SET seckill:journal:8 x").await;
    fixture.call("RPUSH seckill:stock:8 x").await;
    let (code, text) = audit(&fixture);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("voucher 8: seckill:stock:8: WRONGTYPE"), "{text}");
    assert!(text.contains("voucher 8: seckill:journal:8: WRONGTYPE"), "{text}");
    assert!(!text.contains("not know the voucher"), "what it cannot read, it does not call gone: {text}");
    assert!(!text.contains("voucher 7: "), "{text}");
    let others = fixture.tidegate(&["audit", "--voucher", "7"]);
    assert_eq!(others.status.code(), Some(0), "{others:?}");

    // The sale of such a voucher can be stopped, and the doctor names the key.
    let pause = fixture.tidegate(&["pause", "--voucher", "8", "--yes"]);
    let told = String::from_utf8_lossy(&pause.stdout).into_owned();
    assert!(pause.status.success() && told.contains("its sale is paused"), "{pause:?}");
    let pause = fixture.tidegate(&["pause", "--voucher", "8", "--json", "--dry-run"]);
    assert!(String::from_utf8_lossy(&pause.stdout).contains("paused_before"), "{pause:?}");
    fixture.call("DEL seckill:voucher:8").await;
    let pause = fixture.tidegate(&["pause", "--voucher", "8", "--dry-run"]);
    let told = String::from_utf8_lossy(&pause.stdout).into_owned();
    assert!(told.contains("seckill:stock:8: WRONGTYPE") && !told.contains("no stock"), "{pause:?}");
    let doctor = fixture.tidegate(&["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1), "{told}");
    assert!(told.contains("voucher 8 cannot be bought: "), "{told}");
    assert!(told.contains("seckill:stock:8: WRONGTYPE"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_a_tutorial_that_made_the_stream_before_the_group_is_no_failure() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100).await;
    fixture.call("XADD stream.orders * init 1").await;
    fixture.call("XGROUP CREATE stream.orders g1 $").await;
    fixture.admit(1, 1_000, 7, 1).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let (code, text) = audit(&fixture);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 (0 dead, 0 in flight, 1 with too few fields for an order, 0 lost)"), "{text}");

    // The audit reports an entry that should have been an order, and names a page of the runbook.
    let entry = fixture.add(&[("user_id", "1"), ("voucher_id", "7"), ("order_id", "9")]).await;
    fixture.call("XGROUP SETID stream.orders g1 $").await;
    let (code, text) = audit(&fixture);
    let told = format!(
        "1 unreadable entry was acknowledged and is not among the dead letters: {entry}; see \
         docs/runbook/dead-letters.md#unreadable-entries"
    );
    assert!(code == Some(1) && text.contains(&told), "{text}");
    fixture.call(&format!("XDEL stream.orders {entry}")).await;
    assert_eq!(audit(&fixture).0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversell_risk_is_found_while_orders_are_on_their_way_and_never_where_there_is_none() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100_000).await;
    fixture.load_scripts().await;
    let worker = |name: &str| fixture.worker(name).set("WORKER_BATCH", 20).start();
    let workers = [worker("a"), worker("b")];
    let rush = async |first: i64| {
        for at in 0..8 {
            let ids = first + 40 * at..first + 40 * (at + 1);
            futures_util::future::join_all(ids.map(|id| fixture.admit(id, id, 7, 1 + id % 3))).await;
        }
    };
    let risk = |failures: Vec<String>| -> Vec<i64> {
        let offers = failures.iter().map(|failure| {
            let units = failure.strip_prefix("audit: voucher 7: Redis offers ");
            let units = units.unwrap_or_else(|| panic!("{failures:?}"));
            units.split(' ').next().and_then(|units| units.parse().ok()).expect("a number")
        });
        offers.collect()
    };
    for round in 1..=5 {
        let ((), failures) = tokio::join!(rush(round * 1_000), audit_failures(&fixture));
        assert_eq!(failures, Vec::<String>::new(), "round {round}: both sides have the same");
    }
    // Another program takes more units from MySQL than are ever in flight, because units in flight may hide a
    // difference.
    fixture.restock_mysql(7, -20_000).await;
    for round in 6..=10 {
        let ((), failures) = tokio::join!(rush(round * 1_000), audit_failures(&fixture));
        let offered = risk(failures);
        assert_eq!(offered.len(), 1, "round {round}");
        assert!((1..=20_000).contains(&offered[0]), "round {round}: from below: {offered:?}");
    }
    fixture.settled().await;
    assert_eq!(risk(audit_failures(&fixture).await), [20_000], "exact once nothing is on its way");
    let doctor = fixture.tidegate(&["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        told.contains("Redis offers 20000 units or more of voucher 7 that MySQL does not have"),
        "{told}"
    );
    fixture.call("DECRBY seckill:stock:7 20000").await;
    assert_eq!(audit_failures(&fixture).await, Vec::<String>::new());
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

async fn until_dead(fixture: &Fixture, letters: usize) {
    until("it is buried", || async { fixture.dead().await.len() == letters }).await;
}

/// One order is admitted and another released, so the stock stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_sale_whose_journal_grows_while_its_stock_stays_gets_no_remark() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100).await;
    fixture.call("DECRBY seckill:stock:7 2").await;
    let audit = || tokio::process::Command::from(fixture.command(&["audit"])).output();
    let text = async || {
        let output = audit().await.expect("the program runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let remark = "Voucher 7 has an oversell risk of -2";
    let quiet = text().await;
    assert!(quiet.contains(remark), "nothing moves: {quiet}");
    let grow = async {
        for order in 1_u64.. {
            let note = r#"{"action":"release","change":1,"by":"test","timestamp":1}"#;
            fixture.redis_says(&["HSET", "seckill:journal:7", &order.to_string(), note]).await;
        }
    };
    let moving = tokio::select! {
        moving = text() => moving,
        () = grow => unreachable!("it has no end"),
    };
    assert!(moving.contains(" 7 ") && !moving.contains(remark), "{moving}");
    // No order is in flight any more.
    let quiet = text().await;
    assert!(quiet.contains(remark), "{quiet}");
}

/// The number of audits during a busy sale, and of those that run side by side.
const AUDITS: usize = 200;
const AUDITS_AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_audits_beside_a_busy_sale_remark_nothing() {
    let fixture = Fixture::open().await;
    for voucher in [7, 8] {
        fixture.load(voucher, 100_000).await;
    }
    fixture.load_scripts().await;
    let workers = ["a", "b"].map(|name| fixture.worker(name).start());
    let is_over = AtomicBool::new(false);
    // The sale is so slow that no order is in flight at most moments. Only then does the audit report an oversell risk.
    let sale = async {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        for id in 1.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            pace.tick().await;
            let voucher = 7 + id % 2;
            fixture.admit(id, id, voucher, 1 + id % 3).await;
            // An order that was paid before is refunded.
            let (event, order) = match id % 5 {
                0 => ("cancelled", id),
                1 => ("paid", id),
                2 if id > 10 => ("refunded", id - 1),
                _ => continue,
            };
            let (order, voucher) = (order.to_string(), (7 + order % 2).to_string());
            let owner = [("orderId", &*order), ("userId", &order), ("voucherId", &voucher)];
            fixture.add(&[&[("event", event)][..], &owner].concat()).await;
        }
    };
    let audits = async {
        for _ in 0..AUDITS / AUDITS_AT_ONCE {
            let audits = (0..AUDITS_AT_ONCE)
                .map(|_| tokio::process::Command::from(fixture.command(&["audit"])).output());
            for output in futures_util::future::join_all(audits).await {
                let output = output.expect("the program runs");
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let parts: Vec<&str> = text.split("\n\n").collect();
                // The output has three tables and the verdict.
                let is_quiet = parts.len() == 4 && parts[3].starts_with("It holds: ");
                assert!(output.status.success() && is_quiet, "{text}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(sale, audits);
    fixture.settled().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

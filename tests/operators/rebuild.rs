//! Tests of `tidegate rebuild`: it fills an empty or outdated Redis during the sale, and no unit is sold or released
//! twice.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value as Json, json};
use tidegate_lab::{Endpoint, Hold, Proxy};
use tidegate_orders::{
    RedisStore,
    scripts::{AdmitReply, Release, UserAfter},
};

use crate::{
    fixture::{
        Fixture, STREAM,
        invariants::{Ends, fates, none_is, without_an_end},
        rush::{CallerLog, Wanted, Way},
        until,
    },
    program::{Program, Run},
    sale::{ask, program, sql},
};

const SCRIPT: &str = include_str!("../../lua/cut_over.lua");
const COMPLETE: &str = "#complete";

async fn open(stock: i64) -> (Fixture, Program, RedisStore) {
    let fixture = Fixture::open().await;
    fixture.load(7, stock).await;
    let (program, store) = (program(&fixture), fixture.store().await);
    (fixture, program, store)
}

/// Checks that the journal is complete, and that its sum is the stock.
async fn adds_up<M: Endpoint>(fixture: &Fixture<M>, voucher: i64) {
    let journal = fixture.journal(voucher).await;
    assert!(journal.contains_key(COMPLETE), "{} notes", journal.len());
    let change = |note: &String| {
        let note: Json = serde_json::from_str(note).expect("JSON");
        note["change"].as_i64().unwrap_or(0) + note["admitted"]["change"].as_i64().unwrap_or(0)
    };
    let sum: i64 = journal.values().map(change).sum();
    assert_eq!(Some(sum), fixture.redis_stock(voucher).await, "the sum of the journal is the stock");
}

/// Checks at a quiet moment that both sides agree and that all units are accounted for.
async fn agrees<M: Endpoint>(fixture: &Fixture<M>, voucher: i64, loaded: i64) {
    adds_up(fixture, voucher).await;
    let live: i64 =
        fixture.live_orders().await.iter().filter(|row| row.voucher == voucher).map(|row| row.quantity).sum();
    assert_eq!(fixture.mysql_stock(voucher).await, loaded - live, "MySQL has not sold more than it had");
    assert_eq!(fixture.redis_stock(voucher).await, Some(loaded - live));
    fixture.judge().await;
}

async fn no_staged_keys<M: Endpoint>(fixture: &Fixture<M>) {
    assert!(fixture.call("KEYS *:rebuild:*").await.into_array().is_empty());
}

fn of_voucher(report: &Json, voucher: usize) -> Json {
    report["vouchers"][voucher].clone()
}

/// Whether a voucher keeps a journal, as its row in MySQL says.
async fn noted(fixture: &Fixture, voucher: i64) -> Option<i64> {
    let column = "SELECT CAST(keeps_journal AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = ?";
    sqlx::query_scalar(column).bind(voucher).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

/// Buys like the tutorial's own script, which keeps no journal.
async fn buy_by_the_tutorials_script(fixture: &Fixture, order: i64) {
    let user = order.to_string();
    fixture.redis_says(&["INCRBY", "seckill:stock:7", "-1"]).await;
    fixture.redis_says(&["SADD", "seckill:order:7", &user]).await;
    fixture.add_order(order, order, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_a_voucher_whose_producers_keep_none_is_not_called_complete() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    program.run("voucher load --voucher 7 --stock 10 --no-journal").expect(0);
    for order in 1..=3 {
        buy_by_the_tutorials_script(&fixture, order).await;
    }
    until("three are written", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    fixture.call("FLUSHALL").await;
    until("the worker has made its group again", || async { fixture.open_entries().await == Some(0) }).await;
    let rebuilt = program.run("rebuild --voucher 7 --yes").expect(0);
    assert!(rebuilt.stdout.contains("without a complete journal"), "{rebuilt:#?}");
    assert!(!fixture.journal(7).await.contains_key(COMPLETE));
    assert_eq!(fixture.redis_stock(7).await, Some(7));
    for order in 4..=6 {
        buy_by_the_tutorials_script(&fixture, order).await;
    }
    until("all are written", || async { fixture.live_orders().await.len() == 6 }).await;
    fixture.settled().await;
    fixture.judge().await;

    // A rebuild of an older version left the journal like this: the audit uses the columns of MySQL instead.
    let complete = r#"{"action":"complete","by":"rebuild","timestamp":1}"#;
    fixture.redis_says(&["HSET", "seckill:journal:7", COMPLETE, complete]).await;
    program.run("audit").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_finds_a_journal_complete_notes_it_in_mysql() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    for voucher in [5, 6] {
        program.run(&format!("voucher load --voucher {voucher} --stock 10")).expect(0);
    }
    // A voucher that was loaded before this column existed has no value in it.
    assert_eq!(noted(&fixture, 7).await, Some(1), "a load notes it");
    sql(&fixture, "UPDATE tb_seckill_voucher SET keeps_journal = NULL").await;
    // For voucher 5, a rebuild made the journal complete, whatever sale it was. Voucher 6 is also sold by a program
    // without a journal.
    let complete = r#"{"action":"complete","by":"rebuild","timestamp":1}"#;
    fixture.redis_says(&["HSET", "seckill:journal:5", COMPLETE, complete]).await;
    fixture.redis_says(&["INCRBY", "seckill:stock:6", "-1"]).await;
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1).start();
    until("it is noted", || async { noted(&fixture, 7).await == Some(1) }).await;
    assert_eq!((noted(&fixture, 5).await, noted(&fixture, 6).await), (None, None));
    assert!(worker.stop().await.success());
    sql(&fixture, "UPDATE tb_seckill_voucher SET keeps_journal = 0 WHERE voucher_id = 6").await;
    fixture.judge_except(&["voucher 6: Redis offers 9, and 10 by MySQL"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_goes_by_the_keys_that_are_there_where_mysql_does_not_say_what_sells_a_voucher() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    program.run("voucher load --voucher 7 --stock 10 --no-journal").expect(0);
    buy_by_the_tutorials_script(&fixture, 1).await;
    fixture.settled().await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET keeps_journal = NULL").await;
    let rebuild = || program.run("rebuild --voucher 7 --yes").expect(0).stdout;
    let type_it = |keeps| {
        format!(
            "type UPDATE tb_seckill_voucher SET keeps_journal = {keeps} WHERE voucher_id = 7 in MySQL, and rebuild"
        )
    };
    let said = rebuild();
    assert!(said.contains("because the old one was incomplete") && said.contains(&type_it(1)), "{said}");
    assert!(!fixture.journal(7).await.contains_key(COMPLETE));

    fixture.redis_says(&["DEL", "seckill:stock:7", "seckill:journal:7", "seckill:order:7"]).await;
    for _ in ["of an empty Redis", "of what a rebuild left"] {
        let said = rebuild();
        assert!(said.contains("because MySQL does not say if") && said.contains(&type_it(0)), "{said}");
        assert!(fixture.journal(7).await.contains_key(COMPLETE));
    }
    sql(&fixture, "UPDATE tb_seckill_voucher SET keeps_journal = 0").await;
    let said = rebuild();
    assert!(said.contains("because producers keep no journal") && !said.contains("UPDATE"), "{said}");
    assert!(!fixture.journal(7).await.contains_key(COMPLETE));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_emptied_in_a_running_sale_is_filled_by_one_command() {
    let (fixture, program, store) = open(1_500).await;
    let workers = [fixture.worker("a").start(), fixture.worker("b").start()];
    let caller_log = Arc::new(CallerLog::default());
    let wanted = |user: i64, quantity: i64| Wanted { user, voucher: 7, quantity, way: Way::Gate };
    for id in 1..=200 {
        assert_eq!(ask(&store, id, id, 1 + id % 2).await, AdmitReply::Admitted);
        caller_log.note(id, wanted(id, 1 + id % 2));
    }
    fixture.settled().await;
    fixture.add_order(900, 1, 7).await;
    caller_log.note(900, wanted(1, 1));
    fixture.settled().await;
    until("the second order is refused", || async { fixture.refused().await.contains(&900) }).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let callers = (0..4).map(|caller| {
        let (store, is_over, caller_log) = (store.clone(), Arc::clone(&is_over), Arc::clone(&caller_log));
        tokio::spawn(async move {
            let mut id = 10_000 * (caller + 1);
            while !is_over.load(SeqCst) {
                id += 1;
                let asked = caller_log.ask(id, wanted(id, 1));
                let reply = ask(&store, id, id, 1).await;
                if reply.is_admitted() {
                    caller_log.told(&asked);
                } else {
                    caller_log.refused(&asked);
                    assert!(matches!(reply, AdmitReply::NoStock | AdmitReply::SoldOut), "{reply:?}");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    until("the sale runs", || async { fixture.live_orders().await.len() > 300 }).await;
    // Orders that are admitted from here on may be in Redis alone when it is emptied. All orders that were admitted
    // before are written by then.
    caller_log.begin_risk();
    let told = caller_log.read();
    until("what was told is written", || async {
        without_an_end(&told, &Ends::read(&fixture.pool).await).is_empty()
    })
    .await;
    fixture.call("FLUSHALL").await;
    caller_log.end_risk();
    let done = program.run("rebuild --all --yes --json").expect(0).json();
    let report = of_voucher(&done, 0);
    assert_eq!(report["not_rebuilt"], Json::Null, "{done}");
    let rebuilt = fixture.live_orders().await.len();
    let stock = report["stock"].as_i64().unwrap();
    until("the sale goes on", || async {
        stock == 0 || fixture.redis_stock(7).await.is_some_and(|left| left < stock)
    })
    .await;
    is_over.store(true, SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    fixture.settled().await;
    until("all that is in flight is written", || async { fixture.open_entries().await == Some(0) }).await;
    agrees(&fixture, 7, 1_500).await;
    assert!(fixture.live_orders().await.len() >= rebuilt);
    none_is(&fates(&caller_log.read(), &Ends::read(&fixture.pool).await));
    for row in fixture.live_orders().await {
        assert_eq!(ask(&store, row.id, row.user, row.quantity).await, AdmitReply::AdmittedBefore);
    }
    assert_eq!(ask(&store, 900, 1, 1).await, AdmitReply::Released);
    no_staged_keys(&fixture).await;
    fixture.judge().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_counted_where_it_is_and_holds_its_units_once() {
    let (fixture, program, store) = open(100).await;
    let worker = fixture.worker("w").start();
    for id in 1..=4 {
        assert_eq!(ask(&store, id, id, 2).await, AdmitReply::Admitted);
    }
    fixture.settled().await;
    program.run("order event cancelled 4 --user 4 --voucher 7 --yes").expect(0);
    fixture.settled().await;
    assert!(worker.stop().await.success());
    // Two orders are undelivered, one is pending, one is dead, one is acknowledged and not written, and one is only in
    // the journal.
    for id in 11..=16 {
        assert_eq!(ask(&store, id, id, 1).await, AdmitReply::Admitted);
    }
    fixture.hand_over("gone-0", 4).await;
    let entries = fixture.call(&format!("XRANGE {STREAM} - +")).await.into_array();
    let entry = |at: usize| entries[entries.len() - 6 + at].clone().into_array()[0].as_string().unwrap();
    program.run(&format!("pending bury {} --why test --yes", entry(1))).expect(0);
    fixture.call(&format!("XACK {STREAM} g1 {}", entry(2))).await;
    fixture.call(&format!("XACK {STREAM} g1 {}", entry(3))).await;
    fixture.call(&format!("XDEL {STREAM} {}", entry(3))).await;
    // The stock was changed manually, and a user without an order counts as a buyer.
    fixture.call("SET seckill:stock:7 5000").await;
    fixture.call("SADD seckill:order:7 777").await;

    for _ in 0..2 {
        let done = program.run("rebuild --voucher 7 --yes --json").expect(0).json();
        let report = of_voucher(&done, 0);
        let of =
            |kind: &str| (report[kind]["orders"].as_i64().unwrap(), report[kind]["units"].as_i64().unwrap());
        assert_eq!((of("live"), of("ended"), of("refused")), ((3, 6), (1, 2), (0, 0)), "{done}");
        assert_eq!((of("in_flight"), of("dead")), ((3, 3), (1, 1)), "{done}");
        assert_eq!((of("lost"), of("only_in_journal")), ((1, 1), (1, 1)), "{done}");
        assert_eq!(report["first_unknown"], json!(["13", "14"]), "{done}");
        assert_eq!((&report["stock"], &report["mysql_mismatch"]), (&json!(88), &json!(0)), "{done}");
        assert_eq!(fixture.redis_stock(7).await, Some(88));
        adds_up(&fixture, 7).await;
    }
    let text = program.run("rebuild --voucher 7 --yes").expect(0);
    assert!(
        text.stdout
            .contains("voucher 7: rebuilt with 88 units left, 3 live orders, 3 orders in flight (3 units)"),
        "{text:?}"
    );
    // A repeated request with the id of an admitted order gets the same answer.
    for id in [1, 2, 3] {
        assert_eq!(ask(&store, id, id, 2).await, AdmitReply::AdmittedBefore);
    }
    for id in 11..=16 {
        assert_eq!(ask(&store, id, id, 1).await, AdmitReply::AdmittedBefore, "{id}");
    }
    assert_eq!(ask(&store, 4, 4, 2).await, AdmitReply::Released);
    assert_eq!(ask(&store, 99, 1, 1).await, AdmitReply::UserHasOrder);
    assert_eq!(ask(&store, 98, 777, 1).await, AdmitReply::Admitted, "nobody is barred for nothing");
    assert_eq!(ask(&store, 97, 4, 1).await, AdmitReply::Admitted, "nor after a cancelled order");

    // The requeued letter and the pending entries are written, and no order is released or sold twice.
    program.run("dead requeue --all --yes").expect(0);
    let worker = fixture.worker("w").start();
    program.run("replay --from -1h --to 0s --yes");
    until("all is written that can be", || async { fixture.live_orders().await.len() == 3 + 5 + 2 }).await;
    fixture.settled().await;
    adds_up(&fixture, 7).await;
    assert_eq!(fixture.mysql_stock(7).await, 100 - 6 - 5 - 2);
    assert_eq!(fixture.redis_stock(7).await, Some(100 - 6 - 5 - 2 - 1), "the one that only the journal has");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_keys_sell_until_the_new_ones_do_and_nobody_is_forgotten() {
    let (fixture, program, store) = open(100_000).await;
    let worker = fixture.worker("w").start();
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let (store, is_over) = (store.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let (first, mut id) = (1_000_000 * (caller + 1), 1_000_000 * (caller + 1));
                while !is_over.load(SeqCst) {
                    id += 1;
                    assert_eq!(ask(&store, id, id, 1).await, AdmitReply::Admitted, "the gate never pauses");
                }
                (first + 1)..=id
            })
        })
        .collect();
    until("the sale runs", || async { fixture.live_orders().await.len() > 500 }).await;
    for _ in 0..3 {
        program.run("rebuild --all --yes").expect(0);
    }
    is_over.store(true, SeqCst);
    let mut told = 0;
    for caller in callers {
        told += caller.await.unwrap().count();
    }
    fixture.settled().await;
    assert_eq!(fixture.live_orders().await.len(), told, "every order that was told is written");
    agrees(&fixture, 7, 100_000).await;
    assert!(worker.stop().await.success());
}

/// A rebuild that is held at a step.
async fn held_at(fixture: &Fixture, held: impl FnOnce(&Proxy, &Proxy) -> Hold) -> (Child, Hold, [Proxy; 2]) {
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let urls = [redis.url_for(&fixture.redis), mysql.url_for(&fixture.mysql)];
    let through = Program::with_flags(&["--redis-url", &urls[0], "--mysql-url", &urls[1]]);
    let hold = held(&redis, &mysql);
    let mut command = through.command(&["rebuild", "--voucher", "7", "--yes"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    hold.reached().await.expect("it comes to this step");
    (child, hold, [redis, mysql])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_is_killed_anywhere_leaves_nothing_that_the_next_one_does_not_repair() {
    futures_util::future::join_all((0..5).map(killed_at)).await;
}

async fn killed_at(step: u32) {
    let (fixture, program, store) = open(100).await;
    let _sha: String = fred::interfaces::LuaInterface::script_load(&fixture.client, SCRIPT).await.unwrap();
    let worker = fixture.worker("w").start();
    for id in 1..=5 {
        assert_eq!(ask(&store, id, id, 1).await, AdmitReply::Admitted);
    }
    fixture.settled().await;
    fixture.call("FLUSHALL").await;
    let sha = fred::util::sha1_hash(SCRIPT);
    let (mut child, hold, proxies) = held_at(&fixture, |redis, mysql| match step {
        0 => mysql.hold_reply_when(b"FOR UPDATE"),
        1 => redis.hold_when(b"HSET"),
        2 => redis.hold_reply_when(b"SADD"),
        3 => redis.hold_when(sha.as_bytes()),
        _ => redis.hold_reply_when(sha.as_bytes()),
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    hold.cut();
    drop(proxies);
    let stock = fixture.redis_stock(7).await;
    assert!(stock.is_none() || step == 4 && stock == Some(95), "{step}: {stock:?}");
    if step > 0 {
        fixture.call("DEL tidegate:reconciler").await;
    }
    let again = program.run("rebuild --voucher 7 --yes").expect(0);
    assert_eq!(
        again.stderr.contains("tidegate rebuild: comparisons, repairs, rebuilds run one by one"),
        step == 0,
        "{again:?}"
    );
    no_staged_keys(&fixture).await;
    assert_eq!(ask(&store, 6, 6, 1).await, AdmitReply::Admitted);
    fixture.settled().await;
    until("it is written", || async { fixture.live_orders().await.len() == 6 }).await;
    agrees(&fixture, 7, 100).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_lock_in_mysql_nothing_is_switched_over() {
    let (fixture, program, store) = open(100).await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    let before = fixture.journal(7).await;
    let (child, hold, _proxies) = held_at(&fixture, |redis, _| redis.hold_when(br#""action":"load""#)).await;
    // The connection that holds the row is among these.
    let others = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                  WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    let mut own = fixture.pool.acquire().await.expect("MySQL answers");
    let others: Vec<i64> = sqlx::query_scalar(others).fetch_all(&mut *own).await.expect("MySQL answers");
    for other in others {
        // The connection may have ended by itself.
        _ = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("KILL {other}"))).execute(&mut *own).await;
    }
    drop(own);
    hold.release();
    let run = Run::from(child.wait_with_output().expect("it ends")).expect(3);
    assert!(
        run.stderr.contains("Tidegate no longer has the lock on the row of voucher 7 in MySQL"),
        "{run:?}"
    );
    assert_eq!((fixture.journal(7).await, fixture.redis_stock(7).await), (before, Some(99)));
    program.run("rebuild --voucher 7 --yes").expect(0);
    adds_up(&fixture, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_read_before_redis_died_is_waited_for() {
    let (fixture, program, store) = open(100).await;
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let url = mysql.url_for(&fixture.mysql);
    let worker = fixture.worker("slow").variable("TIDEGATE_MYSQL_URL", url);
    let worker =
        worker.set("MYSQL_STATEMENT_TIMEOUT_MS", 60_000).set("WORKER_CLAIM_IDLE_MS", 200_000).start();
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    fixture.settled().await;
    let hold = mysql.hold_when(b"INSERT INTO tb_voucher_order");
    assert_eq!(ask(&store, 2, 2, 5).await, AdmitReply::Admitted);
    hold.reached().await.expect("the batch is in progress");
    fixture.call("FLUSHALL").await;
    let mut command = program.command(&["rebuild", "--all", "--yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let mut said = BufReader::new(child.stderr.take().expect("what it says")).lines();
    let waits = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("waiting for workers")));
    assert!(waits.expect("it waits").unwrap().contains("slow (for "));
    assert_eq!(fixture.redis_stock(7).await, None, "nothing is filled yet");
    hold.release();
    Run::from(child.wait_with_output().expect("it ends")).expect(0);
    assert_eq!((fixture.live_orders().await.len(), fixture.redis_stock(7).await), (2, Some(94)));
    agrees(&fixture, 7, 100).await;
    assert_eq!(ask(&store, 2, 2, 5).await, AdmitReply::AdmittedBefore);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_say_what_it_has_in_progress_is_named() {
    let (fixture, program, _gate) = open(100).await;
    fixture.call("SET tidegate:worker:old1 pid-1").await;
    let refused = program.run("rebuild --all --yes").expect(1);
    assert!(
        refused.stdout.contains("have an older version or hang: old1")
            && refused.stdout.contains("--despite-workers old1"),
        "{refused:?}"
    );
    assert!(fixture.journal(7).await.is_empty());
    program.run("rebuild --all --yes --despite-workers old1").expect(0);
    adds_up(&fixture, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_a_pause_outlives_a_rebuild() {
    let (fixture, program, store) = open(100).await;
    fixture.load(8, 10).await;
    sqlx::query("UPDATE tb_seckill_voucher SET end_time = NOW() - INTERVAL 1 HOUR WHERE voucher_id = 8")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let idle = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) \
                VALUES (9, 10, NOW(), NOW() + INTERVAL 1 DAY)";
    sqlx::query(idle).execute(&fixture.pool).await.unwrap();
    let dry = program.run("rebuild --all --dry-run").expect(0);
    assert!(
        dry.stdout.contains("voucher 7: MySQL has 100 units left and 0 live orders; Redis has 100 units"),
        "{dry:?}"
    );
    assert!(
        dry.stdout.contains("1 sale ended, according to MySQL") && dry.stdout.contains("add --voucher ID: 9"),
        "{dry:?}"
    );
    assert!(fixture.journal(7).await.is_empty() && fixture.redis_stock(9).await.is_none());
    assert!(program.run("rebuild --all").expect(2).stderr.contains("--yes"));
    program.run("pause --voucher 7 --yes").expect(0);
    program.run("rebuild --all --yes").expect(0);
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Paused);
    program.run("resume --voucher 7 --yes").expect(0);
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    assert_eq!((fixture.redis_stock(8).await, fixture.redis_stock(9).await), (Some(10), None));
    program.run("rebuild --voucher 9 --yes").expect(0);
    assert_eq!(fixture.redis_stock(9).await, Some(10));
    let none = program.run("rebuild --voucher 999 --yes").expect(1);
    assert!(none.stdout.contains("because MySQL has no row of it"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_whose_units_are_being_changed_is_left_as_it_is() {
    let (fixture, program, _gate) = open(100).await;
    let note = r#"{"id":"ab","units":5,"before":100,"state":"open","by":"x","at":"2026-11-20T10:00:00Z"}"#;
    fixture.redis_says(&["HSET", "seckill:voucher:7", "change", note]).await;
    let left = program.run("rebuild --all --yes").expect(1);
    assert!(left.stdout.contains("voucher 7: not rebuilt, the stock is being changed"), "{left:?}");
    assert!(fixture.journal(7).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_id_of_today_is_given_out_again() {
    let (fixture, program, _gate) = open(100).await;
    let now = jiff::Timestamp::now();
    let seconds = now.as_second() - tidegate_orders::order_id::EPOCH_SECONDS;
    let id = |sequence| tidegate_orders::order_id::compose(seconds, sequence).unwrap().get();
    let key = format!("icr:order:{}", now.strftime("%Y:%m:%d"));
    let counter = async || fixture.call(&format!("GET {key}")).await.as_i64();
    let worker = fixture.worker("w").start();
    fixture.add_order(id(500), 1, 7).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let unknown = program.run("rebuild --all --yes").expect(0);
    assert!(unknown.stdout.contains("the counter was raised from none to 500"), "{unknown:?}");
    assert!(
        unknown.stdout.contains("no store knows, because the counter of order ids was lost"),
        "{unknown:?}"
    );
    assert_eq!(counter().await, Some(500));
    // One order is only in the stream. The id of another one was not made from the counter, and would use up the ids of
    // the day.
    fixture.add_order(id(700), 2, 7).await;
    fixture.add_order(id((1 << 32) - 1), 3, 7).await;
    program.run("rebuild --all --yes").expect(0);
    assert_eq!(counter().await, Some(700));
    fixture.call(&format!("SET {key} 9000")).await;
    let told = program.run("rebuild --all --yes").expect(0);
    assert!(told.stdout.contains("8997 order ids of today that no store knows"), "{told:?}");
    assert_eq!(counter().await, Some(9_000), "never lowered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_came_back_older_is_brought_up_to_mysql() {
    let (fixture, program, store) = open(200).await;
    let worker = fixture.worker("w").start();
    for id in 1..=20 {
        assert_eq!(ask(&store, id, id, 1).await, AdmitReply::Admitted);
    }
    fixture.settled().await;
    fixture.redis.shutdown().expect("it stops");
    let folder = fixture.redis.folder().expect("a folder").to_owned();
    let older = tempfile::tempdir().expect("a folder");
    copy(&folder, older.path());
    fixture.redis.restart().expect("it starts");
    for id in 21..=60 {
        until("it is admitted", || async { ask(&store, id, id, 1).await.is_admitted() }).await;
    }
    until("all are written", || async { fixture.live_orders().await.len() == 60 }).await;
    fixture.settled().await;
    fixture.redis.kill9().expect("it dies");
    copy(older.path(), &folder);
    fixture.redis.restart().expect("it starts");
    // Redis has 20 of 60 orders, and sells units that are sold already.
    assert_eq!(ask(&store, 61, 61, 1).await, AdmitReply::Admitted);
    program.run("rebuild --all --yes").expect(0);
    until("what came late is written", || async { fixture.live_orders().await.len() == 61 }).await;
    fixture.settled().await;
    agrees(&fixture, 7, 200).await;
    for id in 1..=61 {
        assert_eq!(ask(&store, id, id, 1).await, AdmitReply::AdmittedBefore);
    }
    assert!(worker.stop().await.success());
}

/// Replaces the file of a Redis with that of another one. The lock file of the folder stays: without it, the next start
/// of a server would delete the folder.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    let run = |line: String| {
        let done = std::process::Command::new("sh").args(["-c", &line]).status();
        assert!(done.is_ok_and(|done| done.success()), "{line}");
    };
    run(format!("rm -rf '{}'/appendonly*", to.display()));
    run(format!("cp -a '{}'/appendonly* '{}'", from.display(), to.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_after_a_rebuild_is_released_once() {
    let (fixture, program, store) = open(50).await;
    let worker = fixture.worker("w").start();
    for id in 1..=4 {
        assert_eq!(ask(&store, id, id, 2).await, AdmitReply::Admitted);
    }
    fixture.settled().await;
    fixture.call("FLUSHALL").await;
    // Order 1 is cancelled while Redis has no data: its release finds no stock.
    until("the group is there again", || async { fixture.open_entries().await == Some(0) }).await;
    program.run("order event cancelled 1 --user 1 --voucher 7 --yes").expect(0);
    fixture.settled().await;
    program.run("rebuild --all --yes").expect(0);
    assert_eq!(fixture.redis_stock(7).await, Some(44));
    program.run("order event cancelled 2 --user 2 --voucher 7 --yes").expect(0);
    until("it is released", || async { fixture.redis_stock(7).await == Some(46) }).await;
    // A second release, by a replay or by the script, changes nothing.
    program.run("replay --from -1h --to 0s --yes").expect(0);
    for (order, user) in [(1, 1), (2, 2)] {
        let release = Release {
            order: order.try_into().unwrap(),
            user: user.try_into().unwrap(),
            voucher: 7.try_into().unwrap(),
            units: 2.try_into().ok(),
            user_after: UserAfter::Freed,
            by: "test".into(),
        };
        store.releases().release(&release).await.expect("the store answers");
    }
    fixture.settled().await;
    agrees(&fixture, 7, 50).await;
    assert!(worker.stop().await.success());
}

/// A measurement without a bound, because the time depends on the build.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; for measuring"]
async fn a_million_orders() {
    let (fixture, program, _gate) = open(2_000_000_000).await;
    let sql = "INSERT INTO tb_voucher_order (id, user_id, voucher_id, entry_id) \
               SELECT seq, seq, 7, CONCAT(1700000000000 + seq, '-0') FROM seq_1_to_1000000";
    sqlx::query(sql).execute(&fixture.pool).await.unwrap();
    sqlx::query("UPDATE tb_seckill_voucher SET stock = stock - 1000000")
        .execute(&fixture.pool)
        .await
        .unwrap();
    fixture.call("FLUSHALL").await;
    let began = std::time::Instant::now();
    let done = program.run("rebuild --all --yes --json").expect(0).json();
    println!("{:?}: {}", began.elapsed(), of_voucher(&done, 0)["took_ms"]);
    assert_eq!(fixture.call("HLEN seckill:journal:7").await.as_i64(), Some(1_000_002));
}

//! Tests of `tidegate reconcile`: it finds each difference between both sides by its kind, and no others, also during a
//! sale.

use std::{collections::BTreeMap, process::Stdio};

use fred::types::Value;
use serde_json::{Value as Json, json};
use tidegate_lab::Proxy;

use crate::{
    browser::until_page,
    fixture::{Fixture, until},
    program::{Program, Run},
    sale::{program, sql},
};

/// The first order id, which a double cannot hold.
const BIG: i64 = 9_007_199_254_740_993;
const UNITS: i64 = 100;

/// Puts a voucher on sale with a complete journal, as loading does.
async fn load_complete(fixture: &Fixture, voucher: i64, loaded: i64) {
    fixture.load(voucher, UNITS).await;
    let load = format!(
        r#"{{"action":"load","from":null,"to":{loaded},"change":{loaded},"by":"test","timestamp":1000}}"#
    );
    let complete = r#"{"action":"complete","by":"load","timestamp":1000}"#;
    let journal = format!("seckill:journal:{voucher}");
    fixture.redis_says(&["HSET", &journal, "#load", &load, "#complete", complete]).await;
    fixture.redis_says(&["SET", &format!("seckill:stock:{voucher}"), &loaded.to_string()]).await;
}

/// Releases an order of one unit in Redis, as `lua/release.lua` does with a complete journal.
async fn release(fixture: &Fixture, order: i64, user: i64, voucher: i64) {
    let journal = format!("seckill:journal:{voucher}");
    let admitted = fixture.redis_says(&["HGET", &journal, &order.to_string()]).await.as_string().unwrap();
    let admitted: Json = serde_json::from_str(&admitted).unwrap();
    let release = json!({
        "action": "release", "from": null, "to": null, "change": 1, "by": "test", "timestamp": admitted["timestamp"],
        "admitted": { "user": user.to_string(), "change": -1, "timestamp": admitted["timestamp"] },
    });
    fixture.redis_says(&["HSET", &journal, &order.to_string(), &release.to_string()]).await;
    fixture.redis_says(&["SREM", &format!("seckill:order:{voucher}"), &user.to_string()]).await;
    fixture.redis_says(&["INCRBY", &format!("seckill:stock:{voucher}"), "1"]).await;
}

/// The orders, users or units of each kind of difference by voucher, with cause and repair of the first one.
fn found(look: &Json) -> BTreeMap<(String, String), (Vec<String>, String, String)> {
    let mut found = BTreeMap::new();
    for voucher in look["vouchers"].as_array().unwrap() {
        for count in voucher["differences"].as_array().unwrap() {
            let first = count["first"].as_array().unwrap();
            assert_eq!(count["total"], first.len(), "{count}");
            let of = |it: &Json| match (&it["order"], &it["user"]) {
                (Json::String(order), _) => order.clone(),
                (_, Json::String(user)) => user.clone(),
                _ => it["units"].to_string(),
            };
            let text = |value: &Json| value.as_str().unwrap().to_owned();
            let key = (text(&voucher["voucher"]), text(&count["kind"]));
            let (cause, repair) = (text(&first[0]["cause"]), text(&first[0]["repair"]));
            found.insert(key, (first.iter().map(of).collect(), cause, repair));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_difference_is_found_with_its_orders_its_cause_and_what_repairs_it() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    for voucher in [10, 11, 13] {
        load_complete(&fixture, voucher, UNITS).await;
    }
    load_complete(&fixture, 12, UNITS - 5).await;
    fixture.load(14, UNITS).await;
    let worker = fixture.worker("w").start();
    for order in 0..20 {
        fixture.admit(BIG + order, 500 + order, 10, 1).await;
        fixture.add_order(BIG + 100 + order, 500 + order, 14).await;
    }
    fixture.settled().await;
    let clean = program.run("reconcile --json --voucher 10 --voucher 11 --voucher 14").expect(0).json();
    assert_eq!((&clean["clean"], clean["vouchers"].as_array().unwrap().len()), (&json!(true), 3), "{clean}");

    let id = |nth: i64| (BIG + nth).to_string();
    let entry = |nth: i64| format!("SELECT entry_id FROM tb_voucher_order WHERE id = {}", BIG + nth);
    // Two orders are lost in MySQL, one of them together with its entry.
    let gone: String =
        sqlx::query_scalar(sqlx::AssertSqlSafe(entry(2))).fetch_one(&fixture.pool).await.unwrap();
    sql(&fixture, format!("DELETE FROM tb_voucher_order WHERE id IN ({}, {})", id(1), id(2))).await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock + 2 WHERE voucher_id = 10").await;
    fixture.redis_says(&["XDEL", "stream.orders", &gone]).await;
    // Redis has lost order 3.
    fixture.redis_says(&["HDEL", "seckill:journal:10", &id(3)]).await;
    fixture.redis_says(&["SREM", "seckill:order:10", "503"]).await;
    fixture.redis_says(&["INCRBY", "seckill:stock:10", "1"]).await;
    // A service cancelled order 4 in MySQL only.
    sql(&fixture, format!("UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = {}", id(4))).await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 10").await;
    release(&fixture, BIG + 5, 505, 10).await;
    sql(&fixture, format!("UPDATE tb_voucher_order SET user_id = 7777 WHERE id = {}", id(6))).await;
    release(&fixture, BIG + 7, 507, 10).await;
    sql(&fixture, format!("DELETE FROM tb_voucher_order WHERE id = {}", id(7))).await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 10").await;
    for step in [1, 2] {
        let event = format!(
            "INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, released, entry_id) \
             VALUES ({}, {step}, 'cancelled', 'applied', 508, 10, 1, '1-{step}')",
            id(8)
        );
        sql(&fixture, event).await;
    }
    sql(&fixture, format!("UPDATE tb_voucher_order SET status = 2 WHERE id = {}", id(9))).await;
    fixture.redis_says(&["SADD", "seckill:order:10", "999"]).await;
    fixture.redis_says(&["SREM", "seckill:order:10", "510"]).await;
    fixture.redis_says(&["INCRBY", "seckill:stock:11", "7"]).await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock - 3 WHERE voucher_id = 13").await;
    sql(&fixture, format!("DELETE FROM tb_voucher_order WHERE id = {}", id(107))).await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 14").await;

    let look = program.run("reconcile --json").expect(1).json();
    let mut found = found(&look);
    let mut take = |voucher: &str, kind: &str| {
        let key = (voucher.to_owned(), kind.to_owned());
        found.remove(&key).unwrap_or_else(|| panic!("no {kind} of {voucher} in {look:#}"))
    };
    let expected =
        |ids: &[String], cause: &str, repair: &str| (ids.to_vec(), cause.to_owned(), repair.to_owned());
    let acknowledged = "acknowledged_and_not_written";
    assert_eq!(take("10", "lost_order"), expected(&[id(1), id(2)], acknowledged, "run_again"));
    assert_eq!(take("10", "not_admitted"), expected(&[id(3)], "no_admission", "admit"));
    assert_eq!(take("10", "not_released"), expected(&[id(4)], "unknown", "release"));
    assert_eq!(take("10", "released_and_live"), expected(&[id(5)], "unknown", "admit"));
    assert_eq!(take("10", "mismatched"), expected(&[id(6)], "unknown", "by_hand"));
    assert_eq!(take("10", "release_unknown_to_mysql"), expected(&[id(7)], "unknown", "write_cancelled_row"));
    assert_eq!(take("10", "released_twice"), expected(&[id(8)], "unknown", "by_hand"));
    let by_others = [id(4), id(9)];
    let status = take("10", "status_set_by_others").0;
    assert!(status.iter().all(|order| by_others.contains(order)) && status.contains(&id(9)), "{status:?}");
    assert_eq!(take("10", "barred_without_order"), expected(&["999".into()], "unknown", "unbar"));
    assert_eq!(take("10", "not_barred"), expected(&[id(10)], "unknown", "bar"));
    assert_eq!(take("11", "redis_stock_mismatch"), expected(&["7".into()], "changed_by_hand", "move_stock"));
    assert_eq!(take("12", "loaded_mismatch"), expected(&["5".into()], "unknown", "move_stock"));
    assert_eq!(take("13", "mysql_stock_mismatch"), expected(&["-3".into()], "changed_by_hand", "move_stock"));
    assert_eq!(take("14", "lost_order"), expected(&[id(107)], acknowledged, "run_again"));
    assert!(found.is_empty(), "{found:#?}");

    let lost = &look["vouchers"][0]["differences"][0]["first"];
    assert_eq!(
        (&lost[0]["cause"], &lost[1]["cause"]),
        (&json!(acknowledged), &json!("entry_is_gone")),
        "{lost}"
    );
    let text = program.run("reconcile --voucher 10").expect(1).stdout;
    assert!(text.contains("2 orders (2 units) admitted in Redis, but not in MySQL"), "{text}");
    assert!(text.contains("to repair: handle all entries of the order again"), "{text}");
    assert!(text.contains("It does NOT agree"), "{text}");
    let later = program.run("reconcile --voucher 14 --since -1s --json").json();
    until("the orders are older than a second", || async {
        program.run("reconcile --voucher 14 --since -1s --json").json()["clean"] == json!(true)
    })
    .await;
    assert_eq!(later["vouchers"][0]["voucher"], "14");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_look_at_a_time_goes_on_and_the_second_says_who_is_at_it() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    fixture
        .redis_says(&["SET", "tidegate:reconciler", "anna@shop: tidegate reconcile 1a2b", "PX", "60000"])
        .await;
    let refused = program.run("reconcile").expect(1);
    assert!(refused.stderr.contains("anna@shop: tidegate reconcile is running"), "{refused:?}");
    fixture.redis_says(&["DEL", "tidegate:reconciler"]).await;
    program.run("reconcile").expect(0);
    assert_eq!(fixture.redis_says(&["EXISTS", "tidegate:reconciler"]).await.as_i64(), Some(0));
}

/// A voucher with a complete journal that the gate sells, with cancellations.
const COMPLETE: i64 = 31;
/// The same kind of voucher, but its orders have to be paid at once.
const EXPIRING: i64 = 32;
/// The same kind of voucher without a row in MySQL, so its orders are dead letters.
const DEAD: i64 = 33;
/// A voucher with few units in MySQL, so that most of its orders are refused.
const SCARCE: i64 = 34;

async fn append(fixture: &Fixture, event: &str, order: i64, voucher: i64) {
    let (order, voucher) = (order.to_string(), voucher.to_string());
    fixture.add(&[("event", event), ("orderId", &order), ("userId", &order), ("voucherId", &voucher)]).await;
}

/// Sells orders of all kinds. Some are cancelled or paid at once, including orders that are refused or buried.
async fn sell(fixture: &Fixture, first: i64) {
    let all = (first..first + 60).map(|id| async move {
        match id % 6 {
            0 => fixture.admit(id, id, EXPIRING, 1).await,
            1 => {
                fixture.admit(id, id, DEAD, 1).await;
                append(fixture, "paid", id, DEAD).await;
            }
            2 => {
                fixture.admit(id, id, SCARCE, 1 + id % 3).await;
                append(fixture, "paid", id, SCARCE).await;
            }
            3 => {
                fixture.admit(id, id, COMPLETE, 2).await;
                append(fixture, "cancelled", id, COMPLETE).await;
            }
            4 => {
                fixture.admit(id, id, COMPLETE, 1 + id % 3).await;
                for event in ["paid", "used", "cancelled"] {
                    append(fixture, event, id, COMPLETE).await;
                }
            }
            _ => fixture.admit(id, id, COMPLETE, 1 + id % 3).await,
        }
    });
    futures_util::future::join_all(all).await;
    fixture.rush(1_000_000 + first * 10, 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_beside_a_busy_sale_with_refusals_cancellations_and_kills_find_nothing() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    fixture.open_sale().await;
    for voucher in [COMPLETE, EXPIRING, DEAD, SCARCE] {
        load_complete(&fixture, voucher, UNITS * 1_000).await;
        let raise = format!("UPDATE tb_seckill_voucher SET stock = {0}, initial_stock = {0}", UNITS * 1_000);
        sql(&fixture, format!("{raise} WHERE voucher_id = {voucher}")).await;
    }
    sql(&fixture, format!("UPDATE tb_seckill_voucher SET pay_within = 1 WHERE voucher_id = {EXPIRING}"))
        .await;
    sql(&fixture, format!("DELETE FROM tb_seckill_voucher WHERE voucher_id = {DEAD}")).await;
    let few = "UPDATE tb_seckill_voucher SET stock = 20, initial_stock = 20";
    sql(&fixture, format!("{few} WHERE voucher_id = {SCARCE}")).await;

    let plan = |name: &str| fixture.worker(name).set("WORKER_LANES", 2);
    let (mut killed, other) = (plan("w0").start(), plan("other").start());
    let mut looks = Vec::new();
    for round in 0..6 {
        let selling = async {
            for part in 0..4 {
                sell(&fixture, 60_000 + (round * 4 + part) * 60).await;
            }
        };
        let looking = tokio::task::block_in_place(|| {
            let mut command = program.command(&["reconcile", "--json"]);
            command.stdout(std::process::Stdio::piped()).spawn().expect("the program runs")
        });
        selling.await;
        killed.kill9();
        killed = plan(&format!("w{}", round + 1)).start();
        if round == 3 {
            program.run("dead requeue --all --yes");
        }
        let looked = tokio::task::spawn_blocking(|| looking.wait_with_output().expect("it ends"));
        looks.push(looked.await.expect("it ends"));
    }
    fixture.settled().await;
    let last = program.run("reconcile --json").all();
    assert!(last.contains("\"vouchers\""), "{last}");
    for look in looks {
        let said = String::from_utf8_lossy(&look.stdout).into_owned();
        let look: Json = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{look:?}"));
        assert_agrees(&look);
    }
    assert_agrees(&program.run("reconcile --json").json());
    // Redis was loaded with more units of this voucher than MySQL has.
    let left = fixture.mysql_stock(SCARCE).await;
    let what = format!("voucher {SCARCE}: Redis offers 99280, and {left} by MySQL, which has {left} left");
    fixture.judge_except(&[what]).await;
    let dead = fixture.dead().await.len();
    assert!(dead > 100, "{dead} orders of a voucher that MySQL does not know are dead");
    assert!(killed.stop().await.success() && other.stop().await.success());
}

/// Checks that nothing differs, except the voucher that has fewer units in MySQL on purpose.
fn assert_agrees(look: &Json) {
    let mut kinds = found(look);
    kinds.retain(|(voucher, kind), _| !(voucher == "34" && kind == "loaded_mismatch"));
    assert!(kinds.is_empty(), "{kinds:#?}\n{look:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_look_by_themselves_and_tell_doctor_and_metrics_what_they_found() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    load_complete(&fixture, 10, UNITS).await;
    let plan = |name: &str| fixture.worker(name).set("RECONCILE_EVERY_S", 1);
    let (first, second) = (plan("a").start(), plan("b").start());
    fixture.admit(BIG, 500, 10, 1).await;
    fixture.settled().await;
    let doctor = || program.run("doctor").all();
    until("a look finds nothing", || async { doctor().contains("Redis and MySQL agreed about every order") })
        .await;

    fixture.redis_says(&["SADD", "seckill:order:10", "999"]).await;
    until("what differs is said", || async {
        doctor().contains("Redis and MySQL differed (barred_without_order: 1)")
    })
    .await;
    let shown = r#"tidegate_reconcile_standing_differences{kind="barred_without_order"} 1"#;
    until_page(&first, "/metrics", 200, shown).await;
    let status = program.run("status --json").json();
    assert_eq!(status["reconciled"]["counts"], json!({ "barred_without_order": 1 }), "{status}");
    let said = program.run("status").stdout;
    assert!(said.contains("Redis and MySQL differ (barred_without_order: 1)"), "{said}");
    fixture.redis_says(&["SREM", "seckill:order:10", "999"]).await;
    until("it is repaired", || async { doctor().contains("Redis and MySQL agreed about every order") }).await;
    let logs = || [first.log(), second.log()].concat();
    until("the worker that looked says so", || async { logs().contains("both stores differ") }).await;
    assert!(first.stop().await.success() && second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_partitions_of_a_process_are_compared_one_after_the_other() {
    let tags = ["3", "1", "0"];
    let fixture = Fixture::open().await;
    let (redis, mysql) = (fixture.redis.url(), fixture.mysql.url());
    let flags = ["--redis-url", &redis, "--mysql-url", &mysql, "--set", "stream.partitions=3,1,0"];
    for voucher in [9, 10, 11] {
        let load = format!("voucher load --voucher {voucher} --stock 100");
        Program::with_flags(&flags).run(&load).expect(0);
    }
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    // Only a comparison sends this command, as its first read, so the first comparison is held here.
    let held = proxy.hold_when("HSCAN");
    let plan = fixture.worker("w").set("STREAM_PARTITIONS", tags.join(",")).set("RECONCILE_EVERY_S", 1);
    let plan = plan.set("REDIS_URL", proxy.url_for(&fixture.redis)).set("REDIS_COMMAND_TIMEOUT_MS", 60_000);
    let worker = plan.start();
    held.reached().await.expect("one is being compared");
    let waits = "another partition of this process is being compared";
    until("both others wait", || async { worker.log().matches(waits).count() == 2 }).await;
    let count = async |key: &str| {
        let names: Vec<String> = tags.iter().map(|tag| format!("{{{tag}}}:tidegate:{key}")).collect();
        let words: Vec<&str> = ["EXISTS"].into_iter().chain(names.iter().map(String::as_str)).collect();
        fixture.redis_says(&words).await
    };
    assert_eq!(count("reconciler").await, Value::Integer(1), "only one of them has begun");
    assert_eq!(count("reconciled").await, Value::Integer(0));
    held.release();
    until("all are compared", || async { count("reconciled").await == Value::Integer(3) }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgot_a_sale_does_not_agree_and_the_command_that_fills_it_is_named() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run("voucher load --voucher 10 --stock 100").expect(0);
    fixture.admit(BIG, 500, 10, 1).await;
    fixture.settled().await;
    fixture.redis_says(&["FLUSHALL"]).await;
    let look = program.run("reconcile").expect(1).stdout;
    assert!(
        look.contains("99 units left in MySQL, but Redis has no stock: every order is refused"),
        "{look}"
    );
    assert!(look.contains("tidegate rebuild"), "{look}");
    let repair = program.run("reconcile --repair --yes").all();
    assert!(
        repair.contains(
            "Redis has lost the sale, or a key of the sale cannot be read: tidegate rebuild --voucher 10"
        ),
        "{repair}"
    );
    program.run("rebuild --all --yes").expect(0);
    program.run("reconcile").expect(0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_one_voucher_reads_no_rows_of_others() {
    let fixture = Fixture::with_own_mysql().await;
    let program = program(&fixture);
    load_complete(&fixture, 10, UNITS).await;
    load_complete(&fixture, 11, UNITS).await;
    let digits = (0..10).map(|digit| format!("SELECT {digit} d")).collect::<Vec<_>>().join(" UNION ALL ");
    let series = format!("({digits}) a, ({digits}) b, ({digits}) c, ({digits}) d");
    let number = "1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d";
    // There is more than a page of orders of one user, too.
    for (first, voucher, rows, user, slot) in [
        (0, 11, 9_900, "seq", "1"),
        (10_000, 10, 1_100, "7", "NULL"),
        (20_000, 10, 150, "seq", "1"),
        (30_000, 11, 9_900, "seq", "2"),
    ] {
        sql(
            &fixture,
            format!(
                "INSERT INTO tb_voucher_order (id, user_id, voucher_id, status, slot) \
                 SELECT {first} + seq, {user}, {voucher}, IF({slot} IS NULL, 4, 1), {slot} \
                 FROM (SELECT {number} AS seq FROM {series}) n WHERE seq <= {rows}"
            ),
        )
        .await;
    }
    // The number of rows that were read through an index.
    let read = || async {
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_read_key')";
        let rows: Vec<(String, String)> =
            sqlx::query_as(sql).fetch_all(&fixture.pool).await.expect("MySQL answers");
        rows.iter().map(|(_, rows)| rows.parse::<u64>().expect("a number")).sum::<u64>()
    };
    let before = read().await;
    let look = program.run("reconcile --voucher 10 --json").expect(1).json();
    let rows = read().await - before;
    let counts: BTreeMap<&str, &Json> = look["vouchers"][0]["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| (count["kind"].as_str().unwrap(), &count["total"]))
        .collect();
    assert_eq!(counts["not_admitted"], 150, "{counts:?}");
    assert_eq!(look["mysql_orders"], 1_250, "{look}");
    // Each of the rows of the voucher is read several times, and none of the other 19,800. Each id in a list of ids
    // counts, too.
    assert!(rows > 1_250 && rows < 19_800, "{rows}");
    let before = read().await;
    let look = program.run("reconcile --json").expect(1).json();
    assert_eq!(look["mysql_orders"], 21_050, "{look}");
    assert!(read().await - before > 21_050);
}

/// The number of script calls that Redis counts.
fn scripts_called(stats: &Value) -> u64 {
    let stats = stats.as_string().expect("text");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).expect("scripts were called")
}

/// Runs a command up to a request to MySQL with this text, and gives its lease to another process. The command
/// continues once it has tried to renew its lease.
async fn run_without_lease(fixture: &Fixture, words: &[&str], held_at: &str) -> Run {
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let through = Program::with_variables(&fixture.redis.url(), &proxy.url_for(&fixture.mysql));
    let held = proxy.hold_when(held_at);
    let mut command = through.command(words);
    let child = tokio::task::block_in_place(|| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let child = child.expect("the program runs");
    held.reached().await.expect("it is on its way");
    // The lease is overwritten in one step, so that every later renewal is refused.
    let overwrite =
        "redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return redis.call('INFO', 'commandstats')";
    let key = ["EVAL", overwrite, "1", "tidegate:reconciler", "ben@shop: tidegate rebuild 1a2b"];
    let before = scripts_called(&fixture.redis_says(&key).await);
    until("the lease is asked for again", || async {
        scripts_called(&fixture.redis_says(&["INFO", "commandstats"]).await) > before
    })
    .await;
    held.release();
    let ended = tokio::task::spawn_blocking(|| child.wait_with_output().expect("it ends")).await;
    let holder = fixture.redis_says(&["GET", "tidegate:reconciler"]).await.as_string();
    assert_eq!(holder.as_deref(), Some("ben@shop: tidegate rebuild 1a2b"), "the other one keeps it");
    fixture.redis_says(&["DEL", "tidegate:reconciler"]).await;
    Run::from(ended.expect("it ends"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_loses_its_lease_stops_after_the_step_in_progress_and_says_what_to_type() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    for voucher in ["10", "11"] {
        program.run(&format!("voucher load --voucher {voucher} --stock 100")).expect(0);
        fixture.redis_says(&["SADD", &format!("seckill:order:{voucher}"), "999"]).await;
    }
    let lost = "the lease of the reconciler was lost";
    let look = run_without_lease(&fixture, &["reconcile"], "FROM tidegate_refusal WHERE order_id > 0")
        .await
        .expect(6);
    assert!(
        look.stderr.contains(lost) && look.stderr.contains("Go on with:\n  tidegate reconcile\n"),
        "{look:?}"
    );
    assert_eq!(look.stdout, "", "nothing is known");

    // The first of two vouchers is repaired, and the second one is left.
    let repairing = "FORCE INDEX (uk_voucher_user_slot) WHERE voucher_id = 10";
    let repair = run_without_lease(&fixture, &["reconcile", "--repair", "--yes"], repairing).await.expect(6);
    assert!(repair.stderr.contains(lost), "{repair:?}");
    assert!(repair.stderr.contains("Go on with:\n  tidegate reconcile --repair --yes"), "{repair:?}");
    let barred = async |voucher| fixture.redis_says(&["SISMEMBER", voucher, "999"]).await.as_i64();
    assert_eq!((barred("seckill:order:10").await, barred("seckill:order:11").await), (Some(0), Some(1)));

    let rebuild = run_without_lease(
        &fixture,
        &["rebuild", "--all", "--yes"],
        "ON u.order_id = o.id WHERE o.voucher_id = 10",
    )
    .await
    .expect(6);
    assert!(rebuild.stderr.contains(lost), "{rebuild:?}");
    assert!(rebuild.stderr.contains("Go on with:\n  tidegate rebuild --all --yes"), "{rebuild:?}");
    assert!(rebuild.stdout.contains("voucher 10") && !rebuild.stdout.contains("voucher 11"), "{rebuild:?}");
    program.run("rebuild --all --yes").expect(0);
    program.run("reconcile").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_repair_what_they_find_where_the_configuration_says_so() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run("voucher load --voucher 10 --stock 100").expect(0);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1).set("RECONCILE_REPAIR", "yes").start();
    fixture.redis_says(&["SADD", "seckill:order:10", "999"]).await;
    fixture.redis_says(&["INCRBY", "seckill:stock:10", "3"]).await;
    until("it is repaired", || async {
        let stock = fixture.redis_says(&["GET", "seckill:stock:10"]).await.as_i64();
        let barred = fixture.redis_says(&["SISMEMBER", "seckill:order:10", "999"]).await.as_i64();
        (stock, barred) == (Some(100), Some(0))
    })
    .await;
    worker.says("repaired the differences between both stores").await;
    assert!(program.run("log").expect(0).stdout.contains("worker w"), "it is in the log of changes");
    assert!(worker.stop().await.success());
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_need_not_wait_for_the_look_of_a_worker() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run("voucher load --voucher 10 --stock 100").expect(0);
    fixture.redis_says(&["SET", "tidegate:reconciler", "worker w 01234567", "PX", "60000"]).await;
    program.run("reconcile").expect(0);
    fixture
        .redis_says(&["SET", "tidegate:reconciler", "ben@shop: tidegate rebuild 01234567", "PX", "60000"])
        .await;
    let refused = program.run("reconcile").expect(1).stderr;
    assert!(refused.contains("ben@shop: tidegate rebuild is running"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_takes_the_lease_that_its_holder_ends_at_the_same_moment() {
    let fixture = Fixture::open().await;
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let (redis, mysql) = (proxy.url_for(&fixture.redis), fixture.mysql.url());
    fixture.redis_says(&["SET", "tidegate:reconciler", "worker w 01234567", "PX", "60000"]).await;
    let held = proxy.hold_when("GET\r\n$19\r\ntidegate:reconciler");
    let command = tokio::task::spawn_blocking(move || {
        Program::with_flags(&["--redis-url", &redis, "--mysql-url", &mysql]).run("reconcile")
    });
    held.reached().await.expect("it asks who holds the lease");
    fixture.redis_says(&["DEL", "tidegate:reconciler"]).await;
    held.release();
    command.await.expect("it runs").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_moves_nothing_on_what_it_did_not_or_cannot_read() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run("voucher load --voucher 10 --stock 20").expect(0);
    let worker = fixture.worker("w").start();
    for id in [1, 2, 3] {
        fixture.admit(id, id, 10, 3).await;
    }
    fixture.settled().await;
    let stock = async || fixture.redis_says(&["GET", "seckill:stock:10"]).await.as_i64();
    let journal = "seckill:journal:10";
    assert_eq!(stock().await, Some(11));

    // An order that the journal lacks is not compared: its units are no oversell risk.
    fixture.redis_says(&["HDEL", journal, "1"]).await;
    let partly = program.run("reconcile --voucher 10 --since -1ms --repair --yes").expect(1);
    assert!(
        partly.stdout.contains("with --since, not all orders of the voucher were compared"),
        "{partly:?}"
    );
    assert_eq!(stock().await, Some(11));
    program.run("reconcile --repair --yes").expect(0);
    assert_eq!(stock().await, Some(11));

    fixture.redis_says(&["HSET", journal, "2", "garbage"]).await;
    let unread = program.run("reconcile --repair --yes").expect(1);
    assert!(unread.stdout.contains("tidegate rebuild --voucher 10"), "{unread:?}");
    assert_eq!(stock().await, Some(11));
    program.run("rebuild --voucher 10 --yes").expect(0);
    program.run("reconcile").expect(0);

    // A row is lost without its events: if it were written again, it would be unpaid, and expire.
    program.run("order event paid 3 --ref pay-3 --yes").expect(0);
    fixture.settled().await;
    sql(&fixture, "DELETE FROM tb_voucher_order WHERE id = 3").await;
    let gone = program.run("reconcile --repair --dry-run").expect(0).stdout;
    assert!(gone.contains("1 difference of lost_order (3 units); an operator has to decide"), "{gone}");
    program.run("reconcile --repair --yes").expect(1);
    assert_eq!(fixture.live_orders().await.len(), 2);

    let unknown = program.run("reconcile --voucher 999").expect(2).stderr;
    assert!(unknown.contains("neither Redis nor MySQL knows voucher 999"), "{unknown}");
    let ahead = program.run("reconcile --since 2100-01-01").expect(2).stderr;
    assert!(ahead.contains("lies in the future"), "{ahead}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_died_of_a_taken_id_holds_its_units_and_is_counted() {
    let fixture = Fixture::open().await;
    load_complete(&fixture, 10, UNITS).await;
    let (order, owner, buyer) = (BIG + 5, BIG + 5, 77);
    // An event cancels an order that was never placed. Its id is then used for the order of another user.
    append(&fixture, "cancelled", order, 10).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    fixture.admit(order, buyer, 10, 3).await;
    until("it is buried", || async { fixture.dead().await.len() == 1 }).await;
    fixture.settled().await;
    assert_eq!(fixture.dead().await[0]["dead:reason"], "id_taken");
    let look = program(&fixture).run("reconcile --json").json();
    let voucher = &look["vouchers"][0];
    let dead = (&voucher["dead_orders"], &voucher["dead_units"]);
    assert_eq!(dead, (&json!(1), &json!(3)), "the order of {buyer} under the id of {owner}: {look:#}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failover_took_from_redis_is_counted_by_the_audit_and_named_by_a_comparison() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run("voucher load --voucher 10 --stock 2").expect(0);
    let worker = fixture.worker("w").start();
    let admit = |user: i64| program.run(&format!("admit --voucher 10 --user {user} --json")).expect(0).json();
    let lost = admit(1)["order"].as_str().expect("an id").to_owned();
    admit(2);
    until("both are written", || async { fixture.orders().await.len() == 2 }).await;
    fixture.settled().await;
    // The promoted replica has received nothing of the first order; the counter of ids is behind, too.
    let entry = "SELECT entry_id FROM tb_voucher_order WHERE user_id = 1";
    let entry: String = sqlx::query_scalar(entry).fetch_one(&fixture.pool).await.unwrap();
    fixture.redis_says(&["XDEL", "stream.orders", &entry]).await;
    fixture.redis_says(&["HDEL", "seckill:journal:10", &lost]).await;
    fixture.redis_says(&["SREM", "seckill:order:10", "1"]).await;
    fixture.redis_says(&["INCRBY", "seckill:stock:10", "1"]).await;
    let counters = fixture.redis_says(&["KEYS", "icr:order:*"]).await.into_array();
    for counter in counters {
        fixture.redis_says(&["SET", &counter.as_string().expect("a name"), "1"]).await;
    }
    // The unit of that order is sold again, and MySQL does not have it.
    program.run(&format!("admit --voucher 10 --user 3 --order {BIG}")).expect(0);
    fixture.settled().await;

    let audit = program.run("audit").expect(0).stdout;
    assert!(audit.contains("MySQL holds 1 order that Redis does not know"), "{audit}");
    assert!(audit.contains("run `tidegate reconcile` to find lost orders"), "{audit}");
    assert!(audit.contains("It holds: 2 admitted orders that Redis knows, no order lost"), "{audit}");
    let counts = program.run("order count --json").expect(0).json();
    let behind = counts["counts"].as_array().unwrap().iter().find(|of| of["is_counter_behind"] == true);
    assert!(behind.is_some_and(|of| of["without_order"].is_null()), "{counts:#}");
    let counts = program.run("order count").expect(0).stdout;
    assert!(counts.contains("more orders than ids that were given out"), "{counts}");
    let text = program.run("reconcile").expect(1).stdout;
    assert!(text.contains("1 order (1 unit) live in MySQL, and not in the journal"), "{text}");
    assert!(
        text.contains("MySQL was loaded with 2, but the journal adds up to 1: 1 unit more in MySQL."),
        "{text}"
    );
    assert!(text.contains("The usual cause is a failover in which Redis lost orders"), "{text}");

    let repaired = program.run("reconcile --repair --yes").expect(0).stdout;
    assert!(repaired.contains("the counter was raised from 1 to 2"), "{repaired}");
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(!program.run("order count").expect(0).stdout.contains("more orders than ids"));
    assert!(worker.stop().await.success());
}

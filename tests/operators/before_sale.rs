//! Tests of `tidegate doctor --before-sale`: what it says of a healthy sale, and of each thing that is wrong with a sale.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use jiff::{SignedDuration, Timestamp};
use tidegate_lab::Certificates;
use tidegate_orders::scripts::{SaleCalendar, SaleWindow};

use crate::{
    fixture::{Fixture, Worker, until},
    http_gate::tls::openssl,
    partitions,
    program::{Program, Run},
    sale::{ask, program, sql},
};

const CHECK: &str = "doctor --before-sale 7";

fn in_minutes(minutes: i64) -> Timestamp {
    let then = Timestamp::now() + SignedDuration::from_mins(minutes);
    Timestamp::from_second(then.as_second()).expect("a time")
}

/// A system with a worker, and with 100 units of voucher 7 that are sold from now on in half an hour, for two hours.
async fn ready() -> (Fixture, Program, Worker) {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    load(&program, 7, 30);
    let worker = fixture.worker("w").start();
    lives(&program).await;
    (fixture, program, worker)
}

/// Loads 100 units of a voucher whose sale begins in so many minutes, and takes two hours.
fn load(program: &Program, voucher: i64, minutes: i64) {
    let (begin, end) = (in_minutes(minutes), in_minutes(minutes + 120));
    let line = format!("voucher load --voucher {voucher} --stock 100 --begin {begin} --end {end}");
    program.run(&line).expect(0);
}

async fn lives(program: &Program) {
    let is_alive = || async { !program.run("status").stdout.contains("no worker is alive") };
    until("the worker lives", is_alive).await;
}

/// Checks that the program finds an error with these words and this advice.
#[track_caller]
fn assert_error(run: Run, what: &str, advice: &str) {
    let run = run.expect(1);
    let mut lines = run.stdout.lines();
    let line = lines.find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {run:#?}"));
    assert!(line.starts_with("error "), "{run:#?}");
    let next = lines.next().unwrap_or_default();
    assert!(next.contains("do: ") && next.contains(advice), "{advice}: {run:#?}");
    assert!(run.stdout.contains("Correct the errors before the sale begins: 1 error, "), "{run:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_sale_may_begin_and_each_check_has_its_line() {
    let (fixture, program, _worker) = ready().await;
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 2 --yes").expect(0);
    fixture.call("CONFIG SET maxmemory 1gb").await;
    let certificates = Certificates::make().expect("certificates");
    let [certificate, key] =
        [certificates.server(), certificates.server_key()].map(|it| it.display().to_string());
    let tls = format!("--set gate.tls_cert={certificate} --set gate.tls_key={key}");
    let json = program.run(&format!("{CHECK} --json")).expect(0).json();
    let sale = &json["sales"][0];
    assert_eq!((sale["voucher"].as_str(), sale["units"].as_i64()), (Some("7"), Some(100)), "{json:#}");
    assert!((1_200..=1_800).contains(&sale["begins_in_s"].as_i64().expect("a number")), "{json:#}");
    let [begin, end] = ["begin", "end"].map(|bound| sale[bound].as_str().expect("a time"));
    assert_eq!((json["errors"].as_i64(), json["not_read"].as_i64()), (Some(0), Some(1)), "{json:#}");

    let checked = program.run(&format!("{CHECK} {tls}")).expect(0);
    for line in [
        "ok       sale   voucher 7: both stores have 100 units; nothing is sold yet",
        &format!("ok       sale   voucher 7 begins at {begin} (in 2"),
        &format!(" and ends at {end} (in 2 h 2"),
        "ok       sale   voucher 7 has 1 limit in both stores",
        "ok       redis  1 worker is alive",
        "ok       redis  the workers are not paused",
        "not read redis  the time that workers need to write 100 units is unknown: they read no entries now",
        "ok       redis  100 orders of one unit need about 26.7 kB of Redis memory, and ",
        "ok       gate   the certificate of the gate expires at 4096-01-01T00:00:00Z, after the end of the sale",
        "The sale may begin: 0 errors, 0 warnings, 1 not read. To check the servers: tidegate doctor",
    ] {
        assert!(checked.stdout.contains(line), "{line}: {checked:#?}");
    }
    assert_eq!(checked.stdout.lines().filter(|line| line.starts_with("ok  ")).count(), 7, "{checked:#?}");

    let findings = json["findings"].as_array().expect("findings");
    let unknown = findings.iter().find(|it| it["level"] == "not_read").expect("one is not read");
    assert!(unknown["what"].as_str().expect("a text").contains("is unknown"), "{unknown}");
    assert_eq!(
        program.run("doctor").expect(0).stdout.matches("sale  ").count(),
        0,
        "the doctor is as before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_redis_does_not_have_waits_for_workers_or_is_loaded_by_the_command_that_is_shown() {
    let (fixture, program, _worker) = ready().await;
    program.run("doctor --before-sale 8").expect(2);
    let unknown = program.run("doctor --before-sale 8").expect(2);
    assert!(unknown.stderr.contains("neither Redis nor MySQL knows voucher 8: check the id"), "{unknown:#?}");

    fixture.call("DEL seckill:stock:7").await;
    let missing = program.run(CHECK);
    let what = "Redis has no stock of voucher 7: every order would be refused";
    let waits = program.run(&format!("{CHECK} --set calendar.warm_up=10m")).expect(0);
    assert!(waits.stdout.contains("voucher 7 waits: workers give Redis its 100 units at 2"), "{waits:#?}");
    let late = program.run(&format!("{CHECK} --set calendar.warm_up=1h"));
    assert_error(late, "workers should have loaded voucher 7 at 2", "tidegate voucher load");
    let line =
        missing.stdout.split("do: tidegate ").nth(1).expect("a command").lines().next().expect("a line");
    assert_error(program.run(CHECK), what, "tidegate voucher load --voucher 7 --stock 100 --begin 2");
    program.run(&format!("{line} --yes")).expect(0);
    program.run(CHECK).expect(0);

    // The shop changes the stock of the loaded voucher.
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 120 WHERE voucher_id = 7").await;
    let waits = program.run(&format!("{CHECK} --set calendar.warm_up=10m")).expect(0);
    assert!(waits.stdout.contains("workers give Redis its 120 units at 2"), "{waits:#?}");
    assert!(waits.stdout.contains(" (in 1"), "{waits:#?}");
    let late = program.run(&format!("{CHECK} --set calendar.warm_up=1h")).expect(0);
    let fewer = program.run(CHECK).expect(0);
    let warning =
        "warning  sale   Redis offers 20 units of voucher 7 less than MySQL has, but nothing is sold yet";
    for run in [late, fewer] {
        assert!(run.stdout.contains(warning), "{run:#?}");
    }
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 90 WHERE voucher_id = 7").await;
    let what = "Redis offers 10 units of voucher 7 more than MySQL has";
    assert_error(program.run(CHECK), what, "tidegate voucher show --voucher 7");
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 0 WHERE voucher_id = 7").await;
    assert_error(program.run(CHECK), "voucher 7 has no units in MySQL", "tidegate voucher add");
    sql(&fixture, "DELETE FROM tb_seckill_voucher WHERE voucher_id = 7").await;
    assert_error(program.run(CHECK), "MySQL has no row of voucher 7", "tidegate voucher show");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_is_on_says_what_is_sold_and_one_that_redis_lost_must_not_be_loaded_again() {
    let (fixture, program, _worker) = ready().await;
    let store = fixture.store().await;
    program.run("voucher schedule --voucher 7 --begin now --yes").expect(0);
    ask(&store, 1, 1, 3).await;
    until("the order is written", || async { fixture.orders().await.len() == 1 }).await;
    let on = program.run(CHECK).expect(0);
    let sold = "both stores have 97 units; 1 order in MySQL and 1 buyer in Redis";
    assert!(on.stdout.contains(sold) && on.stdout.contains("voucher 7 began at "), "{on:#?}");
    fixture.call("DECRBY seckill:stock:7 2").await;
    let flying = program.run(CHECK).expect(0);
    assert!(flying.stdout.contains("Redis has 95 units, and 2 units more wait to be written"), "{flying:#?}");
    fixture.call("DEL seckill:stock:7").await;
    assert_error(
        program.run(CHECK),
        "Redis has lost the stock of voucher 7",
        "docs/runbook/redis-lost-data.md",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_an_unfinished_change_a_wrong_key_and_a_delisting_are_errors() {
    let (fixture, program, _worker) = ready().await;
    program.run("pause --voucher 7 --yes").expect(0);
    assert_error(program.run(CHECK), "the sale of voucher 7 is paused", "tidegate resume --voucher 7");
    program.run("resume --voucher 7 --yes").expect(0);
    let note =
        r#"{"id":"a","units":-5,"before":100,"state":"open","by":"alice","at":"2026-11-20T10:00:00Z"}"#;
    fixture.redis_says(&["HSET", "seckill:voucher:7", "change", note]).await;
    let what =
        "a change of the stock of voucher 7 is unfinished: 5 units taken by alice at 2026-11-20T10:00:00Z";
    assert_error(program.run(CHECK), what, "tidegate log");
    fixture.call("HDEL seckill:voucher:7 change").await;
    fixture.call("SET seckill:order:7 x").await;
    let wrong = program.run(CHECK).expect(1);
    assert!(
        wrong.stdout.contains("voucher 7 cannot be read: ") && wrong.stdout.contains("WRONGTYPE"),
        "{wrong:#?}"
    );
    fixture.call("DEL seckill:order:7").await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    assert_error(program.run(CHECK), "voucher 7 is delisted", "docs/delist.md");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_shown_and_is_an_error_if_it_differs_or_is_over() {
    let (fixture, program, _worker) = ready().await;
    let store = fixture.store().await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET end_time = NOW() + INTERVAL 5 HOUR WHERE voucher_id = 7")
        .await;
    let what = "voucher 7 does not sell at the times in MySQL: Redis sells the voucher from ";
    assert_error(program.run(CHECK), what, "tidegate voucher schedule --voucher 7");
    // A shop's own load writes no times to Redis.
    fixture.call("DEL seckill:voucher:7 seckill:journal:7").await;
    let own = program.run(CHECK).expect(0);
    assert!(own.stdout.contains("these times are in MySQL only: scripts do not check them"), "{own:#?}");
    let ended = SaleWindow { begin: Some(in_minutes(-60)), end: Some(in_minutes(-1)) };
    SaleCalendar::of(&store).schedule(7.try_into().unwrap(), ended, None).await.expect("Redis answers");
    let over = "UPDATE tb_seckill_voucher SET begin_time = NOW() - INTERVAL 2 HOUR, \
                end_time = NOW() - INTERVAL 2 MINUTE WHERE voucher_id = 7";
    sql(&fixture, over).await;
    assert_error(
        program.run(CHECK),
        "the sale of voucher 7 is over: it ended at ",
        "tidegate voucher schedule",
    );
    program.run("voucher schedule --voucher 7 --begin now --no-end --yes").expect(0);
    let endless = program.run(CHECK).expect(0);
    assert!(endless.stdout.contains(" and has no end"), "{endless:#?}");
    sql(&fixture, "ALTER TABLE tb_seckill_voucher MODIFY begin_time DATETIME NOT NULL, MODIFY end_time DATETIME NOT NULL").await;
    let read = program.run(CHECK).stdout;
    assert!(read.contains("voucher 7 begins at ") && read.contains("(mysql.time_zone: "), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_the_voucher_or_of_its_campaign_that_redis_lacks_are_errors() {
    let (fixture, program, _worker) = ready().await;
    let (begin, end) = (in_minutes(30), in_minutes(150));
    let regions = fixture.file("regions.csv", "north,9,100\n");
    let line =
        format!("campaign load --campaign 5 --regions {} --begin {begin} --end {end}", regions.display());
    program.run(&line).expect(0);
    for owner in ["voucher 9", "campaign 5"] {
        let set = format!("limit set --{owner} --name mine --subject user --window sale --orders 2 --yes");
        program.run(&set).expect(0);
    }
    let checked = program.run("doctor --before-sale 9").expect(0);
    for owner in ["voucher 9", "campaign 5"] {
        assert!(checked.stdout.contains(&format!("{owner} has 1 limit in both stores")), "{checked:#?}");
    }
    for owner in ["voucher", "campaign"] {
        sql(&fixture, format!("UPDATE tidegate_limit SET orders = 3 WHERE owner_kind = '{owner}'")).await;
        let id = if owner == "voucher" { 9 } else { 5 };
        let what = format!("Redis does not have the 1 limit of {owner} {id} that MySQL has");
        let advice = format!("tidegate limit list --{owner} {id}");
        assert_error(program.run("doctor --before-sale 9"), &what, &advice);
        sql(&fixture, format!("UPDATE tidegate_limit SET orders = 2 WHERE owner_kind = '{owner}'")).await;
    }
    // Workers write the limits when they load the voucher.
    sql(&fixture, "UPDATE tidegate_limit SET orders = 3 WHERE owner_kind = 'voucher'").await;
    fixture.call("DEL seckill:limited:9").await;
    let waits = program.run("doctor --before-sale 9 --set calendar.warm_up=10m").expect(0);
    assert!(waits.stdout.contains("workers write the limits when they load the voucher"), "{waits:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_a_pause_of_workers_and_a_store_that_is_away_are_findings() {
    let (fixture, program, worker) = ready().await;
    program.run("pause --workers --yes").expect(0);
    let paused = program.run(CHECK).expect(0);
    assert!(paused.stdout.contains("warning  redis  the workers are paused"), "{paused:#?}");
    program.run("resume --workers --yes").expect(0);
    assert!(worker.stop().await.success());
    let what = "no worker is alive: no order of the sale would be written";
    assert_error(program.run(CHECK), what, "start a worker");
    fixture.call("RENAME stream.orders kept").await;
    fixture.call("SET stream.orders x").await;
    let wrong = program.run(CHECK).expect(1);
    assert!(wrong.stdout.contains("error    redis  stream.orders is a string, not a stream"), "{wrong:#?}");
    assert!(
        wrong.stdout.contains("not read redis  Failed to measure the rate of the workers: "),
        "{wrong:#?}"
    );
    let away = program.run(&format!("{CHECK} --mysql-url mysql://root@127.0.0.1:1/none")).expect(1);
    assert!(away.stdout.contains("Failed to check whether the sale may begin: "), "{away:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_workers_write_the_time_for_the_whole_stock_is_measured() {
    let (fixture, program, _worker) = ready().await;
    let unknown = program.run(&format!("{CHECK} --set gate.busy_after_ms=5000")).expect(0);
    let what =
        "is unknown, and whether orders could wait longer than gate.busy_after_ms: they read no entries now";
    assert!(unknown.stdout.contains(what), "{unknown:#?}");
    let (store, stop) = (fixture.store().await, Arc::new(AtomicBool::new(false)));
    program.run("voucher load --voucher 9 --stock 1000000").expect(0);
    let (ends, buyers) = (Arc::clone(&stop), store.clone());
    let selling = tokio::spawn(async move {
        for id in (1..).take_while(|_| !ends.load(Relaxed)) {
            let admission = crate::sale::admission(id, id, 1);
            let admission =
                tidegate_orders::scripts::Admission { voucher: 9.try_into().unwrap(), ..admission };
            buyers.admissions().admit(&admission).await.expect("Redis answers");
        }
    });
    until("orders are written", || async { !fixture.orders().await.is_empty() }).await;
    let measured = program.run(CHECK).expect(0);
    assert!(measured.stdout.contains("ok       redis  workers read "), "{measured:#?}");
    assert!(
        measured.stdout.contains(" entries a second now: at this rate, 100 units take "),
        "{measured:#?}"
    );
    let soon = program.run(&format!("{CHECK} --set gate.busy_after_ms=3600000")).expect(0);
    assert!(soon.stdout.contains(", less than gate.busy_after_ms (1 h)"), "{soon:#?}");
    let late = program.run(&format!("{CHECK} --set gate.busy_after_ms=1")).expect(0);
    assert!(late.stdout.contains("wait longer than gate.busy_after_ms (0 s)"), "{late:#?}");
    stop.store(true, Relaxed);
    selling.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_too_small_is_an_error_and_without_a_limit_it_is_not_read() {
    let (fixture, program, _worker) = ready().await;
    let unknown = program.run(CHECK).expect(0);
    let what =
        "not read redis  100 orders of one unit need about 26.7 kB of Redis memory; Redis has no maxmemory";
    assert!(unknown.stdout.contains(what), "{unknown:#?}");
    program.run("voucher add --voucher 7 --units 1000000 --yes").expect(0);
    fixture.call("CONFIG SET maxmemory 100mb").await;
    let what = "1000100 orders of one unit need about 267.0 MB of Redis memory, and ";
    assert_error(program.run(CHECK), what, "docs/runbook/redis-is-out-of-memory.md");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_before_the_sale_is_an_error_or_a_warning_while_there_is_time() {
    let (_fixture, program, _worker) = ready().await;
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = ["a.pem", "a.key"].map(|name| folder.path().join(name));
    let check = |days: u32| {
        let line = format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=a -days {days} -out FILE -keyout FILE"
        );
        openssl(&line, &[&certificate, &key]);
        let files = format!("gate.tls_cert={} --set gate.tls_key={}", certificate.display(), key.display());
        program.run(&format!("{CHECK} --set {files}"))
    };
    assert!(check(10).expect(0).stdout.contains(", after the end of the sale"));
    let later = in_minutes(20 * 24 * 60);
    program.run(&format!("voucher schedule --voucher 7 --end {later} --yes")).expect(0);
    let warning = check(10).expect(0);
    assert!(
        warning.stdout.contains("warning  gate   the certificate of the gate expires at "),
        "{warning:#?}"
    );
    assert_error(check(1), ", before the end of the sale", "send SIGHUP to the gate");
    let unread =
        program.run(&format!("{CHECK} --set gate.tls_cert=none.pem --set gate.tls_key=none.key")).expect(0);
    assert!(unread.stdout.contains("not read gate   Failed to read when the certificate"), "{unread:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_voucher_each_sale_that_begins_within_an_hour_is_checked_in_each_partition() {
    let fixture = Fixture::open().await;
    let program = partitions::program(&fixture, partitions::TAGS);
    let none = program.run("doctor --before-sale").expect(0);
    assert_eq!(none.stdout.matches("No sale begins within one hour.").count(), 3, "{none:#?}");
    let _worker = fixture.worker("w").set("STREAM_PARTITIONS", partitions::TAGS).start();
    lives(&program).await;
    for (voucher, minutes) in [(3, 50), (6, 10), (7, 30), (8, 90)] {
        load(&program, voucher, minutes);
    }
    let checked = |line: &str| {
        let parts = partitions::by_partition(&program.run(line).expect(0).stdout);
        let sales = |json: &serde_json::Value| {
            let sales = json["sales"].as_array().expect("sales").iter();
            sales.map(|sale| sale["voucher"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
        };
        parts.into_iter().map(|(tag, json)| (tag, sales(&json))).collect::<Vec<_>>()
    };
    let part = |tag: &str, sales: &[&str]| (tag.to_owned(), sales.iter().map(ToString::to_string).collect());
    let all = checked("doctor --before-sale --json");
    assert_eq!(all, [part("3", &["6", "3"]), part("1", &["7"]), part("0", &[])], "the next first");
    assert_eq!(checked("doctor --before-sale 8 --json"), [part("0", &["8"])]);
    let wrong = program.run("doctor --before-sale 8 --partition 3").expect(2);
    assert!(wrong.stderr.contains("voucher 8 belongs to the partition 0"), "{wrong:#?}");
    let unknown = program.run("doctor --before-sale 9").expect(2);
    assert!(unknown.stderr.contains("neither Redis nor MySQL knows voucher 9"), "{unknown:#?}");
    let two = program.run("doctor --before-sale --partition 3").expect(0);
    assert!(
        two.stdout.contains("200 orders of one unit") && two.stdout.contains("The sales may begin"),
        "{two:#?}"
    );
}

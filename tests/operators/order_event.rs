//! Tests of `tidegate order event`: events reach the rows of their orders, and the command learns their outcomes.

use std::{ops::RangeInclusive, process::Stdio};

use serde_json::{Value as Json, json};
use tidegate_lab::Proxy;

use crate::{
    fixture::{Fixture, GROUP, STREAM, until},
    program::{Program, Run, closed_port, go_on, pastes},
    terminal::Terminal,
};

pub fn operator(fixture: &Fixture) -> Program {
    Program::with_variables(&fixture.redis.url(), &fixture.mysql.url())
}

async fn with_orders(orders: RangeInclusive<i64>) -> Fixture {
    with_unpaid_orders(1_000, orders).await
}

/// A fixture with this many units of voucher 1, and unpaid orders of it. The user of each order has its number.
pub async fn with_unpaid_orders(stock: i64, orders: RangeInclusive<i64>) -> Fixture {
    let fixture = Fixture::open().await;
    fixture.load(1, stock).await;
    for order in orders {
        fixture.admit(order, order, 1, 1).await;
    }
    let worker = fixture.worker("first").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    fixture
}

async fn status(fixture: &Fixture, order: i64) -> i64 {
    let sql = "SELECT CAST(status AS SIGNED) FROM tb_voucher_order WHERE id = ?";
    sqlx::query_scalar(sql).bind(order).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

pub async fn count(fixture: &Fixture, table_and_condition: &'static str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM {table_and_condition}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

/// The kinds of the events in the stream.
async fn events_in_stream(fixture: &Fixture) -> Vec<String> {
    let all = fixture.redis_says(&["XRANGE", STREAM, "-", "+"]).await;
    let entries: Vec<(String, Vec<(String, String)>)> = all.convert().expect("entries");
    let fields = entries.into_iter().flat_map(|(_, fields)| fields);
    fields.filter(|(name, _)| name == "event").map(|(_, value)| value).collect()
}

fn lines(orders: impl Iterator<Item = i64>) -> String {
    orders.map(|order| format!("{order}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_moves_its_order_and_says_where_it_is_then() {
    let fixture = with_orders(1..=3).await;
    let (program, worker) = (operator(&fixture), fixture.worker("w").start());
    for (line, told, is) in [
        ("paid 1 --ref p-1", "order 1 is paid", 2),
        ("paid 1 --ref p-1", "order 1: unchanged", 2),
        ("used 1", "order 1 is used", 3),
        ("cancelled 2 --reason by_phone", "order 2 is cancelled, 1 unit released", 4),
        ("paid 3", "order 3 is paid", 2),
        ("refunding 3 --ref r-3", "order 3 is refunding", 5),
        ("refund_failed 3 --ref r-3", "order 3 is paid", 2),
        ("refunding 3 --ref r-4", "order 3 is refunding", 5),
        ("refunded 3 --ref r-4", "order 3 is refunded, 1 unit released", 6),
    ] {
        let run = program.run(&format!("order event {line} --yes")).expect(0);
        assert!(run.stdout.contains(told), "{line}: {run:?}");
        let order = line.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("an id");
        assert_eq!(status(&fixture, order).await, is, "{line}");
    }
    assert_eq!((fixture.mysql_stock(1).await, fixture.redis_stock(1).await), (999, Some(999)));

    // Every payment is recorded, also one that comes too late.
    let late = program.run("order event paid 1 --ref p-2 --yes --json").expect(1).json();
    let late = &late["orders"][0];
    assert_eq!(
        (&late["order"], &late["outcome"], &late["ref"]),
        (&"1".into(), &"refund_due".into(), &"p-2".into())
    );
    let shown = program.run("order show 1").expect(0).stdout;
    let events: Vec<&str> = shown.lines().filter(|line| line.starts_with("event ")).collect();
    assert_eq!(events.len(), 4, "{shown}");
    assert!(events[0].contains(": paid, applied (unpaid -> paid), ref p-1, entry "), "{shown}");
    assert!(events[3].contains(": paid, refund_due, ref p-2, entry "), "{shown}");
    assert!(
        shown.contains("Its payment p-2 has to be refunded.") && !shown.contains("You need not do anything")
    );
    program.run("order event refunded 1 --payment p-2 --yes").expect(0);
    let told = program.run("order show 1 --json").expect(0).json();
    assert_eq!(told["events"][4]["payment"], "p-2", "{told:#}");
    assert!(
        told["fate"]["sentence"].as_str().expect("a sentence").ends_with("used. You need not do anything."),
        "{told:#}"
    );

    let log = program.run("log --json --last 1").expect(0).json();
    assert_eq!((&log[0]["command"], &log[0]["counts"]["applied"]), (&"order event".into(), &1.into()));

    // A refund that names no payment does not refund a later payment.
    let due = "Its payment late has to be refunded.";
    program.run("order event paid 3 --ref late --yes").expect(1);
    assert!(program.run("order show 3").expect(0).stdout.contains(due));
    let run = program.run("order event refunded 3 --payment late --yes").expect(0);
    assert!(!program.run("order show 3").expect(0).stdout.contains(due), "{run:?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_event_ends_with_1_and_says_why() {
    let fixture = with_orders(1..=2).await;
    let (program, worker) = (operator(&fixture), fixture.worker("w").start());
    program.run("order event paid 1 --ref a --yes").expect(0);
    program.run("order event paid 1 --ref b --yes").expect(1);
    for (line, why, reason) in [
        ("used 2", "because the order is not paid", "not_paid"),
        ("cancelled 1", "because the order is paid, and only a refund can end it", "paid"),
        ("refunding 1", "name the payment with --payment", "payment_needed"),
        ("refunding 1 --payment c", "the order has no payment with the ref", "no_such_payment"),
    ] {
        let dry = program.run(&format!("order event {line} --dry-run")).expect(0);
        assert!(dry.stdout.contains("would be rejected") && dry.stdout.contains(why), "{line}: {dry:?}");
        let run = program.run(&format!("order event {line} --yes")).expect(1);
        assert!(run.stdout.contains("was rejected") && run.stdout.contains(why), "{line}: {run:?}");
        let json = program.run(&format!("order event {line} --yes --json")).expect(1).json();
        let event = &json["orders"][0];
        assert_eq!((&event["outcome"], &event["reason"]), (&"rejected".into(), &reason.into()), "{json:#}");
    }
    // MySQL does not know the order, but the operator names its user and voucher.
    let unknown = program.run("order event used 77 --user 77 --voucher 1 --yes").expect(1);
    assert!(unknown.stdout.contains("because there is no such order"), "{unknown:?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_has_to_go_back_is_said_to_be_so_however_often_it_is_sent() {
    let fixture = with_orders(1..=3).await;
    let (program, worker) = (operator(&fixture), fixture.worker("w").start());
    // A payment with a wrong user is recorded. MySQL has the right user from then on.
    let wrong = [("event", "paid"), ("orderId", "1"), ("userId", "2"), ("voucherId", "1"), ("ref", "p")];
    fixture.add(&wrong).await;
    fixture.settled().await;
    for line in ["paid 1 --ref p", "paid 1 --ref p"] {
        let dry = program.run(&format!("order event {line} --dry-run")).expect(0);
        assert!(dry.stdout.contains("the payment would have to be refunded"), "{dry:?}");
        let run = program.run(&format!("order event {line} --yes")).expect(1);
        assert!(run.stdout.contains("order 1: this payment has to be refunded"), "{run:?}");
        let json = program.run(&format!("order event {line} --yes --json")).expect(1).json();
        assert_eq!(json["orders"][0]["outcome"], "refund_due", "{json:#}");
        assert_eq!(status(&fixture, 1).await, 1, "it stays unpaid");
    }
    // A payment that must be refunded is also reported among those of a file.
    program.run("order event paid 2 --ref a --yes").expect(0);
    let file = fixture.file("paid.csv", "1,p\n2,a\n3,c\n");
    let told = program.run(&format!("order event paid --file {} --yes", file.display())).expect(1).stdout;
    assert!(told.contains("paid for 3 orders: 1 applied, 1 unchanged, 1 to be refunded"), "{told}");
    assert!(told.contains("line 1, order 1: this payment has to be refunded"), "{told}");
    // A payment that was refunded does not have to be refunded again.
    program.run("order event refunded 1 --payment p --yes").expect(0);
    let run = program.run("order event paid 1 --ref p --yes").expect(0);
    assert!(run.stdout.contains("order 1: unchanged"), "{run:?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_orders_of_a_file_are_waited_for_together() {
    let fixture = with_orders(1..=200).await;
    let (program, worker) = (operator(&fixture), fixture.worker("w").start());
    let file =
        fixture.file("paid.csv", &(1..=200).map(|order| format!("{order},p-{order}\n")).collect::<String>());
    let file = file.to_str().expect("a path");
    for outcome in ["applied", "unchanged"] {
        let json = program.run(&format!("order event paid --file {file} --yes --json")).expect(0).json();
        let events = json["orders"].as_array().expect("an array");
        assert_eq!(events.len(), 200);
        assert!(events.iter().all(|event| event["outcome"] == outcome), "{json:#}");
        assert_eq!(
            (&events[9]["line"], &events[9]["order"], &events[9]["ref"]),
            (&10.into(), &"10".into(), &"p-10".into())
        );
        assert_eq!(count(&fixture, "tb_voucher_order WHERE status = 2").await, 200);
    }
    let mixed = fixture.file("mixed.txt", "7\n8\n9\n");
    program.run("order event used 8 --yes").expect(0);
    let told = program.run(&format!("order event used --file {} --yes", mixed.display())).expect(0).stdout;
    assert!(told.contains("used for 3 orders: 2 applied, 1 unchanged"), "{told}");
    let told =
        program.run(&format!("order event refunding --file {} --dry-run", mixed.display())).expect(0).stdout;
    assert!(told.contains("refunding for 3 orders: 3 would be rejected"), "{told}");
    assert!(told.contains("line 2, order 8 of user 8 for voucher 1 is used: "), "{told}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_by_a_dry_run_nor_where_one_order_cannot_be_meant() {
    let fixture = with_orders(1..=2).await;
    let program = operator(&fixture);
    let dry = program.run("order event cancelled 1 --dry-run").expect(0).stdout;
    assert!(dry.contains("order 1 of user 1 for voucher 1 is unpaid: the order would be cancelled"), "{dry}");
    assert!(dry.contains("Nothing was changed (dry run)."), "{dry}");
    let json = program.run("order event paid 1 --dry-run --json").expect(0).json();
    assert_eq!(json["orders"][0]["expected"], json!({ "outcome": "applied", "to": 2 }), "{json:#}");
    let asked = program.run("order event cancelled 1").expect(2);
    assert!(asked.stderr.contains("Append the event cancelled for order 1?"), "{asked:?}");

    let unknown = program.run("order event paid 9 --yes").expect(1).stdout;
    for part in [
        "order 9: MySQL does not know the order",
        "--user and --voucher",
        "tidegate order show 9",
        "Nothing was appended.",
    ] {
        assert!(unknown.contains(part), "{part}: {unknown}");
    }
    let other = program.run("order event paid 1 --user 2 --yes").expect(1).stdout;
    assert!(other.contains("order 1: the order belongs to user 1 and voucher 1"), "{other}");
    let mixed = fixture.file("mixed.txt", "1\n9\n");
    let mixed = program.run(&format!("order event paid --file {} --yes", mixed.display())).expect(1).stdout;
    assert!(mixed.contains("line 2, order 9: MySQL does not know the order"), "{mixed}");

    let wrong = fixture.file("wrong.txt", "1\nabc\n");
    let wrong = program.run(&format!("order event paid --file {} --yes", wrong.display())).expect(2).stderr;
    assert!(wrong.contains("wrong.txt, line 2: \"abc\" is not an order id"), "{wrong}");
    let missing = program.run("order event paid --file /nowhere/orders --yes").expect(3).stderr;
    assert!(missing.contains("Failed to read /nowhere/orders"), "{missing}");
    program.run("order event paid --yes").expect(2);
    let kind = program.run("order event expired 1 --yes").expect(2).stderr;
    assert!(kind.contains("paid, cancelled, used, refunding, refunded, refund_failed"), "{kind}");
    let payment = program.run("order event paid 1 --payment p --yes").expect(2).stderr;
    assert!(payment.contains("--payment can be used only with"), "{payment}");
    program.run("order event paid 1 --file x --yes").expect(2);

    let closed = closed_port();
    let without_redis = Program::with_variables(&format!("redis://127.0.0.1:{closed}"), &fixture.mysql.url());
    let error = without_redis.run("order event paid 1 --yes").expect(3).stderr;
    assert!(error.contains("Failed to reach Redis"), "{error}");
    let away = format!("mysql://root@127.0.0.1:{closed}/hmdp");
    let error =
        Program::with_variables(&fixture.redis.url(), &away).run("order event paid 1 --yes").expect(3).stderr;
    assert!(error.contains("Failed to reach MySQL"), "{error}");
    assert_eq!(events_in_stream(&fixture).await, Vec::<String>::new());
    assert_eq!(program.run("log --json").expect(0).json(), Json::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_worker_it_says_so_after_its_time_and_the_event_is_recorded_later() {
    let fixture = with_orders(1..=1).await;
    let program = operator(&fixture);
    until("no worker lives", || async {
        let list = program.run("consumers list --json").json();
        list["consumers"].as_array().expect("an array").iter().all(|consumer| consumer["alive"] == false)
    })
    .await;
    let run = program.run("order event paid 1 --ref p --for 300ms --yes").expect(1);
    assert!(run.stdout.contains("order 1: not recorded yet (entry "), "{run:?}");
    assert!(run.stdout.contains("no living worker reads the stream: start a worker"), "{run:?}");
    assert_eq!(go_on(&run.stderr), "tidegate order show 1");
    let json = program.run("order event paid 1 --ref p --for 0s --yes --json").expect(1).json();
    assert_eq!(
        (&json["orders"][0]["outcome"], &json["workers_live"]),
        (&"not_recorded".into(), &false.into())
    );

    let worker = fixture.worker("w").start();
    fixture.settled().await;
    let shown = program.run("order show 1 --json").expect(0).json();
    let outcomes: Vec<&Json> =
        shown["events"].as_array().expect("an array").iter().map(|event| &event["outcome"]).collect();
    assert_eq!(outcomes, ["applied", "unchanged"], "{shown:#}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it_after_the_page_in_progress_and_it_says_from_which_line_on_nothing_is_in_the_stream() {
    let fixture = with_orders(500_001..=500_250).await;
    let file = fixture.file("orders.txt", &lines(500_001..=500_250));
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let through = Program::with_variables(&proxy.url_for(&fixture.redis), &fixture.mysql.url());
    let path = file.to_str().expect("a path");

    let held = proxy.hold_when("500150");
    let mut terminal =
        Terminal::start(&through.command(&["order", "event", "paid", "--file", path, "--yes"]));
    held.reached().await.expect("the second page is on its way");
    terminal.presses_control('c');
    terminal.shows("stopping after the step in progress");
    held.release();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("paid for 250 orders: 200 not recorded yet, 50 not appended"), "{shown}");
    assert!(shown.contains("that were not appended: all events from line 201 on."), "{shown}");
    let line = go_on(&shown);
    assert!(line.contains("order event paid --file ") && line.contains(" --from-line 201"), "{shown}");
    assert_eq!(events_in_stream(&fixture).await.len(), 200);

    // From the command's point of view, it is interrupted in the middle of a page, because the reply is lost.
    let worker = fixture.worker("w").start();
    let dropped = proxy.drop_next_reply("500220");
    let lost = through.run(&format!("order event paid --file {path} --from-line 201 --yes"));
    drop(dropped);
    let lost = lost.expect(3);
    assert!(lost.stdout.contains("it is unknown whether the event was appended"), "{lost:?}");
    assert!(lost.stdout.contains("It is unknown whether some events are in the stream."), "{lost:?}");
    let again = pastes(
        &go_on(&lost.stderr),
        &[("TIDEGATE_REDIS_URL", &fixture.redis.url()), ("TIDEGATE_MYSQL_URL", &fixture.mysql.url())],
    );
    again.expect(0);
    fixture.settled().await;
    assert_eq!(count(&fixture, "tb_voucher_order WHERE status = 2").await, 250);
    assert_eq!(count(&fixture, "tidegate_event WHERE outcome NOT IN ('applied', 'unchanged')").await, 0);

    // Everything is in the stream: only waiting is left, so the command names the command that shows the progress.
    assert!(worker.stop().await.success());
    let mut terminal = Terminal::start(&through.command(&["order", "event", "used", "500001", "--yes"]));
    terminal.shows("0/1");
    until("it is in the stream", || async { events_in_stream(&fixture).await.contains(&"used".to_owned()) })
        .await;
    terminal.presses_control('c');
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("order 500001: not recorded yet (entry "), "{shown}");
    assert!(go_on(&shown).ends_with("tidegate order show 500001"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_goes_away_leaves_no_doubt_what_is_in_the_stream() {
    let fixture = with_orders(1..=1).await;
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let through = Program::with_variables(&redis.url_for(&fixture.redis), &mysql.url_for(&fixture.mysql));
    let held = redis.hold_when("orderId");
    let mut command =
        through.command(&["order", "event", "paid", "1", "--ref", "p", "--for", "300ms", "--yes"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    held.reached().await.expect("the event is on its way");
    mysql.cut().await;
    held.release();
    let run = Run::from(child.wait_with_output().expect("it ends")).expect(3);
    assert!(run.stdout.contains("order 1: not recorded yet (entry "), "{run:?}");
    assert!(
        run.stderr.contains(
            "Failed to read in MySQL whether the events were recorded; the events are in the stream"
        ),
        "{run:?}"
    );
    assert_eq!(go_on(&run.stderr), "tidegate order show 1");
    assert_eq!(events_in_stream(&fixture).await, ["paid"]);

    fixture.redis_says(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let run = operator(&fixture).run("order event used 1 --yes").expect(3);
    assert!(run.stdout.contains("order 1: nothing was appended"), "{run:?}");
    assert!(
        run.stderr.contains("Failed to append to stream.orders") && run.stderr.contains("OOM command"),
        "{run:?}"
    );
    assert_eq!(go_on(&run.stderr), "tidegate order event used 1 --yes");
    assert_eq!(events_in_stream(&fixture).await, ["paid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_while_a_worker_lives_that_knows_no_events() {
    let fixture = with_orders(1..=1).await;
    // A worker of the version before events is alive.
    fixture.redis_says(&["XGROUP", "CREATECONSUMER", STREAM, GROUP, "old-0"]).await;
    let heartbeat = "pid 7 on shop since 2026-01-01T00:00:00Z, heartbeat 10000 ms (00000000)";
    fixture.redis_says(&["SET", "tidegate:worker:old", heartbeat, "PX", "60000"]).await;
    let refused = operator(&fixture).run("order event paid 1 --ref p --yes").expect(1);
    assert!(
        refused.all().contains("older version that would make events dead letters: old."),
        "{}",
        refused.all()
    );
    assert_eq!(events_in_stream(&fixture).await, Vec::<String>::new());
    fixture.redis_says(&["DEL", "tidegate:worker:old"]).await;
    let worker = fixture.worker("w").start();
    operator(&fixture).run("order event paid 1 --ref p --yes").expect(0);
    assert_eq!(status(&fixture, 1).await, 2);
    assert!(worker.stop().await.success());
}

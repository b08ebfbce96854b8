//! Tests of `tidegate order release-unpaid`: it ends all unpaid orders of one voucher, and no others.

use std::{ops::RangeInclusive, time::Duration};

use serde_json::json;
use tidegate_lab::Proxy;

use crate::{
    fixture::{Fixture, GROUP, STREAM, until},
    order_event::{count, operator, with_unpaid_orders},
    program::{Program, go_on, pastes},
    sale::sql,
    terminal::Terminal,
};

/// Unpaid orders of voucher 1 that were written an hour ago. The user of each order has its number.
async fn with_orders(orders: RangeInclusive<i64>) -> Fixture {
    let fixture = with_unpaid_orders(10_000, orders).await;
    sql(&fixture, "UPDATE tb_voucher_order SET create_time = NOW() - INTERVAL 1 HOUR").await;
    fixture
}

async fn entries(fixture: &Fixture) -> u64 {
    fixture.redis_says(&["XLEN", STREAM]).await.convert().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unpaid_orders_of_a_voucher_that_are_old_enough_end_and_no_others() {
    let fixture = with_orders(1..=8).await;
    fixture.load(2, 100).await;
    fixture.admit(20, 20, 2, 1).await;
    fixture.admit(21, 21, 1, 3).await;
    let (program, worker) = (operator(&fixture), fixture.worker("w").start());
    fixture.settled().await;
    sql(&fixture, "UPDATE tb_voucher_order SET create_time = NOW() - INTERVAL 1 HOUR WHERE id IN (20, 21)")
        .await;
    sql(&fixture, "UPDATE tb_voucher_order SET create_time = NOW() WHERE id = 1").await;
    sql(&fixture, "ALTER TABLE tb_voucher_order MODIFY COLUMN status TINYINT NULL DEFAULT 1").await;
    sql(&fixture, "UPDATE tb_voucher_order SET status = NULL WHERE id = 5").await;
    program.run("order event paid 2 --yes").expect(0);
    program.run("order event cancelled 3 --yes").expect(0);
    // A service has cancelled the order and left its slot: nothing shows whether its unit was released.
    sql(&fixture, "UPDATE tb_voucher_order SET status = 4 WHERE id = 4").await;

    let command = "order release-unpaid --voucher 1 --older-than 30m --reason not_paid";
    let before = entries(&fixture).await;
    let dry = program.run(&format!("{command} --dry-run")).expect(0).stdout;
    assert!(dry.contains("voucher 1: 5 unpaid orders with 7 units, written before 20"), "{dry}");
    assert!(dry.contains("Nothing was changed (dry run)."), "{dry}");
    let asked = program.run(command).expect(2).stderr;
    assert!(asked.contains("End 5 unpaid orders of voucher 1, and sell 7 units again?"), "{asked}");
    assert_eq!(entries(&fixture).await, before);

    let unknown = program.run("order release-unpaid --voucher 99 --older-than 30m --yes").expect(2).stderr;
    assert!(unknown.contains("MySQL has neither voucher 99 nor an order of it"), "{unknown}");

    let done = program.run(&format!("{command} --yes --json")).expect(0).json();
    let outcomes = json!({
        "applied": 5, "unchanged": 0, "rejected": {}, "not_recorded": 0, "unknown": 0, "not_appended": 0, "units": 7,
    });
    assert_eq!((&done["outcomes"], &done["event"]), (&outcomes, &"expired".into()), "{done:#}");
    assert_eq!(
        count(&fixture, "tb_voucher_order WHERE status = 4 AND slot IS NULL AND id IN (3, 5, 6, 7, 8, 21)")
            .await,
        6
    );
    assert_eq!(count(&fixture, "tidegate_event WHERE event = 'expired' AND reason = 'not_paid'").await, 5);
    assert_eq!(count(&fixture, "tb_voucher_order WHERE status = 1 AND id IN (1, 20)").await, 2);
    assert_eq!((fixture.mysql_stock(1).await, fixture.redis_stock(1).await), (9_997, Some(9_997)));

    let again = program.run(&format!("{command} --yes")).expect(0).stdout;
    assert!(again.contains("voucher 1: no unpaid order was written before "), "{again}");
    let log = program.run("log --json --last 1").expect(0).json();
    assert_eq!(
        (&log[0]["command"], &log[0]["counts"]["applied"], &log[0]["counts"]["units"]),
        (&"order release-unpaid".into(), &5.into(), &7.into())
    );
    let young = program.run("order release-unpaid --voucher 1 --older-than 0s --yes").expect(0).stdout;
    assert!(young.contains("voucher 1: 1 order cancelled, 1 unit released"), "{young}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_payment_is_in_the_stream_stays() {
    let fixture = with_orders(1..=3).await;
    let program = operator(&fixture);
    program.run("order event paid 2 --ref p --for 0s --yes").expect(1);
    let worker = fixture.worker("w");
    let command =
        program.command(&["order", "release-unpaid", "--voucher", "1", "--older-than", "30m", "--yes"]);
    let before = entries(&fixture).await;
    let terminal = Terminal::start(&command);
    until("the events are in the stream", || async { entries(&fixture).await == before + 3 }).await;
    let worker = worker.start();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("voucher 1: 2 orders cancelled, 2 units released, 1 stay (paid)"), "{shown}");
    assert!(shown.contains("order 2: expired was rejected, because the order is paid"), "{shown}");
    assert_eq!(count(&fixture, "tb_voucher_order WHERE id = 2 AND status = 2").await, 1);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_end_with_a_bounded_number_in_progress() {
    let fixture = with_orders(1..=2_500).await;
    let program = operator(&fixture);
    let before = entries(&fixture).await;
    // No worker records the events: the command appends no more than it may have in progress, and reports the rest.
    let left = program.run("order release-unpaid --voucher 1 --older-than 30m --for 200ms --yes").expect(1);
    let appended = entries(&fixture).await - before;
    assert!((500..=1_000).contains(&appended), "{appended}");
    assert!(left.stdout.contains(&format!("{appended} not recorded yet")), "{left:?}");
    assert!(left.stdout.contains("The rest of the unpaid orders got no event."), "{left:?}");
    let line = go_on(&left.stderr);
    assert_eq!(line, "tidegate order release-unpaid --voucher 1 --older-than 30m --for 200ms --yes");

    let worker = fixture.worker("w").start();
    let url = (fixture.redis.url(), fixture.mysql.url());
    let patient = line.replace("200ms", "30s");
    pastes(&patient, &[("TIDEGATE_REDIS_URL", &url.0), ("TIDEGATE_MYSQL_URL", &url.1)]).expect(0);
    assert_eq!(count(&fixture, "tb_voucher_order WHERE status = 4 AND slot IS NULL").await, 2_500);
    assert_eq!((fixture.mysql_stock(1).await, fixture.redis_stock(1).await), (10_000, Some(10_000)));
    assert_eq!(count(&fixture, "tidegate_event WHERE outcome NOT IN ('applied', 'unchanged')").await, 0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it_after_the_page_in_progress() {
    let fixture = with_orders(500_001..=500_250).await;
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let through = Program::with_variables(&proxy.url_for(&fixture.redis), &fixture.mysql.url());
    let held = proxy.hold_when("500150");
    let words = ["order", "release-unpaid", "--voucher", "1", "--older-than", "30m", "--yes"];
    let mut terminal = Terminal::start(&through.command(&words));
    held.reached().await.expect("the second page is on its way");
    terminal.presses_control('c');
    terminal.shows("stopping after the step in progress");
    held.release();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("0 orders cancelled, 0 units released, 200 not recorded yet"), "{shown}");
    assert!(go_on(&shown).contains("order release-unpaid --voucher 1 --older-than 30m"), "{shown}");
    let worker = fixture.worker("w").start();
    operator(&fixture).run("order release-unpaid --voucher 1 --older-than 30m --yes").expect(0);
    assert_eq!(count(&fixture, "tb_voucher_order WHERE status = 4").await, 250);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn unpaid_orders_are_left_while_a_worker_lives_that_knows_no_events() {
    let fixture = with_orders(1..=1).await;
    // A worker of the version before events is alive.
    fixture.redis_says(&["XGROUP", "CREATECONSUMER", STREAM, GROUP, "old-0"]).await;
    let heartbeat = "pid 7 on shop since 2026-01-01T00:00:00Z, heartbeat 10000 ms (00000000)";
    let lease_ms = Duration::from_secs(60).as_millis().to_string();
    fixture.redis_says(&["SET", "tidegate:worker:old", heartbeat, "PX", &lease_ms]).await;
    let before = entries(&fixture).await;
    let refused = operator(&fixture).run("order release-unpaid --voucher 1 --older-than 30m --yes").expect(1);
    assert!(
        refused.all().contains("older version that would make events dead letters: old."),
        "{}",
        refused.all()
    );
    assert_eq!(entries(&fixture).await, before);
}

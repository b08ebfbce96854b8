//! Tests of `tidegate order wait`: the exit code alone shows the final state of the order. While the command waits, it
//! shows about when the turn of the order comes.

use std::{process::Stdio, time::Duration};

use tidegate_lab::Proxy;
use tokio::time::sleep;

use crate::{
    fixture::{Fixture, GROUP, STREAM},
    order_event::operator,
    program::{Program, Run, closed_port},
};

/// Sends an event as a service does.
async fn event(fixture: &Fixture, order: i64, fields: &[(&str, &str)]) {
    let (order, user) = (order.to_string(), order.to_string());
    let owner = [("orderId", order.as_str()), ("userId", user.as_str()), ("voucherId", "1")];
    fixture.add(&[fields, &owner].concat()).await;
}

/// Starts the command in the background.
async fn waits(fixture: &Fixture, args: &[&str]) -> tokio::task::JoinHandle<Run> {
    let mut command = operator(fixture).command(args);
    tokio::task::spawn_blocking(move || {
        command.stdin(Stdio::null()).output().expect("the binary runs").into()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_0_when_the_order_is_written_and_says_meanwhile_where_it_stands() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]).await;
    for order in 1..=5 {
        fixture.admit(order, order, 1, 1).await;
    }
    let program = operator(&fixture);
    let json = program.run("order wait 5 --voucher 1 --for 0s --json").expect(11).json();
    assert_eq!(
        (&json["state"], &json["orderId"], &json["userId"], &json["voucherId"], &json["quantity"]),
        (&"waiting".into(), &"5".into(), &"5".into(), &"1".into(), &1.into()),
        "{json:#}"
    );
    assert_eq!(json["estimate"]["place"], "unread", "{json:#}");
    assert!(json["estimate"]["ahead"].as_u64() <= Some(4), "{json:#}");
    assert!(json["estimate"]["expectedS"].is_null(), "nobody reads: {json:#}");

    let waiting = waits(&fixture, &["order", "wait", "5"]).await;
    // A command without the voucher also finds the order.
    let run = program.run("order wait 4 --for 3s").expect(11);
    assert!(run.stderr.contains("order 4 is waiting") && run.stderr.contains("(an estimate)"), "{run:?}");
    assert!(
        run.stdout.contains("The time to wait is over.") && run.stdout.contains("tidegate order show 4"),
        "{run:?}"
    );
    let worker = fixture.worker("w").start();
    let run = waiting.await.expect("it runs").expect(0);
    assert!(
        run.stdout.contains("order 5 of user 5 for voucher 1 is confirmed (written, not paid)."),
        "{run:?}"
    );
    let again = program.run("order wait 5 --json").expect(0).json();
    assert_eq!((&again["state"], &again["step"]), (&"confirmed".into(), &0.into()));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_behind_others_is_told_about_when_its_turn_comes() {
    let fixture = Fixture::open().await;
    fixture.load(1, 2_000).await;
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]).await;
    for order in 1..=1_000 {
        fixture.admit(order, order, 1, 1).await;
    }
    let waiting = waits(&fixture, &["order", "wait", "1000", "--voucher", "1", "--for", "4s"]).await;
    // A consumer reads about 100 entries a second.
    while !waiting.is_finished() {
        fixture.hand_over("slow-0", 2).await;
        sleep(Duration::from_millis(20)).await;
    }
    let run = waiting.await.expect("it runs").expect(11);
    let told = run.stderr.lines().find(|line| line.contains("order 1000 is waiting")).expect("it says so");
    assert!(told.contains("about ") && told.contains(" before it, its turn comes in about "), "{run:?}");
    assert!(told.contains(" entries a second (an estimate)"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_a_producer_without_a_journal_is_found_while_it_waits() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]).await;
    fixture.add_order(7, 9, 1).await;
    let json = operator(&fixture).run("order wait 7 --for 0s --json").expect(11).json();
    assert_eq!((&json["state"], &json["userId"]), (&"waiting".into(), &"9".into()), "{json:#}");
    fixture.hand_over("gone-0", 1).await;
    let json = operator(&fixture).run("order wait 7 --voucher 1 --for 0s --json").expect(1).json();
    assert_eq!(json["state"], "unknown", "read, and neither journal nor MySQL know it: {json:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_cancelled_expired_and_dead_orders_end_a_wait_with_codes_of_their_own() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.load(2, 100).await;
    let worker = fixture.worker("w").start();
    for order in [1, 2, 3, 4] {
        fixture.admit(order, order, 1, 1).await;
    }
    fixture.settled().await;
    // The first order is a second one of its user; the voucher of the second order has no row in MySQL.
    fixture.add_order(101, 1, 1).await;
    fixture.add_order(102, 2, 99).await;
    event(&fixture, 2, &[("event", "cancelled"), ("reason", "by_phone")]).await;
    event(&fixture, 3, &[("event", "expired")]).await;
    fixture.settled().await;
    let program = operator(&fixture);
    for (line, code, told) in [
        ("order wait 101", 7, "order 101 of user 1 for voucher 1 is refused (user_has_order)."),
        ("order wait 2", 8, "order 2 of user 2 for voucher 1 is cancelled (by_phone)."),
        ("order wait 3", 9, "order 3 of user 3 for voucher 1 is expired."),
        ("order wait 102", 10, "order 102 of user 2 for voucher 99 is a dead letter (unknown_voucher)."),
        ("order wait 1 --until paid --for 200ms", 11, "is confirmed (written, not paid)."),
        ("order wait 2 --until paid", 8, "event 1 at "),
        ("order wait 999 --for 200ms", 1, "order 999 is unknown."),
    ] {
        let run = program.run(line).expect(code);
        assert!(run.stdout.contains(told), "{line}: {run:?}");
    }

    let waiting = waits(&fixture, &["order", "wait", "4", "--until", "paid"]).await;
    event(&fixture, 4, &[("event", "paid"), ("ref", "pay-4")]).await;
    let run = waiting.await.expect("it runs").expect(0);
    assert!(run.stdout.contains("is paid.") && run.stdout.contains(": paid, applied, ref pay-4"), "{run:?}");
    event(&fixture, 2, &[("event", "paid"), ("ref", "late")]).await;
    fixture.settled().await;
    let json = program.run("order wait 2 --json").expect(8).json();
    assert_eq!((&json["state"], &json["refundsDue"][0]["ref"]), (&"refunding".into(), &"late".into()));
    assert_eq!((&json["step"], &json["events"][1]["outcome"]), (&2.into(), &"refund_due".into()));
    assert!(json["events"][1]["at"].as_i64() > Some(1_700_000_000_000), "{json:#}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_in_the_hands_of_a_worker_is_waiting_and_one_that_was_released_is_not() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.admit(1, 1, 1, 1).await;
    fixture.admit(2, 2, 1, 1).await;
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0"]).await;
    fixture.hand_over("gone-0", 1).await;
    let release =
        r#"{"action":"release","from":9,"to":10,"change":1,"by":"somebody","timestamp":1763632800000}"#;
    fixture.redis_says(&["HSET", "seckill:journal:1", "3", release]).await;
    let program = operator(&fixture);
    let run = program.run("order wait 3").expect(8);
    assert!(run.stdout.contains("order 3 for voucher 1 is released."), "{run:?}");
    let json = program.run("order wait 1 --voucher 1 --for 0s --json").expect(11).json();
    assert_eq!((&json["state"], &json["estimate"]["place"]), (&"waiting".into(), &"set_aside".into()));
    program.run("pause --workers --yes").expect(0);
    let json = program.run("order wait 2 --voucher 1 --for 0s --json").expect(11).json();
    assert_eq!((&json["estimate"]["place"], &json["estimate"]["paused"]), (&"unread".into(), &true.into()));
    let run = program.run("order wait 2 --voucher 1 --for 300ms").expect(11);
    assert!(run.stderr.contains("the workers are paused"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlasts_a_mysql_that_is_away_for_a_moment_and_no_longer() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let through = Program::with_variables(&fixture.redis.url(), &proxy.url_for(&fixture.mysql));
    fixture.admit(1, 1, 1, 1).await;
    let held = proxy.hold_when("tidegate_refusal r");
    let mut command = through.command(&["order", "wait", "1", "--voucher", "1"]);
    let waiting = tokio::task::spawn_blocking(move || -> Run {
        command.stdin(Stdio::null()).output().expect("the binary runs").into()
    });
    held.reached().await.expect("it looks");
    held.cut();
    let worker = fixture.worker("w").start();
    assert_eq!(waiting.await.expect("it runs").code, 0);
    let away = format!("mysql://root@127.0.0.1:{}/hmdp", closed_port());
    let error = Program::with_variables(&fixture.redis.url(), &away).run("order wait 1").expect(3).stderr;
    assert!(error.contains("Failed to reach MySQL"), "{error}");
    assert!(worker.stop().await.success());
}

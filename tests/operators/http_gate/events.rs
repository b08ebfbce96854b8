//! Tests of events over HTTP: payments, refunds and other events of orders.

use std::{collections::HashMap, net::SocketAddr, time::Instant};

use fred::interfaces::StreamsInterface;
use hyper::Method;
use serde_json::{Value, json};

use super::{Answer, address_of, ask, post};
use crate::{
    fixture::{Fixture, until},
    order_event::operator,
    partitions::{all_are_settled, program},
};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const LINES: (&str, &str) = ("Content-Type", "application/jsonl");
const WAIT: (&str, &str) = ("Prefer", "wait=20");

async fn report(gate: SocketAddr, order: &str, headers: &[(&str, &str)], event: &Value) -> Answer {
    let headers = [&[JSON], headers].concat();
    ask(gate, Method::POST, &format!("/orders/{order}/events"), &headers, &event.to_string()).await
}

fn event(kind: &str, reference: &str, user: i64) -> Value {
    json!({ "event": kind, "ref": reference, "voucherId": "7", "userId": user })
}

/// The status, the outcome and the reason of an answer.
fn told(answer: &Answer) -> (u16, &str, &str) {
    let word = |name: &str| answer.body[name].as_str().unwrap_or_default();
    (answer.status, word("outcome"), word("reason"))
}

/// The detail of an event that an earlier event holds back.
fn held_by(first: i64) -> String {
    format!(
        "event {first} failed, so the gate did not append this later event: correct event {first} if it is wrong, \
         then send both again"
    )
}

async fn number(fixture: &Fixture, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

async fn buy(gate: SocketAddr, user: i64) -> String {
    let bought = post(gate, &json!({ "voucherId": "7", "userId": user })).await;
    bought.body["orderId"].as_str().expect("an order").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_told_what_became_of_it_and_the_same_again_is_told_the_same() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let worker = fixture.worker("w").start();
    let address = address_of(&gate).await;
    let order = buy(address, 1).await;

    let at_once = report(address, &order, &[], &event("paid", "p-1", 1)).await;
    assert_eq!(told(&at_once), (202, "accepted", ""), "{:#}", at_once.body);
    let page = at_once.headers["location"].to_str().expect("a path").to_owned();
    assert_eq!(page, format!("/orders/{order}?voucherId=7"));
    for _ in 0..2 {
        let again = report(address, &order, &[WAIT], &event("paid", "p-1", 1)).await;
        assert_eq!(told(&again), (200, "applied", ""), "{:#}", again.body);
        assert_eq!(again.body["state"], "paid");
        assert_eq!(again.headers["preference-applied"], "wait=20");
    }
    let second = report(address, &order, &[WAIT], &event("paid", "p-2", 1)).await;
    assert_eq!(told(&second), (200, "refund_due", ""), "{:#}", second.body);
    let due = ask(address, Method::GET, &page, &[], "").await.body;
    assert_eq!((&due["state"], &due["refundsDue"][0]["ref"]), (&json!("paid"), &json!("p-2")), "{due:#}");
    let mut refunded = event("refunded", "r-2", 1);
    refunded["payment"] = json!("p-2");
    assert_eq!(told(&report(address, &order, &[WAIT], &refunded).await), (200, "applied", ""));
    let late = report(address, &order, &[WAIT], &event("paid", "p-2", 1)).await;
    assert_eq!(told(&late), (200, "unchanged", ""), "nobody refunds it twice");

    let cancelled = json!({ "event": "cancelled", "voucherId": "7", "userId": 1 });
    assert_eq!(told(&report(address, &order, &[WAIT], &cancelled).await), (200, "rejected", "paid"));
    let other = report(address, &order, &[WAIT], &event("refunding", "r-1", 2)).await;
    assert_eq!(told(&other), (200, "rejected", "wrong_owner"));
    let nobodys = report(address, "4711", &[WAIT], &event("paid", "p-9", 5)).await;
    assert_eq!(told(&nobodys), (200, "refund_due", ""), "no payment is lost in a 404");
    let shown = ask(address, Method::GET, "/orders/4711?voucherId=7", &[], "").await;
    assert_eq!(shown.body["refundsDue"][0]["ref"], "p-9", "{:#}", shown.body);
    let events = ask(address, Method::GET, &page, &[], "").await.body["events"].clone();
    let events: Vec<String> =
        events.as_array().expect("events").iter().map(|it| it["outcome"].to_string()).collect();
    assert_eq!(events.len(), 8, "{events:?}");
    fixture.judge().await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mysql_and_without_workers_an_event_is_accepted_and_what_is_no_event_is_not() {
    let fixture = Fixture::with_own_mysql().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let order = buy(address, 1).await;
    fixture.mysql.kill9().expect("MySQL is killed");
    let began = Instant::now();
    let waited = report(address, &order, &[("Prefer", "wait=1")], &event("paid", "p-1", 1)).await;
    assert_eq!(told(&waited), (202, "accepted", ""), "{:#}", waited.body);
    assert!((1.0..5.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    for (order, body, status, place) in [
        (&*order, json!({ "event": "paid", "voucherId": "7", "userId": 1 }), 422, "/ref"),
        (&order, event("expired", "x", 1), 422, "/event"),
        ("0", event("paid", "p", 1), 400, ""),
        (&order, json!([]), 422, ""),
    ] {
        let answer = report(address, order, &[], &body).await;
        assert_eq!(answer.status, status, "{:#}", answer.body);
        assert_eq!(
            answer.body["errors"][0]["pointer"].as_str().unwrap_or_default(),
            place,
            "{:#}",
            answer.body
        );
    }
    fixture.mysql.restart().expect("MySQL starts");
    let worker = fixture.worker("w").start();
    let again = report(address, &order, &[WAIT], &event("paid", "p-1", 1)).await;
    assert_eq!(told(&again), (200, "applied", ""), "{:#}", again.body);
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());

    fixture.call("CONFIG SET maxmemory 1").await;
    let full = report(address, &order, &[], &event("paid", "p-2", 1)).await;
    assert_eq!(
        (full.status, &full.body["type"]),
        (503, &json!("/problems/redis-refused")),
        "{:#}",
        full.body
    );
    gate.says("out_of_memory").await;
    // In a request with many events, the later event of the order is not tried: it must not overtake the refused one.
    let [paid, used] = [("paid", "p-3"), ("used", "u")].map(|(kind, reference)| {
        let mut event = event(kind, reference, 1);
        event["orderId"] = json!(order);
        event
    });
    let both = ask(address, Method::POST, "/events", &[JSON], &json!([paid, used]).to_string()).await.body;
    assert_eq!([&both[0]["status"], &both[1]["status"]], [503, 503], "{both:#}");
    let held = held_by(1);
    assert_eq!((&both[0]["detail"], &both[1]["detail"]), (&Value::Null, &json!(held)), "{both:#}");
    fixture.call("CONFIG SET maxmemory 0").await;
    let metrics = ask(address, Method::GET, "/metrics", &[], "").await.text;
    for line in ["{outcome=\"accepted\"} 2", "{outcome=\"bad-input\"} 3", "{outcome=\"redis-refused\"} 3"] {
        assert!(metrics.contains(&format!("tidegate_gate_events_total{line}")), "{metrics}");
    }
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_lines_are_answered_line_by_line_and_an_order_keeps_the_sequence_of_its_events() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 1000").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let mut lines = Vec::new();
    for user in 1..=120 {
        let order = buy(address, user).await;
        for (kind, reference) in
            [("paid", "p"), ("refunding", "r"), ("refund_failed", "f"), ("refunded", "d")]
        {
            let mut line = event(kind, reference, user);
            line["orderId"] = json!(order);
            lines.push(line.to_string());
        }
    }
    // The order of the second user: its later events wait for the one that is wrong.
    lines[4] = lines[4].replace("\"p\"", "7");
    lines.insert(1, String::new());
    lines.push("{".to_owned());
    lines.push(lines[0].clone());
    let send = async |lines: &[String], kind| {
        ask(address, Method::POST, "/events", &[kind], &lines.join("\n")).await
    };
    let answer = send(&lines, LINES).await;
    assert_eq!(
        (answer.status, &answer.headers["content-type"]),
        (200, &"application/jsonl".parse().unwrap())
    );
    let told: Vec<Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(told.len(), 482);
    assert_eq!((&told[4]["line"], &told[4]["errors"][0]["pointer"]), (&json!(6), &json!("/ref")));
    for held in &told[5..8] {
        assert_eq!(held["status"], 422, "{held}");
        assert!(held["detail"].as_str().is_some_and(|detail| detail.starts_with("event 6 failed")), "{held}");
    }
    assert_eq!((&told[480]["line"], &told[480]["type"]), (&json!(482), &json!("/problems/bad-json")));
    assert_eq!(told[481]["status"], 400, "the line before it may be about the same order: {}", told[481]);
    let entries: Vec<&Value> = told.iter().filter(|line| line["status"] == 202).collect();
    assert_eq!(entries.len(), 476);
    assert!(entries.iter().all(|line| line["outcome"] == "accepted" && line["entry"].is_string()));
    let worker = fixture.worker("w").start();
    until("all are refunded", || async {
        let refunded = "SELECT COUNT(*) FROM tb_voucher_order WHERE status = 6";
        number(&fixture, refunded).await == 119
    })
    .await;
    let rejected = "SELECT COUNT(*) FROM tidegate_event WHERE outcome <> 'applied'";
    assert_eq!(number(&fixture, rejected).await, 0, "each event came after the one before it");
    let too_many: Vec<String> = (0..1001).map(|_| "{}".to_owned()).collect();
    assert_eq!(send(&too_many, LINES).await.status, 413);
    assert_eq!(send(&too_many[..2], JSON).await.status, 400, "lines are no array");
    assert_eq!(send(&too_many[..2], ("Content-Type", "text/plain")).await.status, 415);
    assert_eq!(
        send(&too_many[..1000], ("Content-Type", "application/x-ndjson")).await.text.lines().count(),
        1000
    );
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_in_an_array_are_answered_in_an_array_each_by_itself() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let order = buy(address, 1).await;
    let send = async |body: &str| ask(address, Method::POST, "/events", &[JSON], body).await;
    let of_order = |kind: &str, reference: &str| {
        let mut event = event(kind, reference, 1);
        event["orderId"] = json!(order);
        event
    };
    let [refunded, used] = [of_order("refunded", "r"), of_order("used", "u")];
    let events = json!([of_order("paid", "p"), event("paid", "p", 1), 7, refunded, used]);
    let answer = send(&events.to_string()).await;
    assert_eq!((answer.status, &answer.headers["content-type"]), (200, &"application/json".parse().unwrap()));
    let answers = answer.body.as_array().expect("an array");
    let (lines, status): (Vec<i64>, Vec<i64>) = answers
        .iter()
        .map(|it| (it["line"].as_i64().expect("a number"), it["status"].as_i64().expect("a number")))
        .unzip();
    assert_eq!((lines, status), (vec![1, 2, 3, 4, 5], vec![202, 422, 422, 422, 422]), "{:#}", answer.body);
    for held in &answers[3..] {
        assert_eq!(held["detail"], held_by(2), "event 4 is held itself, so it holds back no other: {held}");
    }
    let worker = fixture.worker("w").start();
    let again = report(address, &order, &[WAIT], &event("refunded", "r", 1)).await;
    assert_eq!(told(&again), (200, "applied", ""), "{:#}", again.body);

    let twice = r#"[{"event":"paid","event":"used"}]"#;
    let many = format!("[{}{{}}]", "{},".repeat(1000));
    for (body, status) in [("{}", 422), ("[", 400), (twice, 400), (&*many, 413), ("[]", 200)] {
        assert_eq!(send(body).await.status, status, "{body:.40}");
    }
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

/// The events in the stream of a partition: kind and ref, oldest first.
async fn appended(fixture: &Fixture, tag: &str) -> Vec<String> {
    let entries: Vec<(String, HashMap<String, String>)> =
        fixture.client.xrange(format!("{{{tag}}}:stream.orders"), "-", "+", None).await.expect("a stream");
    let events = entries.into_iter().filter(|(_, fields)| fields.contains_key("event"));
    events.map(|(_, fields)| format!("{} {}", fields["event"], fields["ref"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_an_order_keep_their_sequence_although_they_name_two_partitions() {
    const TAGS: &str = "a,b";
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    let plan = fixture.worker("gate").set("STREAM_PARTITIONS", TAGS).set("GATE_LISTEN", "127.0.0.1:0");
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let mut orders = Vec::new();
    // The vouchers 2 and 4 are in partition a, and voucher 3 is in partition b.
    for voucher in [2, 3, 4] {
        program.run(&format!("voucher load --voucher {voucher} --stock 9")).expect(0);
        until("the gate has reached the partition", || async {
            ask(address, Method::GET, &format!("/vouchers/{voucher}"), &[], "").await.status == 200
        })
        .await;
        let bought = post(address, &json!({ "voucherId": voucher, "userId": 1 })).await;
        orders.push(bought.body["orderId"].as_str().expect("an order").to_owned());
    }
    let line = |order: usize, voucher: i64, kind: &str, reference: &str| json!({ "event": kind, "ref": reference, "voucherId": voucher, "userId": 1, "orderId": orders[order] });
    let mut without_ref = line(2, 4, "paid", "-");
    without_ref.as_object_mut().expect("an object").remove("ref");
    let events = [
        line(0, 2, "paid", "p0"),
        line(0, 3, "refunding", "of-another"),
        line(0, 2, "refunded", "held"),
        line(1, 3, "paid", "p1"),
        line(1, 3, "used", "u1"),
        // In the same partition, another voucher is wrong, too.
        line(1, 5, "paid", "of-another"),
        without_ref,
        line(2, 3, "used", "held"),
        line(0, 3, "used", "held"),
    ];
    let answer = ask(address, Method::POST, "/events", &[JSON], &json!(events).to_string()).await;
    let told: Vec<(i64, &str)> = answer
        .body
        .as_array()
        .expect("an array")
        .iter()
        .map(|line| {
            let detail = line["errors"][0]["detail"].as_str().or(line["detail"].as_str()).unwrap_or_default();
            (line["status"].as_i64().expect("a number"), detail)
        })
        .collect();
    let of_another = |first: i64| format!("must be the voucher of event {first}, which names the same order");
    let expected = [
        (202, String::new()),
        (422, of_another(1)),
        (422, held_by(2)),
        (202, String::new()),
        (202, String::new()),
        (422, of_another(4)),
        (422, "is missing: an event about money needs the id of the payment or of the refund".to_owned()),
        (422, held_by(7)),
        (422, held_by(2)),
    ];
    let expected: Vec<(i64, &str)> = expected.iter().map(|(status, detail)| (*status, &**detail)).collect();
    assert_eq!(told, expected, "{:#}", answer.body);
    assert_eq!(answer.body[1]["errors"][0]["pointer"], "/voucherId");
    assert_eq!(
        (appended(&fixture, "a").await, appended(&fixture, "b").await),
        (vec!["paid p0".to_owned()], vec!["paid p1".to_owned(), "used u1".to_owned()])
    );

    // After the mistake is corrected, all events can be sent.
    let corrected =
        json!([line(0, 2, "refunding", "r0"), line(0, 2, "refunded", "d0"), line(2, 4, "paid", "p2")]);
    let again = ask(address, Method::POST, "/events", &[JSON], &corrected.to_string()).await.body;
    assert!(again.as_array().expect("an array").iter().all(|line| line["status"] == 202), "{again:#}");
    let worker = fixture.worker("w").set("STREAM_PARTITIONS", TAGS).start();
    all_are_settled(&program).await;
    assert_eq!(number(&fixture, "SELECT COUNT(*) FROM tidegate_event WHERE outcome = 'applied'").await, 6);
    fixture.judge_partitions(TAGS).await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

/// The results of an order in the stream of results: state, reason and step, oldest first.
async fn published(fixture: &Fixture, order: &str) -> Vec<String> {
    let entries: Vec<(String, HashMap<String, String>)> =
        fixture.client.xrange("stream.orders.results", "-", "+", None).await.expect("a stream");
    let of_order =
        entries.into_iter().filter(|(_, fields)| fields["orderId"] == order && fields["step"] != "0");
    let reason = |fields: &HashMap<String, String>| fields.get("reason").map(|it| format!("{it} "));
    of_order
        .map(|(_, fields)| {
            format!("{} {}{}", fields["state"], reason(&fields).unwrap_or_default(), fields["step"])
        })
        .collect()
}

/// Events (kind, ref, payment) with the outcome that the sender is told, and the result that is published.
type Reports = &'static [(&'static str, &'static str, &'static str, &'static str, &'static str)];

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_comes_again_is_published_as_its_sender_is_told() {
    // For each order, the status that another program sets at first.
    const ORDERS: &[(Option<i64>, Reports)] = &[
        (
            None,
            &[
                ("paid", "p", "", "applied", "paid 1"),
                ("paid", "p", "", "applied", "paid 1"),
                ("paid", "q", "", "refund_due", "refund_due 3"),
                ("paid", "q", "", "refund_due", "refund_due 3"),
                ("refunded", "r", "q", "applied", "refunded not_moved 5"),
                ("refunded", "r", "q", "applied", "refunded not_moved 5"),
                ("paid", "q", "", "unchanged", "refunded not_moved 5"),
                ("refunded", "s", "p", "applied", "refunded 8"),
                ("paid", "p", "", "applied", "paid 1"),
                ("refunded", "t", "q", "unchanged", "refunded not_moved 5"),
                ("refunded", "t", "q", "unchanged", "refunded not_moved 5"),
                ("cancelled", "c", "", "rejected", "rejected refunded 12"),
                ("cancelled", "c", "", "rejected", "rejected refunded 13"),
            ],
        ),
        (
            Some(5),
            &[
                ("refunding", "r", "", "unchanged", "refunding 1"),
                ("refunded", "d", "", "applied", "refunded 2"),
                ("refunding", "r", "", "unchanged", "refunding 1"),
            ],
        ),
        (
            None,
            &[
                ("cancelled", "c", "", "applied", "cancelled 1"),
                ("paid", "p", "", "refund_due", "refund_due 2"),
                ("refund_failed", "f", "p", "applied", "refund_failed not_moved 3"),
                ("paid", "p", "", "refund_due", "refund_due 2"),
                ("refunded", "d", "p", "applied", "refunded 5"),
                ("paid", "p", "", "unchanged", "refunded 5"),
                ("cancelled", "c", "", "applied", "cancelled 1"),
            ],
        ),
    ];
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let worker = fixture.worker("w").set("RESULTS_PUBLISH", "all").start();
    let address = address_of(&gate).await;
    for (user, (status, reports)) in (1..).zip(ORDERS) {
        let order = buy(address, user).await;
        fixture.settled().await;
        if let Some(status) = status {
            let set = "UPDATE tb_voucher_order SET status = ? WHERE user_id = ?";
            sqlx::query(set).bind(status).bind(user).execute(&fixture.pool).await.expect("MySQL answers");
        }
        for (kind, reference, payment, outcome, result) in *reports {
            let mut event = event(kind, reference, user);
            if !payment.is_empty() {
                event["payment"] = json!(payment);
            }
            let answer = report(address, &order, &[WAIT], &event).await;
            assert_eq!(told(&answer).1, *outcome, "{kind} {reference}, published as {result}");
        }
        fixture.settled().await;
        let expected: Vec<&str> = reports.iter().map(|(.., result)| *result).collect();
        assert_eq!(published(&fixture, &order).await, expected, "order of user {user}");
    }
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

//! Tests of results for callers: each is published at least once, after it is durable, and before its entry is
//! acknowledged.

mod consumer;

use std::collections::{BTreeMap, BTreeSet};

use fred::{
    interfaces::{ClientLike, StreamsInterface},
    types::{CustomCommand, Value},
};

use crate::{
    browser::get,
    faults::proxies::{LOCK, Proxies, quick},
    fixture::{Fixture, STREAM, WorkerPlan, connect, until},
    program::Program,
};

const RESULTS: &str = "stream.orders.results";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const EXCEPTIONS: [&str; 6] = ["refused", "dead", "cancelled", "expired", "refund_due", "rejected"];

type Told = BTreeMap<String, String>;

/// All results, oldest first: field by name.
pub async fn results(fixture: &Fixture) -> Vec<Told> {
    let entries: Vec<(String, Vec<(String, String)>)> =
        fixture.client.xrange(RESULTS, "-", "+", None).await.expect("a stream or nothing");
    entries.into_iter().map(|(_, fields)| fields.into_iter().collect()).collect()
}

/// The orders of results with their steps, states and reasons, such as `12 0 refused out_of_stock`.
fn in_short(results: &[Told]) -> Vec<String> {
    let field = |told: &Told, name: &str| told.get(name).cloned().unwrap_or_default();
    let line = |told: &Told| {
        let fields = ["orderId", "step", "state", "reason"].map(|name| field(told, name));
        fields.join(" ").trim_end().to_owned()
    };
    results.iter().map(line).collect()
}

async fn told(fixture: &Fixture) -> Vec<String> {
    in_short(&results(fixture).await)
}

/// The number of results that MySQL remembers.
async fn unpublished(fixture: &Fixture) -> i64 {
    let count = "SELECT COUNT(*) FROM tidegate_unannounced_result";
    sqlx::query_scalar(count).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

/// A worker that publishes these results.
fn publishing(fixture: &Fixture, publish: &str) -> WorkerPlan {
    quick(fixture, "w").set("RESULTS_PUBLISH", publish).set("WORKER_ENTRY_MAX_BYTES", 4_096)
}

async fn event(fixture: &Fixture, event: &str, order: i64, more: &[(&str, &str)]) {
    let (order, user) = (order.to_string(), order.to_string());
    let fields = [("event", event), ("orderId", &order), ("userId", &user), ("voucherId", "1")];
    fixture.add(&[&fields, more].concat()).await;
}

/// Admits orders of voucher 1, each of a new user.
async fn admit(fixture: &Fixture, orders: i64) {
    for order in 1..=orders {
        fixture.admit(order, order, 1, 1).await;
    }
}

/// Appends entries that lead to every state. Returns the expected results.
async fn a_day(fixture: &Fixture) -> Vec<&'static str> {
    fixture.load(1, 20).await;
    fixture.load(3, 1).await;
    // Redis offers a unit that MySQL does not have: the last order is refused.
    fixture.restock_redis(3, 1).await;
    for order in 1..=6 {
        fixture.admit(order, order, 1, 1).await;
    }
    fixture.admit(31, 31, 3, 1).await;
    fixture.admit(32, 32, 3, 1).await;
    fixture.add(&[("userId", "9"), ("voucherId", "999"), ("id", "9")]).await;
    let large = "x".repeat(9_000);
    fixture.add(&[("note", &large), ("userId", "8"), ("voucherId", "1"), ("id", "8")]).await;
    fixture.add(&[("event", "shipped"), ("orderId", "1")]).await;
    // This entry names no order.
    fixture.add(&[("userId", "9"), ("voucherId", "1")]).await;
    for (order, kind, more) in [
        (1, "used", &[][..]),
        (1, "paid", &[("ref", "a")]),
        (1, "used", &[]),
        // The first payment comes again, and a second one comes.
        (1, "paid", &[("ref", "a")]),
        (1, "paid", &[("ref", "b")]),
        (1, "refunded", &[("payment", "b")]),
        // The refunded payment comes again: it must not be refunded twice.
        (1, "paid", &[("ref", "b")]),
        (2, "cancelled", &[("reason", "changed_my_mind")]),
        (2, "paid", &[]),
        (3, "expired", &[]),
        (3, "expired", &[]),
        (4, "paid", &[]),
        (4, "expired", &[]),
        (4, "refunding", &[]),
        (4, "refund_failed", &[]),
        (5, "paid", &[]),
        (5, "refunded", &[]),
        (77, "cancelled", &[]),
    ] {
        event(fixture, kind, order, more).await;
    }
    vec![
        "1 0 confirmed",
        "2 0 confirmed",
        "3 0 confirmed",
        "4 0 confirmed",
        "5 0 confirmed",
        "6 0 confirmed",
        "31 0 confirmed",
        "32 0 refused out_of_stock",
        "9 -1 dead unknown_voucher",
        "8 -1 dead too_large",
        "1 -1 rejected unsupported_event",
        "1 1 rejected not_paid",
        "1 2 paid",
        "1 3 used",
        "1 2 paid",
        "1 5 refund_due",
        "1 6 refunded not_moved",
        "1 6 refunded not_moved",
        "2 1 cancelled changed_my_mind",
        "2 2 refund_due",
        "3 1 expired",
        "4 1 paid",
        "4 3 refunding",
        "4 4 refund_failed",
        "5 1 paid",
        "5 2 refunded",
        "77 1 cancelled",
    ]
}

fn sorted(lines: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().map(Into::into).collect();
    lines.sort();
    lines
}

fn is_exception(line: &str) -> bool {
    line.split(' ').nth(2).is_some_and(|state| EXCEPTIONS.contains(&state))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_an_order_is_told_with_its_step_as_far_as_it_is_published() {
    for publish in ["all", "exceptions", "none"] {
        let fixture = Fixture::open().await;
        let mut expected = a_day(&fixture).await;
        let worker = publishing(&fixture, publish).start();
        fixture.settled().await;
        expected.retain(|line| publish == "all" || publish == "exceptions" && is_exception(line));
        assert_eq!(sorted(told(&fixture).await), sorted(expected), "{publish}");
        let counted = get(&worker, "/metrics").await.samples();
        let of = |state: &str| counted[&format!("tidegate_results_published_total{{state=\"{state}\"}}")];
        let all = results(&fixture).await;
        for state in ["confirmed", "refund_due", "rejected", "dead"] {
            let told = all.iter().filter(|told| told["state"] == state).count();
            assert!((of(state) - told as f64).abs() < 0.5, "{publish} {state}");
        }
        assert_eq!(unpublished(&fixture).await, 0);
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_has_the_fields_of_its_contract() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    let order = [("userId", "5"), ("voucherId", "1"), ("id", "7"), ("quantity", "3"), ("traceparent", TRACE)];
    let entry = fixture.add(&order).await;
    let paid = [("event", "paid"), ("orderId", "7"), ("userId", "5"), ("voucherId", "1"), ("ref", "pay-1")];
    let paid = fixture.add(&[&paid[..], &[("reason", "card"), ("traceparent", TRACE)]].concat()).await;
    let refunded = [("event", "refunded"), ("orderId", "7"), ("userId", "5"), ("voucherId", "1")];
    let refunded = fixture.add(&refunded).await;
    let worker = publishing(&fixture, "all").start();
    fixture.settled().await;
    let mut told = results(&fixture).await;
    for told in &mut told {
        let at: u64 = told.remove("at").expect("a time").parse().expect("milliseconds");
        assert!(at > 1_700_000_000_000);
    }
    let all = |fields: &[(&str, &str)]| {
        let same = [("orderId", "7"), ("userId", "5"), ("voucherId", "1")];
        [&same, fields]
            .concat()
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect::<Told>()
    };
    let expected = [
        all(&[
            ("quantity", "3"),
            ("state", "confirmed"),
            ("kind", "state"),
            ("step", "0"),
            ("entry", &entry),
            ("traceparent", TRACE),
        ]),
        all(&[
            ("state", "paid"),
            ("kind", "state"),
            ("ref", "pay-1"),
            ("reason", "card"),
            ("step", "1"),
            ("entry", &paid),
            ("traceparent", TRACE),
        ]),
        all(&[
            ("quantity", "3"),
            ("state", "refunded"),
            ("kind", "state"),
            ("step", "2"),
            ("entry", &refunded),
        ]),
    ];
    assert_eq!(told, expected);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_commit_and_the_publication_nothing_is_acknowledged_untold() {
    let fixture = Fixture::open().await;
    let expected = a_day(&fixture).await;
    let appended = fixture.client.xlen::<usize, _>(STREAM).await.expect("Redis answers");
    let proxies = Proxies::start(&fixture).await;
    let publication = proxies.redis.hold_when(RESULTS);
    let worker = proxies.before(publishing(&fixture, "all"), &fixture).start();
    publication.reached().await.expect("the worker comes to this step");
    // The results of entries that are buried unread are published first. All other entries are decided in one batch.
    let large = fixture.open_entries().await;
    assert_eq!((large, told(&fixture).await.len()), (Some(appended), 0));
    let all_others = proxies.redis.hold_when("confirmed");
    publication.release();
    all_others.reached().await.expect("the batch is committed");
    assert_eq!(fixture.orders().await.len(), 8, "six and one and the row of a cancelled one");
    worker.kill9();
    all_others.cut();
    assert!(told(&fixture).await.iter().all(|line| line.ends_with("too_large")));
    assert!(fixture.open_entries().await >= Some(appended - 1), "nothing that is not told is acknowledged");

    let worker = publishing(&fixture, "all").start();
    fixture.settled().await;
    // Results are published at least once: a repeated entry has the same result again.
    let told: BTreeSet<String> = told(&fixture).await.into_iter().collect();
    assert_eq!(told, expected.into_iter().map(str::to_owned).collect());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_has_no_memory_for_is_acknowledged_and_told_later() {
    let fixture = Fixture::open().await;
    fixture.load(1, 1_000).await;
    admit(&fixture, 300).await;
    let proxies = Proxies::start(&fixture).await;
    let lock = proxies.redis.hold_when(LOCK);
    let worker = proxies.before(publishing(&fixture, "all"), &fixture).start();
    lock.reached().await.expect("a batch is in progress");
    fixture.call("CONFIG SET maxmemory 1").await;
    lock.release();
    fixture.settled().await;
    assert_eq!((told(&fixture).await.len(), unpublished(&fixture).await), (0, 300));
    worker.says("Redis does not take results").await;
    worker.says("docs/runbook/results-are-not-published.md").await;
    until("it is counted", || async {
        let counted = get(&worker, "/metrics").await.samples();
        let is = |name: &str, count: f64| (counted[name] - count).abs() < 0.5;
        is("tidegate_results_unpublished", 300.0) && is("tidegate_results_remembered_total", 300.0)
    })
    .await;
    assert_eq!(worker.log().matches("Redis does not take results").count(), 1, "once a minute");
    let doctor = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url()).run("doctor");
    assert!(doctor.stdout.contains("Redis has not accepted 300 order results"), "{doctor:?}");
    fixture.call("CONFIG SET maxmemory 0").await;
    until("all are told", || async { unpublished(&fixture).await == 0 }).await;
    let expected: Vec<String> = (1..=300).map(|order| format!("{order} 0 confirmed")).collect();
    assert_eq!(sorted(told(&fixture).await), sorted(expected));
    let one = &results(&fixture).await[0];
    assert_eq!((&*one["userId"], &*one["quantity"], one.len()), ("1", "1", 9), "{one:?}");
    until("nothing is left", || async {
        get(&worker, "/metrics").await.samples()["tidegate_results_unpublished"] < 0.5
    })
    .await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_in_the_place_of_the_results_loses_nothing() {
    let fixture = Fixture::open().await;
    fixture.call(&format!("SET {RESULTS} something")).await;
    let mut expected = a_day(&fixture).await;
    let worker = publishing(&fixture, "exceptions").start();
    fixture.settled().await;
    expected.retain(|line| is_exception(line));
    assert_eq!(unpublished(&fixture).await, expected.len() as i64);
    let doctor = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url()).run("doctor");
    assert!(doctor.stdout.contains("stream.orders.results is a string, not a stream"), "{doctor:?}");
    fixture.call(&format!("DEL {RESULTS}")).await;
    until("all are told", || async { unpublished(&fixture).await == 0 }).await;
    assert_eq!(sorted(told(&fixture).await), sorted(expected));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_which_nothing_is_told_cost_redis_no_call_and_told_ones_one_entry_each() {
    for (publish, told) in [("none", 0), ("exceptions", 0), ("all", 300)] {
        let fixture = Fixture::open().await;
        fixture.load(1, 1_000).await;
        admit(&fixture, 300).await;
        let appended = fixture.calls_of("xadd").await;
        let worker = publishing(&fixture, publish).start();
        fixture.settled().await;
        assert_eq!(fixture.calls_of("xadd").await - appended, told, "{publish}");
        assert!(worker.stop().await.success());
        // The other calls are lock, unlock and acknowledge; their number does not grow with the orders.
        assert_eq!(fixture.calls_of("xack").await, 1, "they came as one batch");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_results_go_by_age_and_by_bytes_whether_they_were_read_or_not() {
    let fixture = Fixture::open().await;
    fixture.load(1, 5_000).await;
    admit(&fixture, 3_000).await;
    let keeping = |name: &str, value: u64| {
        publishing(&fixture, "all").set("WORKER_CLAIM_EVERY_MS", 10).set(name, value)
    };
    let length = || async { fixture.client.xlen::<u64, _>(RESULTS).await.expect("Redis answers") };
    let worker = keeping("RESULTS_KEEP_BYTES", 100_000).start();
    fixture.settled().await;
    until("the size is kept", || async {
        let bytes = fixture.call(&format!("MEMORY USAGE {RESULTS}")).await.as_u64().unwrap_or(0);
        (50_000..110_000).contains(&bytes)
    })
    .await;
    assert!((300..1_500).contains(&length().await), "{} are left", length().await);
    assert!(worker.stop().await.success());
    // By age, a node of the stream is removed when all of its entries are too old.
    let worker = keeping("RESULTS_KEEP_MS", 200).start();
    until("the old ones are gone", || async { length().await <= 100 }).await;
    worker.says("deleted results that were too old or too many").await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_tells_what_it_acknowledges_and_the_rest_only_if_it_is_told_to() {
    let fixture = Fixture::open().await;
    let expected = a_day(&fixture).await;
    let worker = publishing(&fixture, "all").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    fixture.call(&format!("DEL {RESULTS}")).await;
    let program = Program::with_flags(&[
        "--redis-url",
        &fixture.redis.url(),
        "--mysql-url",
        &fixture.mysql.url(),
        "--set",
        "results.publish=all",
    ]);
    program.run("replay --from 2020-01-01 --to 0s --yes").expect(0);
    assert_eq!(told(&fixture).await, [""; 0], "all of it was told when it was acknowledged");

    // The replay settles the entries that a dead worker left, so the replay publishes their results.
    fixture.admit(40, 40, 1, 1).await;
    event(&fixture, "paid", 40, &[]).await;
    fixture.hand_over("gone-0", 2).await;
    program.run("replay --from 2020-01-01 --to 0s --yes").expect(0);
    assert_eq!(fixture.open_entries().await, Some(0));
    assert_eq!(told(&fixture).await, ["40 0 confirmed", "40 1 paid"]);

    fixture.call(&format!("DEL {RESULTS}")).await;
    program.run("replay --from 2020-01-01 --to 0s --yes --publish").expect(0);
    let again: BTreeSet<String> = told(&fixture).await.into_iter().collect();
    // The first replay wrote the large entry.
    let expected = expected.into_iter().filter(|line| !line.starts_with("8 "));
    let expected = expected.chain(["8 0 confirmed", "40 0 confirmed", "40 1 paid"]);
    let expected: BTreeSet<String> = expected.map(str::to_owned).collect();
    assert_eq!(again, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_decides_is_told_as_well() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    let program = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url());
    let worker = publishing(&fixture, "exceptions").start();
    let letter = fixture.add(&[("userId", "9"), ("voucherId", "999"), ("id", "9")]).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    fixture.admit(1, 1, 1, 1).await;
    event(&fixture, "paid", 1, &[("ref", "a")]).await;
    fixture.hand_over("gone-0", 2).await;
    program.run("pending bury --consumer gone-0 --why stuck --yes").expect(0);
    program.run("dead cancel --reason unknown_voucher --yes").expect(0);
    let expected = [
        "9 -1 dead unknown_voucher",
        "1 -1 dead by_operator",
        "1 -1 rejected by_operator",
        "9 0 cancelled by_operator",
    ];
    assert_eq!(told(&fixture).await, expected);
    assert_eq!(results(&fixture).await[3]["entry"], letter);
    // The letter of the event has no result of its own.
    program.run("dead cancel --all --yes").expect(1);
    assert_eq!(told(&fixture).await[4..], ["1 0 cancelled by_operator"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_processes_died_of_is_told_without_being_read() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    publishing(&fixture, "none").start().says("worker started").await;
    let deadly = fixture.add(&[("userId", "5"), ("voucherId", "1"), ("id", "7")]).await;
    let payment = [("event", "paid"), ("orderId", "8"), ("userId", "8"), ("voucherId", "1"), ("ref", "a")];
    let payment = fixture.add(&payment).await;
    until("the name is free", || async {
        fixture.call("EXISTS tidegate:worker:w").await.as_u64() == Some(0)
    })
    .await;
    fixture.hand_over("w-0", 2).await;
    for entry in [&deadly, &payment] {
        fixture.call(&format!("HSET stream.orders.deaths {entry} 4")).await;
    }
    let worker = publishing(&fixture, "exceptions").start();
    fixture.settled().await;
    let expected = ["7 -1 dead killed_worker", "8 -1 rejected killed_worker"];
    assert_eq!(sorted(told(&fixture).await), expected);
    let payment =
        results(&fixture).await.into_iter().find(|told| told["orderId"] == "8").expect("it is told");
    assert_eq!((&*payment["ref"], &*payment["userId"]), ("a", "8"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_has_a_group_of_its_own_and_hears_where_it_left_off() {
    let fixture = Fixture::open().await;
    let expected = a_day(&fixture).await;
    let worker = publishing(&fixture, "all").start();
    fixture.settled().await;
    let reader = connect(&fixture.redis_url_of("tidegate-listener")).await;
    let _made: Value = reader.xgroup_create(RESULTS, "shop", "0", false).await.expect("the group is made");
    let mut heard = 0;
    loop {
        let command = CustomCommand::new("XREADGROUP", None, false);
        let args = ["GROUP", "shop", "app-1", "COUNT", "10", "STREAMS", RESULTS, ">"];
        let read: Value = reader.custom(command, args.to_vec()).await.expect("results");
        if read.is_null() {
            break;
        }
        let Value::Array(streams) = read else { panic!("{read:?}") };
        let entries = streams[0].clone().into_array()[1].clone().into_array();
        for entry in entries {
            let id = entry.into_array()[0].as_string().expect("an id");
            let _: u64 = reader.xack(RESULTS, "shop", id).await.expect("it is acknowledged");
            heard += 1;
        }
    }
    assert_eq!(heard, expected.len());
    let forbidden: Result<Value, _> = reader.xadd(RESULTS, false, None, "*", ("orderId", "1")).await;
    forbidden.expect_err("who reads results writes none");
    assert!(worker.stop().await.success());
}

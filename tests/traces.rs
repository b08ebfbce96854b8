//! Tests of traces: from the producer's span to the commit, with a collector and without one.

mod fixture;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fixture::{Fixture, WorkerPlan, program, until};
use nix::sys::signal::Signal;
use tidegate_lab::{Collector, Endpoint, Proxy, ReceivedSpan, SpanKind};
use tidegate_stream::EntryId;

const VOUCHER: i64 = 7;
const COMMIT: &[u8] = b";COMMIT";
/// The producer's span.
const PARENT: &str = "00f067aa0ba902b7";
/// The spans of an order that is written: its own, and those of three stages.
const SPANS: usize = 4;

/// The `n`th trace id, and its traceparent with these flags.
fn trace(n: i64, flags: &str) -> (String, String) {
    let trace = format!("{:032x}", 0x4bf9_2f35_0000_0000_u64 + u64::try_from(n).expect("a number"));
    let traceparent = format!("00-{trace}-{PARENT}-{flags}");
    (trace, traceparent)
}

/// A worker that sends its traces to this URL after a short delay.
fn traced(fixture: &Fixture, url: &str) -> WorkerPlan {
    let plan = fixture.worker("w").set("WORKER_LANES", 1).variable("OTEL_EXPORTER_OTLP_ENDPOINT", url);
    plan.variable("OTEL_BSP_SCHEDULE_DELAY", 50)
}

async fn fixture_on_sale() -> Fixture {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(VOUCHER, 1_000).await;
    fixture
}

/// Adds an order whose user has its number, and returns the entry id.
async fn add(fixture: &Fixture, order: i64, traceparents: &[&str]) -> String {
    let (order, voucher) = (order.to_string(), VOUCHER.to_string());
    let mut fields = vec![("userId", order.as_str()), ("voucherId", &voucher), ("id", &order)];
    fields.extend(traceparents.iter().map(|traceparent| ("traceparent", *traceparent)));
    fixture.add(&fields).await
}

fn of_trace(collector: &Collector, trace: &str) -> Vec<ReceivedSpan> {
    collector.spans().into_iter().filter(|span| span.trace == trace).collect()
}

/// The span of an order that ended like this, and its child spans by name.
type Told = (ReceivedSpan, BTreeMap<String, ReceivedSpan>);

async fn told(collector: &Collector, trace: &str, outcome: &str) -> Told {
    let find = || {
        let spans = of_trace(collector, trace);
        let order = spans
            .iter()
            .find(|span| span.attributes.get("tidegate.outcome").is_some_and(|it| it == outcome))?;
        let below = spans.iter().filter(|span| span.parent == order.id);
        Some((order.clone(), below.map(|span| (span.name.clone(), span.clone())).collect()))
    };
    until(&format!("trace {trace} tells {outcome}"), || async { find().is_some() }).await;
    find().expect("it was there")
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_producers_span_to_the_commit() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let (trace, traceparent) = trace(1, "01");
    let admit =
        ["admit", "--voucher", "7", "--user", "1001", "--order", "5001", "--traceparent", &traceparent];
    let admitted = fixture.tidegate(&admit);
    assert!(admitted.status.success(), "{admitted:?}");
    let commit = mysql.hold_when(COMMIT);
    let worker = traced(&fixture, &collector.url()).set("MYSQL_URL", mysql.url_for(&fixture.mysql)).start();
    commit.reached().await.expect("a commit is on its way");
    let before_commit_ns = now_ns();
    commit.release();

    let (order, stages) = told(&collector, &trace, "created").await;
    assert_eq!(of_trace(&collector, &trace).len(), SPANS);
    assert_eq!((order.parent.as_str(), order.kind), (PARENT, SpanKind::Consumer));
    assert_eq!((order.name.as_str(), &order.error), ("process stream.orders", &None));
    let entry: EntryId = order.attributes["messaging.message.id"].parse().expect("an entry id");
    let begun_ms = order.began_ns / 1_000_000;
    let waited_ms: u64 = order.attributes["tidegate.stream.wait_ms"].parse().expect("milliseconds");
    // Both values are rounded.
    assert!((begun_ms - entry.ms).abs_diff(waited_ms) <= 1, "{order:#?}");
    for (name, value) in [
        ("messaging.system", "redis"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "stream.orders"),
        ("messaging.consumer.group.name", "g1"),
        ("messaging.client.id", "w-0"),
        ("tidegate.order.id", "5001"),
        ("tidegate.voucher.id", "7"),
        ("tidegate.quantity", "1"),
        ("tidegate.delivery", "new"),
    ] {
        assert_eq!(order.attributes.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!format!("{order:?}").contains("1001"), "who bought is nobody's business: {order:#?}");
    assert_eq!(
        (order.resource["service.name"].as_str(), &*order.resource["service.instance.id"]),
        ("tidegate", "w")
    );

    let [lock, write, settle] =
        ["lock users", "write orders", "settle stream.orders"].map(|name| &stages[name]);
    let times = [
        order.began_ns,
        lock.began_ns,
        lock.ended_ns,
        write.began_ns,
        before_commit_ns,
        write.ended_ns,
        settle.began_ns,
        settle.ended_ns,
    ];
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(settle.ended_ns, order.ended_ns);
    assert_eq!(collector.complaints(), [""; 0]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_is_told_with_its_reason() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let _worker = traced(&fixture, &collector.url()).start();
    let told_of = async |n, outcome| told(&collector, &trace(n, "01").0, outcome).await.0;
    let add = async |n: i64, user: &str, voucher: &str, order: &str| {
        let traceparent = trace(n, "01").1;
        let fields = [("userId", user), ("voucherId", voucher), ("id", order), ("traceparent", &traceparent)];
        fixture.add(&fields).await;
    };
    let reason = |span: &ReceivedSpan| span.attributes.get("tidegate.reason").cloned().unwrap_or_default();

    add(1, "1", "7", "1").await;
    assert_eq!(reason(&told_of(1, "created").await), "");
    add(2, "1", "7", "1").await;
    assert_eq!(reason(&told_of(2, "already_there").await), "");
    add(3, "1", "7", "3").await;
    let refused = told_of(3, "refused").await;
    assert_eq!(refused.attributes["tidegate.order.status"], "refused");
    assert_eq!((reason(&refused).as_str(), refused.error), ("user_has_order", None));
    add(4, "4", "999", "4").await;
    let buried = told_of(4, "buried").await;
    assert_eq!(
        (reason(&buried).as_str(), &*buried.attributes["error.type"]),
        ("unknown_voucher", "unknown_voucher")
    );
    assert!(buried.error.is_some_and(|error| error.contains("voucher 999")));
    fixture.load(999, 1).await;
    let requeued = fixture.tidegate(&["dead", "requeue", "--reason", "unknown_voucher", "--yes"]);
    assert!(requeued.status.success(), "{requeued:?}");
    assert_eq!(told_of(4, "created").await.parent, PARENT, "a letter that is put back goes on in its trace");
    add(5, "nobody", "7", "5").await;
    let (no_order, stages) = told(&collector, &trace(5, "01").0, "buried").await;
    assert_eq!(
        (reason(&no_order).as_str(), no_order.attributes.get("tidegate.order.id")),
        ("bad_value", None)
    );
    assert_eq!(stages.keys().collect::<Vec<_>>(), ["settle stream.orders"]);

    fixture.redis_says(&["SET", "lock:order:6", "another"]).await;
    add(6, "6", "7", "6").await;
    let waiting = told_of(6, "retried").await;
    assert_eq!((reason(&waiting).as_str(), waiting.error), ("user_locked", None));
    fixture.redis_says(&["DEL", "lock:order:6"]).await;
    assert_eq!(told_of(6, "created").await.attributes["tidegate.delivery"], "pending");

    fixture.mysql.kill9().expect("MySQL is killed");
    add(7, "8", "7", "7").await;
    let (failed, stages) = told(&collector, &trace(7, "01").0, "retried").await;
    assert_eq!((reason(&failed).as_str(), failed.error.is_some()), ("outage", true));
    assert!(stages["write orders"].error.is_some() && stages["lock users"].error.is_none(), "{stages:#?}");
    fixture.mysql.restart().expect("MySQL starts again");
    told_of(7, "created").await;
    fixture.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_a_batch_have_a_trace_each_and_only_where_the_producer_samples_one() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let traces: Vec<_> = (1..=6).map(|n| trace(n, "01")).collect();
    let entry = add(&fixture, 1, &[&traces[0].1]).await;
    add(&fixture, 2, &[&traces[1].1]).await;
    add(&fixture, 3, &[]).await;
    add(&fixture, 4, &[&trace(3, "00").1]).await;
    add(&fixture, 5, &[&traces[3].1.to_uppercase()]).await;
    add(&fixture, 6, &[&traces[4].1, &traces[4].1]).await;
    add(&fixture, 7, &["\u{1f3ab}"]).await;
    let worker = traced(&fixture, &collector.url()).start();
    let (first, first_stages) = told(&collector, &traces[0].0, "created").await;
    let (_, second_stages) = told(&collector, &traces[1].0, "created").await;
    fixture.settled().await;
    assert!(worker.stop().await.success());

    assert_eq!(fixture.orders().await.len(), 7);
    assert_eq!(collector.spans().len(), 2 * SPANS, "{:#?}", collector.spans());
    assert_eq!(first.attributes["tidegate.batch.id"], format!("w-0/{entry}"));
    for (name, stage) in &first_stages {
        let same = &second_stages[name];
        assert_eq!((stage.began_ns, stage.ended_ns), (same.began_ns, same.ended_ns), "{name}");
        assert_eq!(stage.attributes["messaging.batch.message_count"], "7", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampler_may_trace_orders_without_a_producers_trace() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let worker = traced(&fixture, &collector.url()).variable("OTEL_TRACES_SAMPLER", "parentbased_always_on");
    let worker = worker.variable("OTEL_SERVICE_NAME", "shop");
    let _worker =
        worker.variable("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,service.instance.id=pod-1").start();
    add(&fixture, 1, &[]).await;
    let (unsampled, traceparent) = trace(2, "00");
    add(&fixture, 2, &[&traceparent]).await;
    fixture.settled().await;
    until("all has come", || async { collector.spans().len() == SPANS }).await;
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace != unsampled && span.resource["service.name"] == "shop"));
    assert!(spans.iter().all(|span| span.resource["service.instance.id"] == "pod-1"));
    assert!(spans.iter().any(|span| span.parent.is_empty() && span.attributes["tidegate.order.id"] == "1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_a_warning_and_no_order() {
    let (fixture, mut collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    collector.stop().await;
    let worker = traced(&fixture, &collector.url()).variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 8).start();
    for order in 1..=50 {
        add(&fixture, order, &[&trace(order, "01").1]).await;
    }
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 50);
    worker.says("traces cannot be sent").await;
    worker.says("127.0.0.1: ").await;
    worker.says("Connection refused").await;

    collector.restart().await.expect("the collector is back");
    until("traces come again", || async { !collector.spans().is_empty() }).await;
    worker.says("traces are sent again").await;
    let (last, traceparent) = trace(51, "01");
    add(&fixture, 51, &[&traceparent]).await;
    told(&collector, &last, "created").await;
    assert_eq!(worker.log().matches("traces cannot be sent").count(), 1, "{}", worker.log());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_leaves_out_whole_orders_and_a_silent_collector_does_not_hold_up_the_end() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let proxy = Proxy::start(collector.port()).await.expect("a proxy");
    proxy.black_hole();
    let plan = traced(&fixture, &proxy.url_for(&collector)).variable("OTEL_BSP_MAX_QUEUE_SIZE", 42);
    let mut worker = plan.set("WORKER_STOP_DEADLINE_MS", 3_000).start();
    for order in 1..=100 {
        add(&fixture, order, &[&trace(order, "01").1]).await;
    }
    fixture.settled().await;
    worker.says("there are more traces than can be sent, so some orders have no trace").await;
    assert_eq!(fixture.orders().await.len(), 100);

    let begun = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().await.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    worker.says("the last traces were not sent before the process ended").await;
    assert!(
        !worker.log().contains("not sent before the process ended spans=0"),
        "what is on its way is not sent: {}",
        worker.log()
    );
    drop(worker);

    // There is one batch of 200 orders, and the queue has room for the spans of about 10.
    for order in 101..=300 {
        add(&fixture, order, &[&trace(order, "01").1]).await;
    }
    let worker = traced(&fixture, &collector.url()).variable("OTEL_BSP_MAX_QUEUE_SIZE", 42).start();
    worker.says("worker started").await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let spans = collector.spans();
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert!((10..200).contains(&traces.len()), "{}", traces.len());
    for trace in traces {
        assert_eq!(spans.iter().filter(|span| span.trace == trace).count(), SPANS, "{trace}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_sent_at_the_end() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let worker = traced(&fixture, &collector.url()).variable("OTEL_BSP_SCHEDULE_DELAY", 3_600_000).start();
    let (trace, traceparent) = trace(1, "01");
    add(&fixture, 1, &[&traceparent]).await;
    fixture.settled().await;
    assert_eq!(collector.spans(), []);
    assert!(worker.stop().await.success());
    assert_eq!(of_trace(&collector, &trace).len(), SPANS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_for_the_collector_reaches_it_and_stands_nowhere_else() {
    let (fixture, collector) = (fixture_on_sale().await, Collector::start().await.expect("a collector"));
    let (name, value) = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush");
    let plan = traced(&fixture, &collector.url()).variable(name, value).variable("RUST_LOG", "trace");
    let mut worker = plan.start();
    add(&fixture, 1, &[&trace(1, "01").1]).await;
    until("the trace has come", || async { !collector.spans().is_empty() }).await;
    assert_eq!(collector.authorizations()[0].as_deref(), Some("Bearer hush"));
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().await.success());
    assert!(!worker.log().contains("hush"), "{}", worker.log());
    let config = program().env(name, value).args(["config", "--json"]).output().expect("the program runs");
    assert!(config.status.success());
    assert!(!String::from_utf8_lossy(&config.stdout).contains("hush"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_at_the_start() {
    let fixture = fixture_on_sale().await;
    for (name, value, complaint) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf only"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "must be one of always_on"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no address", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ] {
        let mut worker = traced(&fixture, "http://127.0.0.1:4318").variable(name, value).start();
        assert_eq!(worker.ended().await.code(), Some(2), "{name}");
        worker.says(complaint).await;
    }
    for (name, value) in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
        let worker = traced(&fixture, "no address").variable(name, value).start();
        worker.says("worker started").await;
        assert!(!worker.log().contains("traces of orders are sent"));
        assert!(worker.stop().await.success());
    }
    let admitted = fixture.tidegate(&["admit", "--voucher", "7", "--user", "1", "--traceparent", "00-1-2-3"]);
    assert_eq!(admitted.status.code(), Some(2), "{admitted:?}");
    assert!(
        fixture.tidegate(&["admit", "--voucher", "7", "--user", "1", "--traceparent", ""]).status.success()
    );
}

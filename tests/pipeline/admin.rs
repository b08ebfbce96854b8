//! Tests of a worker's pages over HTTP: liveness, readiness and metrics, in outages, with many clients and without
//! permission.

use std::{
    collections::BTreeMap,
    io::Write,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use nix::sys::signal::Signal;
use tidegate_lab::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::sleep,
};

use crate::{
    browser::{Page, address_of, ask, get, until_page},
    catalog::{ALL, Metric, MetricKind},
    fixture::{Fixture, Worker, WorkerPlan, rush::PLENTY, rush::SHORT, tokens::token_entry, until},
    program::Program,
};

const TOKEN: &str = "0123456789abcdef-not-a-secret";

/// A worker that quickly notices the begin and the end of an outage.
fn impatient(fixture: &Fixture) -> WorkerPlan {
    let plan =
        fixture.worker("w").set("WORKER_LANES", 2).set("WORKER_BATCH", 50).set("WORKER_BACKOFF_MAX_MS", 300);
    let plan = plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 1_200);
    plan.set("MYSQL_ACQUIRE_TIMEOUT_MS", 500).set("REDIS_COMMAND_TIMEOUT_MS", 1_000)
}

async fn samples(worker: &Worker) -> BTreeMap<String, f64> {
    get(worker, "/metrics").await.samples()
}

/// Waits until a sample has this value.
async fn until_sample(worker: &Worker, name: &str, value: f64) {
    until(&format!("{name} is {value}"), || async { samples(worker).await.get(name) == Some(&value) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_what_was_written() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").set("WORKER_LANES", 2).start();
    fixture.rush(1_000, 400).await;
    fixture.add_poison().await;
    fixture.settled().await;
    fixture.invariants().await;

    let dead = fixture.dead().await.len();
    until("all is counted", || async {
        let samples = samples(&worker).await;
        let sum = |name: &str| -> f64 {
            samples.iter().filter(|(sample, _)| sample.starts_with(name)).map(|(_, value)| value).sum()
        };
        sum("tidegate_entries_acknowledged_total") + sum("tidegate_entries_buried_total") == 402.0
    })
    .await;
    let rows = fixture.orders().await;
    let refusals: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM tidegate_refusal")
        .fetch_one(&fixture.pool)
        .await
        .expect("MySQL answers");
    // Gathered values may be 2 s old.
    until_sample(&worker, "tidegate_dead_letters", as_f64(dead)).await;
    let samples = samples(&worker).await;
    let is = |name: &str, expected: f64| assert_eq!(samples.get(name), Some(&expected), "{name}");
    is("tidegate_orders_created_total", as_f64(rows.len()));
    let refused = |reason: &str| samples[&format!("tidegate_orders_refused_total{{reason=\"{reason}\"}}")];
    assert!(refused("user_has_order") >= 40.0, "{samples:#?}");
    assert_eq!(refused("user_has_order") + refused("out_of_stock"), refusals as f64);
    is("tidegate_entries_buried_total{reason=\"bad_value\"}", 1.0);
    is("tidegate_entries_buried_total{reason=\"unknown_voucher\"}", 1.0);
    is("tidegate_entries_buried_total{reason=\"id_taken\"}", 0.0);
    is("tidegate_stream_entries_added_total", 402.0);
    is("tidegate_stream_entries", 402.0);
    is("tidegate_stream_pending_entries", 0.0);
    is("tidegate_stream_oldest_undelivered_age_seconds", 0.0);
    is("tidegate_stream_consumers{process=\"alive\"}", 2.0);
    is("tidegate_batch_entries_sum", 402.0);
    assert!(samples["tidegate_stage_duration_seconds_count{stage=\"write\"}"] >= 1.0);
    for voucher in [PLENTY, SHORT] {
        let stock =
            |store| format!("tidegate_voucher_stock_units{{voucher=\"{voucher}\",store=\"{store}\"}}");
        is(&stock("mysql"), fixture.mysql_stock(voucher).await as f64);
        is(&stock("redis"), fixture.redis_stock(voucher).await.expect("a stock") as f64);
    }
    assert!(worker.stop().await.success());
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_are_those_of_the_catalog_and_prometheus_finds_no_fault_with_them() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let limit = "limit set --voucher 3 --name all --window sale --orders 1 --yes";
    let program =
        Program::with_flags(&["--redis-url", &fixture.redis.url(), "--mysql-url", &fixture.mysql.url()]);
    program.run("voucher load --voucher 3 --stock 10").expect(0);
    program.run(limit).expect(0);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1);
    let worker = worker.set("WEBHOOKS", fixture.webhooks(&[("shop", "http://localhost:9/")])).start();
    fixture.rush(1_000, 100).await;
    fixture.settled().await;
    until_page(&worker, "/metrics", 200, "tidegate_voucher_stock_units{").await;
    until_page(&worker, "/metrics", 200, "tidegate_voucher_memory_bytes{").await;
    until_page(&worker, "/metrics", 200, "tidegate_webhook_pending{").await;
    let page = get(&worker, "/metrics").await;
    assert_eq!(page.content_type, "text/plain; version=0.0.4");
    for metric in ALL {
        assert_described(&page, metric);
    }
    let described = page.text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(described, ALL.len(), "nothing is shown that is not in the catalog:\n{}", page.text);
    for sample in page.samples().keys() {
        assert_labelled(sample);
    }

    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed (crates/tidegate-lab/scripts/install-servers.sh)");
    check.stdin.take().expect("a pipe").write_all(page.text.as_bytes()).expect("promtool reads");
    let check = check.wait_with_output().expect("promtool ends");
    let said = [check.stdout, check.stderr].concat();
    assert!(check.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

fn assert_described(page: &Page, metric: &Metric) {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let lines = format!("# HELP {0} {1}\n# TYPE {0} {kind}\n", metric.name, metric.help);
    assert!(page.text.contains(&lines), "{lines}is missing in\n{}", page.text);
}

fn assert_labelled(sample: &str) {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
    let is_of = |metric: &&Metric| {
        let part = name.strip_prefix(metric.name);
        let parts: &[&str] =
            if metric.kind == MetricKind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        part.is_some_and(|part| parts.contains(&part))
    };
    let metric = ALL.iter().find(is_of).unwrap_or_else(|| panic!("{sample} is not in the catalog"));
    let named = labels.split("\",").filter_map(|label| Some(label.split_once("=\"")?.0));
    let named: Vec<&str> = named.filter(|label| *label != "le").collect();
    assert_eq!(named, metric.labels, "{sample}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_is_what_the_command_says_and_what_each_lane_does() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").set("WORKER_LANES", 3).start();
    fixture.rush(1_000, 100).await;
    fixture.settled().await;
    let command =
        Program::with_flags(&["--redis-url", &fixture.redis.url(), "--mysql-url", &fixture.mysql.url()]);
    let mut told = command.run("status --json").expect(0).json();
    let mut page = get(&worker, "/status").await.json();
    let lanes = page["worker"]["lanes"].as_array().expect("lanes").clone();
    let names: Vec<&str> = lanes.iter().filter_map(|lane| lane["consumer"].as_str()).collect();
    assert_eq!(names, ["w-0", "w-1", "w-2"]);
    assert!(lanes.iter().all(|lane| lane["turns"].as_u64() > Some(0) && lane["is_stuck"] == false), "{page}");
    assert_eq!((&page["worker"]["phase"], &page["worker"]["name"]), (&"running".into(), &"w".into()));
    assert_eq!(page["worker"]["orders"]["created"], fixture.orders().await.len());
    page.as_object_mut().expect("an object").remove("worker");
    for seen in [&mut told, &mut page] {
        // The idle times differ, because they were read at different moments.
        seen["stream"]["consumers"].as_array_mut().expect("consumers").iter_mut().for_each(|consumer| {
            consumer["idle_s"].take();
        });
    }
    assert_eq!(page, told);
    assert_eq!(get(&worker, "/").await.status, 200);
    assert_eq!(get(&worker, "/nowhere").await.status, 404);
    let address = address_of(&worker).await;
    assert_eq!(ask(Method::POST, address, "/livez", None).await.status, 405);
    let head = ask(Method::HEAD, address, "/readyz", None).await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
}

/// Checks the pages during an outage: the worker is alive, not ready, names the reason, and can be scraped. `created`
/// is the number of orders that it has created.
async fn is_away(worker: &Worker, store: &str, created: f64) {
    let label = store.to_lowercase();
    until_page(worker, "/readyz", 503, store).await;
    until_page(worker, "/readyz", 503, "the worker has read nothing for").await;
    until_sample(worker, &format!("tidegate_gather_success{{store=\"{label}\"}}"), 0.0).await;
    let begun = Instant::now();
    let page = get(worker, "/metrics").await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let samples = page.samples();
    assert_eq!(samples["tidegate_orders_created_total"], created, "what the worker knows itself is there");
    assert_eq!(samples[&format!("tidegate_breaker_open{{store=\"{label}\"}}")], 1.0);
    assert!(samples[&format!("tidegate_gather_failures_total{{store=\"{label}\"}}")] >= 1.0);
    assert_eq!(samples["tidegate_lanes{activity=\"waiting_for_stores\"}"], 2.0);
    let of_store = if store == "MySQL" { "tidegate_voucher_stock_units" } else { "tidegate_stream_" };
    assert!(!samples.keys().any(|name| name.starts_with(of_store)), "{}", page.text);
    let status = get(worker, "/status").await.json();
    assert_eq!(status["worker"]["breaker"]["store"], store);
    assert!(!status["errors"].as_array().expect("errors").is_empty(), "{status}");
    assert_eq!(get(worker, "/livez").await.status, 200, "an outage is no reason to restart a worker");
}

async fn is_back(fixture: &Fixture, worker: &Worker, store: &str) {
    let label = store.to_lowercase();
    until_page(worker, "/readyz", 200, "ready").await;
    until_sample(worker, &format!("tidegate_gather_success{{store=\"{label}\"}}"), 1.0).await;
    let samples = samples(worker).await;
    assert_eq!(samples[&format!("tidegate_breaker_open{{store=\"{label}\"}}")], 0.0);
    assert_eq!(samples[&format!("tidegate_outages_total{{store=\"{label}\"}}")], 1.0);
    assert!(samples.keys().any(|name| name.starts_with("tidegate_voucher_stock_units")));
    fixture.rush(2_000, 50).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert_eq!(get(worker, "/livez").await.status, 200);
}

async fn written_before(fixture: &Fixture, worker: &Worker) -> f64 {
    fixture.open_sale().await;
    fixture.rush(1_000, 50).await;
    fixture.settled().await;
    until_page(worker, "/readyz", 200, "ready").await;
    assert_eq!(get(worker, "/livez").await.status, 200);
    let written = as_f64(fixture.orders().await.len());
    until_sample(worker, "tidegate_orders_created_total", written).await;
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_that_says_nothing_makes_a_worker_unready_and_not_dead() {
    let fixture = Fixture::with_own_mysql().await;
    // This is shorter than the outage: a lane that waits for a store is not stuck, however long it waits.
    let worker = impatient(&fixture).set("ADMIN_STUCK_AFTER_MS", 3_000).start();
    let created = written_before(&fixture, &worker).await;
    fixture.mysql.stop().expect("MySQL is stopped");
    fixture.plain_rush(3_000, 100).await;
    is_away(&worker, "MySQL", created).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(get(&worker, "/livez").await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fixture.mysql.cont().expect("MySQL goes on");
    is_back(&fixture, &worker, "MySQL").await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_looks_waits_for_a_silent_redis_once_and_not_for_each_question() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    until_page(&worker, "/readyz", 200, "ready").await;
    fixture.redis.stop().expect("Redis is stopped");
    let begun = Instant::now();
    let samples = samples(&worker).await;
    let took = begun.elapsed();
    fixture.redis.cont().expect("Redis goes on");
    assert_eq!(samples["tidegate_gather_success{store=\"redis\"}"], 0.0);
    assert_eq!(samples["tidegate_gather_success{store=\"mysql\"}"], 1.0);
    assert!(took < Duration::from_millis(3_500), "{took:?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lane_waits_for_a_connection_over_which_somebody_looks() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let plan = fixture.worker("w").set("WORKER_LANES", 1).set("MYSQL_URL", proxy.url_for(&fixture.mysql));
    let worker = plan.set("MYSQL_ACQUIRE_TIMEOUT_MS", 1_000).start();
    until_page(&worker, "/readyz", 200, "ready").await;
    // The proxy holds as many lookups as the worker has connections besides those of its lane.
    let looks = proxy.hold_when("ORDER BY voucher_id DESC");
    let order_looks = proxy.hold_when("777777");
    let rush = async {
        looks.reached().await.expect("somebody looks");
        order_looks.reached().await.expect("somebody looks for an order");
        fixture.rush(1_000, 50).await;
        fixture.settled().await;
    };
    // The worker gives up the lookup after 2 s.
    let (page, _, ()) =
        tokio::join!(get(&worker, "/metrics"), get(&worker, "/orders/777777?voucherId=1"), rush);
    assert_eq!(page.samples()["tidegate_gather_success{store=\"mysql\"}"], 0.0);
    assert!(!worker.log().contains("outage began"), "{}", worker.log());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_makes_a_worker_unready_and_not_dead() {
    let fixture = Fixture::open().await;
    let worker = impatient(&fixture).start();
    let created = written_before(&fixture, &worker).await;
    fixture.redis.kill9().expect("Redis is killed");
    is_away(&worker, "Redis", created).await;
    fixture.redis.restart().expect("Redis starts again");
    fixture.load_scripts().await;
    is_back(&fixture, &worker, "Redis").await;
    // There are two connections for commands and one for each lane. A lane counts a reconnect at its next turn.
    until("all connections are back", || async {
        samples(&worker).await["tidegate_redis_reconnects_total"] >= 4.0
    })
    .await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_redis_is_alive_and_not_ready() {
    let fixture = Fixture::open().await;
    fixture.redis.kill9().expect("Redis is killed");
    let worker = fixture.worker("w").start();
    until_page(&worker, "/readyz", 503, "starting").await;
    assert_eq!(get(&worker, "/livez").await.status, 200);
    let page = get(&worker, "/metrics").await;
    assert_eq!(page.samples()["tidegate_gather_success{store=\"redis\"}"], 0.0);
    assert_eq!(get(&worker, "/status").await.json()["worker"]["phase"], "starting");
    fixture.redis.restart().expect("Redis starts");
    until_page(&worker, "/readyz", 200, "ready").await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_does_one_thing_for_too_long_is_named() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    // Redis receives the acknowledgement of the batch late, and the long timeout permits that.
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let settling = proxy.hold_when("XACK");
    let worker = impatient(&fixture).set("WORKER_LANES", 1).set("ADMIN_STUCK_AFTER_MS", 2_500);
    let worker = worker
        .set("REDIS_COMMAND_TIMEOUT_MS", 30_000)
        .set("REDIS_URL", proxy.url_for(&fixture.redis))
        .start();
    fixture.plain_rush(1_000, 40).await;
    settling.reached().await.expect("a batch is in progress");
    until_page(&worker, "/livez", 503, "lane w-0 has had the activity settling for ").await;
    until_sample(&worker, "tidegate_lanes_stuck", 1.0).await;
    settling.release();
    until_page(&worker, "/livez", 200, "alive").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_nobody_can_look_at_tells_of_its_lanes_when_it_is_asked_by_a_signal() {
    let fixture = Fixture::with_own_mysql().await;
    let worker = fixture.worker("w").set("ADMIN_LISTEN", "off").start();
    worker.says("worker started").await;
    worker.signal(Signal::SIGUSR1);
    worker.says("state of a lane consumer=\"w-0\"").await;
    worker.says("state of a lane consumer=\"w-3\"").await;
    fixture.mysql.kill9().expect("MySQL is killed");
    fixture.add_order(1, 1, PLENTY).await;
    worker.says("outage began").await;
    until("it tells what its lanes wait for", || async {
        worker.signal(Signal::SIGUSR1);
        worker.log().contains("activity=\"waiting_for_stores\"")
    })
    .await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_sees_nothing() {
    let fixture = Fixture::open().await;
    let plan = fixture
        .worker("w")
        .set("ADMIN_LISTEN", "0.0.0.0:0")
        .set("TOKENS", token_entry("prometheus", "read", TOKEN));
    let worker = plan.set("LOG_LEVEL", "trace").start();
    let address = SocketAddr::from(([127, 0, 0, 1], address_of(&worker).await.port()));
    for path in ["/", "/metrics", "/status", "/orders/1", "/orders/1/events", "/nowhere"] {
        let longer = format!("Bearer {TOKEN}x");
        let shorter = format!("Bearer {}", &TOKEN[1..]);
        let other_scheme = format!("Basic {TOKEN}");
        for wrong in [None, Some("Bearer "), Some("B"), Some(&longer), Some(&shorter), Some(&other_scheme)] {
            let page = ask(Method::GET, address, path, wrong).await;
            assert_eq!(page.status, 401, "{path} with {wrong:?}: {page:?}");
            assert!(page.text.contains("setting `tokens`") && page.text.len() < 100, "{page:?}");
        }
    }
    let right = format!("Bearer {TOKEN}");
    let ready = async || ask(Method::GET, address, "/readyz", None).await.status == 200;
    until("it is ready", ready).await;
    assert_eq!(ask(Method::GET, address, "/metrics", Some(&right)).await.status, 200);
    assert!(!worker.log().contains(TOKEN), "{}", worker.log());
    assert!(worker.stop().await.success());
}

#[test]
fn everybody_may_look_only_on_loopback() {
    let program = Program::with_flags(&["--set", "admin.listen=0.0.0.0:8433"]);
    let run = program.run("worker").expect(2);
    assert!(run.stderr.contains("[[tokens]] (TIDEGATE_TOKENS)"), "{run:?}");
    assert!(run.stderr.contains("openssl rand -hex 32"), "{run:?}");
    let run = Program::with_flags(&[
        "--set",
        "admin.listen=192.0.2.1:8433",
        "--set",
        &format!("tokens={}", token_entry("prometheus", "read", TOKEN)),
    ])
    .run("worker")
    .expect(3);
    assert!(run.stderr.contains("Failed to listen on 192.0.2.1:8433; check admin.listen"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_one_machine_do_not_stop_each_other_from_working() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let first = fixture.worker("first").start();
    let address = address_of(&first).await;
    let second = fixture.worker("second").set("ADMIN_LISTEN", address).start();
    second.says("another process has the admin address").await;
    second.says("worker started").await;
    assert!(first.stop().await.success());
    fixture.rush(1_000, 50).await;
    fixture.settled().await;
    assert_eq!(address_of(&second).await, address, "it takes the address once it is free");
    until_page(&second, "/readyz", 200, "ready").await;
    assert_eq!(get(&second, "/status").await.json()["worker"]["name"], "second");
    let silent = fixture.worker("silent").set("ADMIN_LISTEN", "off").start();
    silent.says("worker started").await;
    assert!(!silent.log().contains("admin server listens"));
    assert!(second.stop().await.success());
}

/// A client that connects, sends these bytes, waits for the end of the connection, and connects again.
async fn come_again_and_again(address: SocketAddr, says: &'static [u8]) {
    loop {
        if let Ok(mut stranger) = TcpStream::connect(address).await {
            let _ = stranger.write_all(says).await;
            let _ = stranger.read_to_end(&mut Vec::new()).await;
        }
        // Without this pause, 1,000 such clients would measure how fast this machine connects.
        sleep(Duration::from_secs(1)).await;
    }
}

/// Requests a page. False: the connection was closed without an answer, as may happen to one client among many.
fn look(address: SocketAddr, path: &str) -> bool {
    let Ok(mut looker) = std::net::TcpStream::connect(address) else { return false };
    looker.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n");
    let mut answer = String::new();
    let answered = looker.write_all(request.as_bytes()).is_ok()
        && std::io::Read::read_to_string(&mut looker, &mut answer).is_ok()
        && !answer.is_empty();
    assert!(!answered || answer.starts_with("HTTP/1.1 200 OK"), "{path}: {answer:?}");
    answered
}

/// The longest request of a page within `during`, from a thread that does nothing else. A request that is closed
/// without an answer is repeated, as probes do, and its time counts.
async fn longest_look(address: SocketAddr, path: &'static str, during: Duration) -> Duration {
    let looks = move || {
        let (first, mut longest) = (Instant::now(), Duration::ZERO);
        while first.elapsed() < during {
            let began = Instant::now();
            assert!((0..3).any(|_| look(address, path)), "{path}: no answer, three times");
            longest = longest.max(began.elapsed());
        }
        longest
    };
    tokio::task::spawn_blocking(looks).await.expect("the looks succeed")
}

fn descriptors_of(worker: &Worker) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).expect("it lives").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_that_send_half_a_request_hold_up_neither_orders_nor_probes() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    until_page(&worker, "/readyz", 200, "ready").await;
    let address = address_of(&worker).await;
    let before = descriptors_of(&worker);
    let mut strangers = JoinSet::new();
    for _ in 0..1_000 {
        strangers.spawn(come_again_and_again(address, b"GET /livez HTTP/1.1\r\nHost: wor"));
    }
    fixture.rush(1_000, 200).await;
    let alive = longest_look(address, "/livez", Duration::from_secs(5)).await;
    let scraped = longest_look(address, "/metrics", Duration::from_secs(3)).await;
    let descriptors = descriptors_of(&worker);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(alive < Duration::from_secs(1), "/livez took {alive:?}");
    assert!(scraped < Duration::from_secs(3), "/metrics took {scraped:?}");
    assert!(descriptors < before + 40, "{before} descriptors, then {descriptors}");
    strangers.shutdown().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_does_not_wait_behind_those_who_wait_for_a_store() {
    let fixture = Fixture::open().await;
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let worker = impatient(&fixture).set("MYSQL_URL", proxy.url_for(&fixture.mysql)).start();
    until_page(&worker, "/readyz", 200, "ready").await;
    let address = address_of(&worker).await;
    proxy.black_hole();
    let mut lookers = JoinSet::new();
    for _ in 0..100 {
        lookers.spawn(come_again_and_again(address, b"GET /status HTTP/1.1\r\nHost: worker\r\n\r\n"));
    }
    let alive = longest_look(address, "/livez", Duration::from_secs(5)).await;
    assert!(alive < Duration::from_secs(1), "/livez took {alive:?}");
    lookers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_look_the_stores_are_asked_seldom() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let plan = fixture.worker("w").set("WORKER_LANES", 1).set("WORKER_BLOCK_MS", 1_000);
    let worker = plan.set("WORKER_CLAIM_EVERY_MS", 10_000).start();
    until_page(&worker, "/readyz", 200, "ready").await;
    let address = address_of(&worker).await;
    let mut lookers = JoinSet::new();
    let looks = Arc::new(AtomicUsize::new(0));
    for path in ["/livez", "/readyz", "/metrics", "/status"].repeat(4) {
        let looks = Arc::clone(&looks);
        lookers.spawn(async move {
            loop {
                assert_eq!(ask(Method::GET, address, path, None).await.status, 200);
                looks.fetch_add(1, Relaxed);
            }
        });
    }
    until("they look", || async { looks.load(Relaxed) > 100 }).await;
    let before = looks.load(Relaxed);
    let requests = fixture.requests_within(Duration::from_secs(4)).await;
    let looked = looks.load(Relaxed) - before;
    assert!(looked > 200 && requests < 100, "{looked} looks made {requests} requests to Redis");
    fixture.rush(1_000, 200).await;
    fixture.settled().await;
    fixture.invariants().await;
    lookers.shutdown().await;
    assert!(worker.stop().await.success());
}

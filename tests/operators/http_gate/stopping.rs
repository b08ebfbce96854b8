//! Tests of the gate's stop: the connections and requests that it still accepts, and its exit code.

use std::time::{Duration, Instant};

use hyper::Method;
use nix::sys::signal::Signal;
use serde_json::json;
use tidegate_lab::{Hold, Proxy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use super::{Answer, address_of, ask, post};
use crate::{
    fixture::{Fixture, Worker, WorkerPlan},
    order_event::operator,
};

/// A user whose number is in no other request.
const BUYER: i64 = 987_654_321;

/// A gate with a request to Redis that the proxy holds.
struct OnTheWay {
    // This field comes before the fixture, which holds the log, so that it is dropped first.
    gate: Worker,
    fixture: Fixture,
    hold: Hold,
    answer: JoinHandle<Answer>,
    _proxy: Proxy,
}

impl OnTheWay {
    async fn open(words: &[&str], set: impl Fn(WorkerPlan) -> WorkerPlan) -> Self {
        let fixture = Fixture::open().await;
        operator(&fixture).run("voucher load --voucher 7 --stock 10").expect(0);
        let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
        let plan = fixture.worker("w").set("REDIS_URL", proxy.url_for(&fixture.redis));
        let gate = set(plan.set("GATE_LISTEN", "127.0.0.1:0")).start_with(words);
        let address = address_of(&gate).await;
        if words.contains(&"worker") {
            gate.says("worker started").await;
        }
        let hold = proxy.hold_when(BUYER.to_string());
        let body = json!({ "voucherId": "7", "userId": BUYER });
        // A test in which the client loses its connection does not read this answer.
        let answer = tokio::spawn(async move { post(address, &body).await });
        hold.reached().await.expect("it is on its way");
        Self { gate, fixture, hold, answer, _proxy: proxy }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_stop_readyz_says_so_first_and_callers_are_let_in_until_that_is_heard() {
    let leave = Duration::from_secs(4);
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 10").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0");
    let mut gate = plan.set("GATE_LEAVE_MS", leave.as_millis()).start_as("gate");
    let address = address_of(&gate).await;
    let mut idle = TcpStream::connect(address).await.expect("the gate listens");
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: gate\r\n\r\n").await.expect("it is read");
    let mut alive = [0; 1024];
    let read = idle.read(&mut alive).await.expect("an answer");
    assert!(alive[..read].starts_with(b"HTTP/1.1 200"));

    let began = Instant::now();
    gate.signal(Signal::SIGTERM);
    gate.says("stopping").await;
    let ready = ask(address, Method::GET, "/readyz", &[], "").await;
    assert_eq!((ready.status, ready.text.as_str()), (503, "not ready\nstopping\n"));
    let order = post(address, &json!({ "voucherId": "7", "userId": "1" })).await;
    assert_eq!((order.status, order.headers["connection"].as_bytes()), (202, &b"close"[..]));
    // A client that has a connection still uses it, once.
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: gate\r\n\r\n").await.expect("it is read");
    let mut last = String::new();
    idle.read_to_string(&mut last).await.expect("an answer, and the end");
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("connection: close"), "{last}");
    assert_eq!(gate.ended().await.code(), Some(0));
    assert!(began.elapsed() >= leave, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_an_order_that_is_on_its_way() {
    let OnTheWay { mut gate, fixture: _site, hold, answer, _proxy } =
        OnTheWay::open(&["gate"], |plan| plan).await;
    gate.signal(Signal::SIGTERM);
    gate.says("stopping").await;
    hold.release();
    assert_eq!(answer.await.expect("an answer").status, 202);
    assert_eq!(gate.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_loses_its_name_answers_the_callers_of_its_gate_before_it_ends() {
    let OnTheWay { gate: mut both, fixture, hold, answer, _proxy } =
        OnTheWay::open(&["worker", "--gate"], |plan| plan).await;
    fixture.call("SET tidegate:worker:w somebody PX 60000").await;
    both.says("worker stopped").await;
    hold.release();
    assert_eq!(answer.await.expect("an answer").status, 202);
    assert_eq!(both.ended().await.code(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_whose_deadline_passes_with_a_caller_unanswered_ends_with_4() {
    let deadline = Duration::from_secs(1);
    for words in [&["gate"][..], &["worker", "--gate"]] {
        let short = |plan: WorkerPlan| plan.set("WORKER_STOP_DEADLINE_MS", deadline.as_millis());
        let OnTheWay { mut gate, fixture: _site, hold, answer, _proxy } = OnTheWay::open(words, short).await;
        let began = Instant::now();
        gate.signal(Signal::SIGTERM);
        assert_eq!(gate.ended().await.code(), Some(4), "{words:?}");
        assert!(began.elapsed() >= deadline, "{words:?}: {:?}", began.elapsed());
        assert!(answer.await.is_err(), "nobody told it anything");
        hold.cut();
    }
}

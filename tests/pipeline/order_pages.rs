//! Tests of the pages for the state of an order, which an application requests from a worker over HTTP: once, or as a
//! stream of events. However many clients ask, they delay neither orders nor probes nor a stop.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Empty};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tidegate_lab::Proxy;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use crate::{
    browser::{address_of, ask, get, until_page},
    fixture::{DEADLINE, Fixture, until},
};

/// Adds an event of an order of voucher 1. Its user has the number of the order.
async fn event(fixture: &Fixture, order: i64, word: &str, reference: &str) {
    let order = order.to_string();
    let owner = [("orderId", order.as_str()), ("userId", order.as_str()), ("voucherId", "1")];
    fixture.add(&[&[("event", word), ("ref", reference)], &owner[..]].concat()).await;
}

/// A stream of events, as a client reads it.
struct Listener {
    response: Response<Incoming>,
    text: String,
}

impl Listener {
    async fn open(address: SocketAddr, path: &str, last_event: Option<&str>) -> Self {
        let stream = TcpStream::connect(address).await.expect("the worker listens");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let mut request = Request::builder().uri(path).header("Host", "worker");
        if let Some(last) = last_event {
            request = request.header("Last-Event-ID", last);
        }
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        Self { response, text: String::new() }
    }

    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next event: its id, and its data. None: the stream has ended.
    async fn next(&mut self) -> Option<(String, Json)> {
        loop {
            if let Some((block, rest)) = self.text.clone().split_once("\n\n") {
                self.text = rest.to_owned();
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
                if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                    return Some((id.to_owned(), serde_json::from_str(data).expect("JSON")));
                }
                continue;
            }
            let frame = timeout(DEADLINE, self.response.frame()).await.expect("in time")?;
            let data = frame.expect("a part").into_data().expect("data");
            self.text += std::str::from_utf8(&data).expect("text");
        }
    }

    async fn state(&mut self) -> String {
        let (id, data) = self.next().await.expect("an event");
        assert_eq!(id, format!("{}-{}", data["step"], data["state"].as_str().expect("a word")));
        id
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_of_an_order_from_waiting_to_its_end_and_ends_with_it() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let (first, second) = (fixture.worker("first").start(), fixture.worker("second").start());
    until_page(&first, "/readyz", 200, "ready").await;
    // No worker reads, and both workers answer.
    fixture.tidegate(&["pause", "--workers", "--yes"]);
    until_page(&first, "/status", 200, "\"activity\": \"paused\"").await;
    until_page(&second, "/status", 200, "\"activity\": \"paused\"").await;
    fixture.admit(7, 7, 1, 2).await;
    let page = get(&first, "/orders/7?voucherId=1").await;
    assert_eq!((page.status, page.content_type.as_str()), (200, "application/json"), "{page:?}");
    let order = page.json();
    assert_eq!((&order["orderId"], &order["userId"]), (&"7".into(), &"7".into()), "{order:#}");
    assert_eq!((&order["state"], &order["quantity"]), (&"waiting".into(), &2.into()), "{order:#}");
    assert_eq!((&order["estimate"]["place"], &order["estimate"]["paused"]), (&"unread".into(), &true.into()));

    let mut told = Listener::open(address_of(&first).await, "/orders/7/events?voucherId=1", None).await;
    let mut elsewhere = Listener::open(address_of(&second).await, "/orders/7/events", None).await;
    assert_eq!(told.response.headers()["content-type"], "text/event-stream");
    assert_eq!((told.state().await, elsewhere.state().await), ("0-waiting".into(), "0-waiting".into()));
    fixture.tidegate(&["resume", "--workers", "--yes"]);
    assert_eq!((told.state().await, elsewhere.state().await), ("0-confirmed".into(), "0-confirmed".into()));
    for (word, is) in [("paid", "1-paid"), ("used", "2-used")] {
        event(&fixture, 7, word, word).await;
        assert_eq!((told.state().await, elsewhere.state().await), (is.into(), is.into()));
    }
    assert!(told.next().await.is_none() && elsewhere.next().await.is_none(), "nothing more is to come");

    let address = address_of(&first).await;
    assert_eq!(Listener::open(address, "/orders/7/events", Some("2-used")).await.status(), 204);
    let mut again = Listener::open(address, "/orders/7/events", Some("1-paid")).await;
    assert_eq!((again.status(), again.state().await), (200, "2-used".into()));
    // A late payment has to be refunded, so this state is not the last one.
    event(&fixture, 7, "paid", "late").await;
    until_page(&first, "/orders/7", 200, "\"refundsDue\":[{\"step\":3,\"ref\":\"late\"}]").await;
    let mut due = Listener::open(address, "/orders/7/events", Some("2-used")).await;
    assert_eq!(due.state().await, "3-used");
    event(&fixture, 7, "refunded", "back").await;
    assert_eq!(due.state().await, "4-used");
    assert!(first.stop().await.success() && second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_dead_orders_are_told_with_the_reason_and_unknown_ones_are_404() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let worker = fixture.worker("w").start();
    until_page(&worker, "/readyz", 200, "ready").await;
    fixture.admit(1, 1, 1, 1).await;
    // Otherwise, another lane might write the second order before the first.
    fixture.settled().await;
    fixture.add_order(2, 1, 1).await;
    fixture.add_order(3, 1, 99).await;
    fixture.settled().await;
    let address = address_of(&worker).await;
    for (order, state, reason) in [(2, "refused", "user_has_order"), (3, "dead", "unknown_voucher")] {
        let page = get(&worker, &format!("/orders/{order}")).await.json();
        assert_eq!((&page["state"], &page["reason"]), (&state.into(), &reason.into()), "{page:#}");
        let mut told = Listener::open(address, &format!("/orders/{order}/events"), None).await;
        assert_eq!(told.state().await, format!("0-{state}"));
        assert!(told.next().await.is_none());
    }
    let page = get(&worker, "/orders/999?voucherId=1").await;
    assert_eq!((page.status, &page.json()["state"]), (404, &"unknown".into()), "{page:?}");
    for path in [
        "/orders/",
        "/orders/x",
        "/orders/0",
        "/orders/1?voucherId=x",
        "/orders/1/events/2",
        "/orders/-1/events",
    ] {
        let page = get(&worker, path).await;
        assert_eq!(page.status, 400, "{path}: {page:?}");
        assert!(page.json()["error"].is_string(), "{path}: {page:?}");
    }
    assert_eq!(ask(Method::POST, address, "/orders/1", None).await.status, 405);

    // A client may ask before the order exists.
    let mut early = Listener::open(address, "/orders/50/events", None).await;
    assert_eq!(early.state().await, "0-unknown");
    fixture.admit(50, 50, 1, 1).await;
    let mut states = vec![early.state().await];
    if states == ["0-waiting"] {
        states.push(early.state().await);
    }
    assert_eq!(states.last().map(String::as_str), Some("0-confirmed"), "{states:?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_streams_holds_up_neither_probes_nor_orders_nor_a_stop() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    until_page(&worker, "/readyz", 200, "ready").await;
    let address = address_of(&worker).await;
    let mut open = Vec::new();
    let mut refused = 0;
    for order in 1..=160 {
        let path = format!("/orders/{order}/events?voucherId=1");
        let mut told = Listener::open(address, &path, None).await;
        if told.status() == 503 {
            refused += 1;
        } else {
            assert_eq!(told.state().await, "0-unknown");
            open.push(told);
        }
    }
    assert_eq!((open.len(), refused), (128, 32), "no more at once");
    let began = Instant::now();
    fixture.rush(1_000, 200).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    for path in ["/livez", "/readyz", "/metrics", "/orders/1001"] {
        let began = Instant::now();
        assert_eq!(get(&worker, path).await.status, 200, "{path}");
        assert!(began.elapsed() < Duration::from_secs(2), "{path} took {:?}", began.elapsed());
    }
    // Clients that disconnect make room.
    open.truncate(100);
    until("there is room again", || async {
        Listener::open(address, "/orders/1001/events", None).await.status() == 200
    })
    .await;
    let began = Instant::now();
    assert!(worker.stop().await.success());
    assert!(began.elapsed() < Duration::from_secs(5), "the stop took {:?}", began.elapsed());
    for mut told in open {
        while told.next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_streams_are_open_it_is_one_look_for_all_of_them() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(1, 1_000).await;
    let worker = fixture.worker("w").set("WORKER_LANES", 1).start();
    until_page(&worker, "/readyz", 200, "ready").await;
    for order in 1..=100 {
        fixture.admit(order, order, 1, 1).await;
    }
    fixture.settled().await;
    let address = address_of(&worker).await;
    let mut open = Vec::new();
    for order in 1..=100 {
        let mut told = Listener::open(address, &format!("/orders/{order}/events"), None).await;
        assert_eq!(told.state().await, "0-confirmed");
        open.push(told);
    }
    let questions = async || -> i64 {
        let (_, number): (String, String) = sqlx::query_as("SHOW GLOBAL STATUS LIKE 'Questions'")
            .fetch_one(&fixture.pool)
            .await
            .expect("MySQL answers");
        number.parse().expect("a number")
    };
    let (before, began) = (questions().await, Instant::now());
    event(&fixture, 100, "paid", "p").await;
    assert_eq!(open[99].state().await, "1-paid");
    let redis = fixture.requests_within(Duration::from_secs(2)).await;
    let (asked, seconds) = (questions().await - before, began.elapsed().as_secs_f64());
    assert!((asked as f64) < 60.0 * seconds, "{asked} questions to MySQL within {seconds} s");
    assert!(redis < 200, "MySQL knows them all: {redis} requests to Redis");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_mysql_is_away_an_order_is_503_and_open_streams_go_on_when_it_is_back() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let plan =
        fixture.worker("w").set("MYSQL_URL", proxy.url_for(&fixture.mysql)).set("WORKER_BACKOFF_MAX_MS", 300);
    let plan = plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 1_200).set("MYSQL_ACQUIRE_TIMEOUT_MS", 500);
    let worker = plan.start();
    until_page(&worker, "/readyz", 200, "ready").await;
    fixture.admit(1, 1, 1, 1).await;
    fixture.settled().await;
    let address = address_of(&worker).await;
    let mut told = Listener::open(address, "/orders/1/events", None).await;
    assert_eq!(told.state().await, "0-confirmed");
    proxy.black_hole();
    until_page(&worker, "/orders/2?voucherId=1", 503, "MySQL").await;
    assert_eq!(Listener::open(address, "/orders/2/events", None).await.status(), 503);
    let mut askers = JoinSet::new();
    for _ in 0..28 {
        askers.spawn(async move {
            loop {
                let page = ask(Method::GET, address, "/orders/3?voucherId=1", None).await;
                assert_eq!(page.status, 503, "{page:?}");
                if page.text.contains("too many requests at the same time") {
                    return;
                }
            }
        });
    }
    timeout(DEADLINE, askers.join_next()).await.expect("in time").expect("an asker").expect("one is refused");
    assert_eq!(get(&worker, "/livez").await.status, 200);
    askers.shutdown().await;
    event(&fixture, 1, "paid", "p").await;
    proxy.pass();
    assert_eq!(told.state().await, "1-paid");
    fixture.settled().await;
    until_page(&worker, "/orders/1", 200, "\"paid\"").await;
    assert!(worker.stop().await.success());
}

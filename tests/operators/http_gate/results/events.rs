//! Tests of results as server-sent events, and of many followers at the same time.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use hyper::Method;
use serde_json::Value as Json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{RESULTS, Reader, gate, kind, order_of, publish, trim};
use crate::{
    fixture::{Fixture, until},
    http_gate::{address_of, ask, told},
};

/// A client of server-sent events.
pub struct Listener {
    stream: TcpStream,
    text: String,
    pub last_id: String,
}

/// An event: its name, or "message", and its data.
type Event = (String, Json);

impl Listener {
    pub async fn open(address: SocketAddr, path: &str, last_id: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("the gate listens");
        let resume = if last_id.is_empty() { String::new() } else { format!("Last-Event-ID: {last_id}\r\n") };
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nAccept: text/event-stream\r\n{resume}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("it is read");
        Self { stream, text: String::new(), last_id: last_id.to_owned() }
    }

    /// The next event with data, or the next comment about partitions that cannot be read.
    pub async fn next(&mut self) -> Event {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let lines = || block.lines().map(|line| line.rsplit_once('\r').map_or(line, |it| it.0));
                let field = |name: &str| {
                    lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
                };
                let away = field("").and_then(|it| it.strip_prefix("away ").map(str::to_owned));
                let event = field("event").or(away.as_ref().map(|_| "away".to_owned()));
                let (id, data) = (field("id"), field("data").or(away));
                self.text = rest.to_owned();
                self.last_id = id.unwrap_or_else(|| self.last_id.clone());
                if let Some(data) = data {
                    let data = serde_json::from_str(&data).expect("JSON");
                    return (event.unwrap_or_else(|| "message".to_owned()), data);
                }
            }
            let mut some = [0; 16 << 10];
            let read = timeout(Duration::from_secs(20), self.stream.read(&mut some)).await;
            let bytes = read.expect("in time").expect("the gate writes");
            assert!(bytes > 0, "the stream ends after {}", self.text);
            // The sizes of chunks have lines of their own, which belong to no field.
            self.text.push_str(&String::from_utf8_lossy(&some[..bytes]).replace("\r\n", "\n"));
        }
    }

    /// Waits until the gate ends the stream.
    pub async fn ended(&mut self) {
        let mut rest = Vec::new();
        let read = timeout(Duration::from_secs(20), self.stream.read_to_end(&mut rest)).await;
        let _bytes = read.expect("in time").expect("the gate ends the stream");
        assert!(String::from_utf8_lossy(&rest).contains(": the server stops"), "{rest:?}");
    }

    pub async fn orders(&mut self, count: usize) -> Vec<i64> {
        let mut orders = Vec::new();
        for _ in 0..count {
            let (name, data) = self.next().await;
            assert_eq!(name, "message", "{data}");
            orders.push(order_of(&data));
        }
        orders
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_resume_after_the_last_one_and_tell_a_gap() {
    let fixture = Fixture::open().await;
    let gate = gate(&fixture);
    let address = address_of(&gate).await;
    publish(&fixture, RESULTS, 1..=5, "confirmed").await;
    let mut first = Listener::open(address, "/results", "").await;
    assert_eq!(first.orders(3).await, [1, 2, 3]);
    let resume = first.last_id.clone();
    assert_eq!(first.orders(2).await, [4, 5]);
    publish(&fixture, RESULTS, [6], "refund_due").await;
    assert_eq!(first.orders(1).await, [6]);
    // The header wins over the parameter.
    let mut second = Listener::open(address, "/results?after=latest", &resume).await;
    assert_eq!(second.orders(3).await, [4, 5, 6]);
    let mut facts = Listener::open(address, "/results?kinds=fact", &resume).await;
    assert_eq!(facts.orders(1).await, [6]);

    trim(&fixture, 1).await;
    let mut late = Listener::open(address, "/results", &resume).await;
    let (name, data) = late.next().await;
    assert_eq!((name.as_str(), data["cursor"].as_str()), ("gap", Some(late.last_id.as_str())));
    assert_eq!(late.orders(1).await, [6], "the stream continues");
    publish(&fixture, RESULTS, [7], "confirmed").await;
    for listener in [&mut first, &mut second, &mut late] {
        assert_eq!(listener.orders(1).await, [7]);
    }
    let bad =
        ask(address, Method::GET, "/results", &[("Accept", "text/event-stream"), ("Last-Event-ID", "7")], "");
    assert_eq!(kind(&bad.await), told(400, "bad-question"));
    assert!(gate.stop().await.success(), "listeners do not hold up the stop");
}

/// Waits until this many clients follow the results.
async fn followed_by(address: SocketAddr, followers: usize) {
    let line = format!("tidegate_gate_result_followers {followers}\n");
    until("this many follow", || async {
        ask(address, Method::GET, "/metrics", &[], "").await.text.contains(&line)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_closes_its_connection_releases_its_place_at_once() {
    let fixture = Fixture::open().await;
    let gate = gate(&fixture);
    let address = address_of(&gate).await;
    let poll = "GET /results?wait=60 HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n";
    let events = "GET /results HTTP/1.1\r\nHost: gate\r\nAccept: text/event-stream\r\n\r\n";
    let follow = async |request: &str| {
        let mut stream = TcpStream::connect(address).await.expect("the gate listens");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        followed_by(address, 1).await;
        stream
    };
    let began = Instant::now();
    for request in [poll, events] {
        drop(follow(request).await);
        followed_by(address, 0).await;
        let reset = follow(request).await;
        reset.set_zero_linger().expect("the kernel resets the connection");
        drop(reset);
        followed_by(address, 0).await;
    }
    // A client that ends only its sending half gets its answer, without a wait.
    let mut half = follow(poll).await;
    half.shutdown().await.expect("the other half stays open");
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.expect("the answer comes whole");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#"{"results":[],"#), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(12), "a heartbeat is later: {:?}", began.elapsed());

    // If the client's machine has vanished, the kernel notices it by probes.
    let follower = follow(events).await;
    let ports = [address.port(), follower.local_addr().expect("an address").port()];
    let [own, other] = ports.map(|port| format!(":{port:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel tells");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1].ends_with(&own) && row[2].ends_with(&other)).expect("it is connected");
    assert!(row[5].starts_with("02:"), "the timer of probes runs: {row:?}");
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_followers_get_everything_and_share_one_reader() {
    const ALL: i64 = 2_000;
    let fixture = Fixture::open().await;
    let gate = gate(&fixture);
    let address = address_of(&gate).await;
    publish(&fixture, RESULTS, 1..=10, "confirmed").await;
    let follow = async |nth: usize| {
        let mut orders = Vec::new();
        if nth.is_multiple_of(2) {
            let mut listener = Listener::open(address, "/results", "").await;
            orders = listener.orders(ALL as usize).await;
        } else {
            let mut reader = Reader::new(address, "limit=300");
            while orders.len() < ALL as usize {
                orders.extend(reader.page("&wait=30").await.iter().map(order_of));
            }
        }
        assert_eq!(orders, (1..=ALL).collect::<Vec<_>>(), "follower {nth}");
    };
    let publishing = async {
        for hundred in 0..(ALL - 10) / 10 {
            publish(&fixture, RESULTS, hundred * 10 + 11..=hundred * 10 + 20, "confirmed").await;
        }
    };
    tokio::join!(join_all((0..10).map(follow)), publishing);
    let metrics = ask(address, Method::GET, "/metrics", &[], "").await.text;
    let reads = |kind: &str| -> i64 {
        let name = format!("tidegate_gate_result_reads_total{{kind=\"{kind}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).expect("the count");
        line.parse().expect("a number")
    };
    // Most results come one by one, and each follower would read each of them.
    assert!(reads("wait") > 0 && reads("wait") <= ALL + 100, "{} waits", reads("wait"));
    assert!(reads("page") < ALL, "{} pages", reads("page"));
    assert!(gate.stop().await.success());
}

//! Tests of hundreds of callers, and of callers that read no answers: the gate still serves the others.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hyper::Method;
use nix::sys::signal::Signal;
use serde_json::json;
use tidegate_lab::Proxy;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    time::sleep,
};

use super::{address_of, ask, post};
use crate::{
    fixture::{Fixture, Worker, until},
    order_event::operator,
};

/// A client that requests a hundred times more data than the kernel buffers, and reads none of it.
async fn takes_nothing(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2048).expect("a small one");
    let mut stream = socket.connect(address).await.expect("the gate listens");
    let asked = "GET /openapi.json HTTP/1.1\r\nHost: gate\r\n\r\n".repeat(1000);
    stream.write_all(asked.as_bytes()).await.expect("it is sent");
    let began = Instant::now();
    let mut before = 0;
    loop {
        sleep(Duration::from_millis(100)).await;
        let now = unsent(address, stream.local_addr().expect("an address"));
        if now > 0 && now == before {
            break;
        }
        before = now;
        assert!(began.elapsed() < Duration::from_secs(30), "the kernel takes more and more of its answers");
    }
    stream
}

/// The bytes that the kernel buffers for a client, by both addresses.
fn unsent(from: SocketAddr, to: SocketAddr) -> u64 {
    let (from, to) = (format!(":{:04X}", from.port()), format!(":{:04X}", to.port()));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel tells");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1].ends_with(&from) && row[2].ends_with(&to)).expect("it is connected");
    u64::from_str_radix(row[4].split(':').next().expect("a number"), 16).expect("a number")
}

/// The number of connections, without that of this request.
async fn others(address: SocketAddr) -> u64 {
    let page = ask(address, Method::GET, "/metrics", &[], "").await.text;
    let count = page.lines().find_map(|line| line.strip_prefix("tidegate_gate_connections "));
    count.expect("they are counted").parse::<u64>().expect("a number") - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_nothing_of_its_answers_gives_its_place_back_and_others_are_answered() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 10").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_READ_MS", 2000);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let stuck = takes_nothing(address).await;
    assert_eq!(post(address, &json!({ "voucherId": "7", "userId": "1" })).await.status, 202);
    until("its place is free", || async { others(address).await == 0 }).await;
    drop(stuck);
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_who_takes_nothing_until_the_deadline() {
    let fixture = Fixture::open().await;
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_READ_MS", 3000);
    let mut gate = plan.start_as("gate");
    let stuck = takes_nothing(address_of(&gate).await).await;
    let began = Instant::now();
    gate.signal(Signal::SIGTERM);
    assert_eq!(gate.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_never_take_the_files_that_the_workers_beside_the_gate_need() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 1000").expect(0);
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let plan = fixture.worker("w").set("REDIS_URL", proxy.url_for(&fixture.redis));
    let plan = plan.set("GATE_LISTEN", "127.0.0.1:0").set("GATE_READ_MS", 60_000);
    let both = plan.start_with_files(300, &["worker", "--gate"]);
    both.says("gate.connections exceeds the limit of open files").await;
    let address = address_of(&both).await;
    both.says("worker started").await;
    // There are more than twice as many orders as places.
    let orders = (1..=100)
        .map(async |user: i64| post(address, &json!({ "voucherId": "7", "userId": user })).await.status);
    assert!(join_all(orders).await.into_iter().all(|status| status == 202));
    until("they are written", || async { fixture.live_orders().await.len() == 100 }).await;

    // The clients connect and send no request. Then the workers need new connections.
    let idle = join_all((0..350).map(|_| TcpStream::connect(address))).await;
    assert!(idle.iter().all(Result::is_ok), "those without a place wait in the kernel");
    let places = 300 - 256;
    until("all places are taken", || async { sockets(&both, address) >= places }).await;
    proxy.cut_connections().await;
    for user in 101..=110 {
        operator(&fixture).run(&format!("admit --voucher 7 --user {user}")).expect(0);
    }
    until("they are written beside the flood", || async { fixture.live_orders().await.len() == 110 }).await;
    drop(idle);
    assert_eq!(post(address, &json!({ "voucherId": "7", "userId": "111" })).await.status, 202);
    assert!(both.stop().await.success());
}

/// The number of sockets that a process has open for its callers.
fn sockets(process: &Worker, address: SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel tells");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let inodes: Vec<String> = rows
        .filter(|row| row[1].ends_with(&port) && row[3] == "01")
        .map(|row| format!("socket:[{}]", row[9]))
        .collect();
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid())).expect("it is ours");
    let open = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    open.filter(|file| inodes.iter().any(|inode| file.as_os_str() == inode.as_str())).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_accepting_is_told_once_and_once_more_when_it_is_over() {
    const BEGAN: &str = "the gate cannot accept connections";
    const AGAIN: &str = "failed to accept a connection";
    const OVER: &str = "the gate accepts connections again";
    let fixture = Fixture::open().await;
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let soft = |files: &str| {
        let pid = gate.pid().to_string();
        let status = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={files}:")]).status();
        assert!(status.expect("prlimit is there").success());
    };
    soft("3");
    let waits = tokio::spawn(async move { ask(address, Method::GET, "/livez", &[], "").await.status });
    gate.says(BEGAN).await;
    until("it is tried again many times", || async { gate.log().matches(AGAIN).count() >= 3 }).await;
    soft("1000");
    assert_eq!(waits.await.expect("an answer"), 200);
    gate.says(OVER).await;
    let log = gate.log();
    assert_eq!((log.matches(BEGAN).count(), log.matches(OVER).count()), (1, 1), "{log}");
    assert!(gate.stop().await.success());
}

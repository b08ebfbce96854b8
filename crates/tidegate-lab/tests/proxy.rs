//! Tests of the lab's proxy.

mod polling;
mod redis_call;

use std::time::{Duration, Instant};

use polling::eventually;
use redis_call::call;
use sqlx::{Connection, Executor, MySqlConnection};
use tidegate_lab::{Endpoint, MysqlServer, Proxy, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const NIL: &str = "$-1\r\n";

async fn redis_behind_proxy() -> (RedisServer, Proxy) {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::start(redis.port()).await.unwrap();
    (redis, proxy)
}

/// A client that sends exactly these bytes.
struct Client(TcpStream);

impl Client {
    async fn connect(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap())
    }

    async fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).await.unwrap();
    }

    async fn expect(&mut self, reply: &str) {
        let mut got = vec![0; reply.len()];
        let read = tokio::time::timeout(Duration::from_secs(10), self.0.read_exact(&mut got)).await;
        read.expect("a reply in time").expect("a reply");
        assert_eq!(String::from_utf8_lossy(&got), reply);
    }

    async fn expect_end(&mut self) {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(10), self.0.read_to_end(&mut rest)).await;
        // Closing with unread bytes is a reset, which is an end, too.
        let _ = end.expect("an end in time");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

fn resp(words: &[&str]) -> String {
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulks}", words.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_lasts_until_pass() {
    let (redis, proxy) = redis_behind_proxy().await;
    let mut before = Client::connect(&proxy).await;
    before.send(&resp(&["PING"])).await;
    before.expect("+PONG\r\n").await;

    proxy.cut().await;
    before.expect_end().await;
    Client::connect(&proxy).await.expect_end().await;
    eventually("only the asking client is left", || {
        call(redis.port(), "CLIENT LIST").matches("addr=").count() == 2
    });

    proxy.pass();
    let mut after = Client::connect(&proxy).await;
    after.send(&resp(&["PING"])).await;
    after.expect("+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_spares_new_ones() {
    let (_redis, proxy) = redis_behind_proxy().await;
    let mut before = Client::connect(&proxy).await;
    before.send(&resp(&["PING"])).await;
    before.expect("+PONG\r\n").await;

    proxy.cut_connections().await;
    before.expect_end().await;
    let mut after = Client::connect(&proxy).await;
    after.send(&resp(&["PING"])).await;
    after.expect("+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_swallows_and_the_server_does_not_learn() {
    let (redis, proxy) = redis_behind_proxy().await;
    let mut present = Client::connect(&proxy).await;
    present.send(&resp(&["CLIENT", "SETNAME", "present"])).await;
    present.expect("+OK\r\n").await;

    proxy.black_hole();
    present.send(&resp(&["SET", "a", "1"])).await;
    let mut new = Client::connect(&proxy).await;
    new.send(&resp(&["SET", "b", "1"])).await;
    let sent = 2 * resp(&["SET", "a", "1"]).len() as u64;
    eventually("both requests are lost", || proxy.swallowed_bytes() == sent);
    assert!(call(redis.port(), "CLIENT LIST").contains("name=present"));

    proxy.pass();
    present.expect_end().await;
    new.expect_end().await;
    assert_eq!(call(redis.port(), "GET a"), NIL);
    assert_eq!(call(redis.port(), "GET b"), NIL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_is_felt_in_both_directions() {
    let (_redis, proxy) = redis_behind_proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.delay(Duration::from_millis(60));
    let begun = Instant::now();
    client.send(&resp(&["PING"])).await;
    client.expect("+PONG\r\n").await;
    assert!(begun.elapsed() >= Duration::from_millis(120));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_request_waits_while_others_pass() {
    let (redis, proxy) = redis_behind_proxy().await;
    let (mut held, mut other) = (Client::connect(&proxy).await, Client::connect(&proxy).await);
    let hold = proxy.hold_when("treasure");

    held.send(&(resp(&["SET", "before", "1"]) + &resp(&["SET", "treasure", "1"]) + &resp(&["PING"]))).await;
    hold.reached().await.unwrap();
    held.expect("+OK\r\n").await;
    assert_eq!(call(redis.port(), "GET treasure"), NIL);
    other.send(&resp(&["SET", "treasure", "2"])).await;
    other.expect("+OK\r\n").await;

    hold.release();
    held.expect("+OK\r\n+PONG\r\n").await;
    assert_eq!(call(redis.port(), "GET treasure"), "$1\r\n1\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_is_found_across_packets() {
    let (redis, proxy) = redis_behind_proxy().await;
    let mut client = Client::connect(&proxy).await;
    client.send(&resp(&["CLIENT", "SETNAME", "splitter"])).await;
    client.expect("+OK\r\n").await;
    let hold = proxy.hold_when("treasure");

    let request = resp(&["SET", "treasure", "1"]);
    let (first, second) = request.split_at(request.find("sure").unwrap());
    client.send(first).await;
    eventually("the server has the first half", || {
        let clients = call(redis.port(), "CLIENT LIST");
        clients.lines().any(|client| client.contains("name=splitter") && !client.contains(" qbuf=0 "))
    });
    client.send(second).await;
    hold.reached().await.unwrap();
    assert_eq!(call(redis.port(), "GET treasure"), NIL);

    hold.release();
    client.expect("+OK\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_client_had_sent_is_never_forwarded() {
    let (redis, proxy) = redis_behind_proxy().await;
    for _ in 0..50 {
        let mut client = Client::connect(&proxy).await;
        let hold = proxy.hold_when("treasure");
        client.send(&resp(&["SET", "treasure", "1"])).await;
        hold.reached().await.unwrap();
        drop(client);
        hold.release();
    }
    eventually("all their connections are closed", || {
        call(redis.port(), "CLIENT LIST").matches(" addr=").count() == 1
    });
    assert_eq!(call(redis.port(), "GET treasure"), NIL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_reply_means_executed_and_disconnected() {
    let (redis, proxy) = redis_behind_proxy().await;
    let mut client = Client::connect(&proxy).await;
    let dropped = proxy.drop_next_reply("counter");
    client.send(&resp(&["INCR", "counter"])).await;
    dropped.reached().await.unwrap();
    client.expect_end().await;
    assert_eq!(call(redis.port(), "GET counter"), "$1\r\n1\r\n");

    let mut next = Client::connect(&proxy).await;
    next.send(&resp(&["INCR", "counter"])).await;
    next.expect(":2\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_reply_is_that_of_its_own_request() {
    let (redis, proxy) = redis_behind_proxy().await;
    let mut client = Client::connect(&proxy).await;
    let hold = proxy.hold_reply_when("second");
    client
        .send(&(resp(&["BLPOP", "gate", "0"]) + &resp(&["INCR", "second"]) + &resp(&["INCR", "third"])))
        .await;
    eventually("the first request blocks", || call(redis.port(), "CLIENT LIST").contains("cmd=blpop"));
    assert!(!hold.is_reached());

    call(redis.port(), "RPUSH gate open");
    hold.reached().await.unwrap();
    client.expect("*2\r\n$4\r\ngate\r\n$4\r\nopen\r\n").await;
    assert_eq!(call(redis.port(), "GET second"), "$1\r\n1\r\n");

    hold.release();
    client.expect(":1\r\n:1\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_hold_lets_go() {
    let (_redis, proxy) = redis_behind_proxy().await;
    let mut client = Client::connect(&proxy).await;
    drop(proxy.hold_when("PING"));
    client.send(&resp(&["PING"])).await;
    client.expect("+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_can_be_held_and_its_reply_can_be_lost() {
    let mysql = MysqlServer::start().unwrap();
    let proxy = Proxy::start(mysql.port()).await.unwrap();
    let mut direct = MySqlConnection::connect(&mysql.url()).await.unwrap();
    direct.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY)").await.unwrap();
    let url = proxy.url_for(&mysql);
    assert_ne!(url, Endpoint::url(&mysql));

    let hold = proxy.hold_when("COMMIT");
    let writing = tokio::spawn(commit_one(url.clone(), 1));
    hold.reached().await.unwrap();
    assert_eq!(count_orders(&mut direct).await, 0);
    hold.release();
    writing.await.unwrap().unwrap();
    assert_eq!(count_orders(&mut direct).await, 1);

    let dropped = proxy.drop_next_reply("COMMIT");
    commit_one(url.clone(), 2).await.unwrap_err();
    dropped.reached().await.unwrap();
    assert_eq!(count_orders(&mut direct).await, 2);

    let hold = proxy.hold_reply_when("COMMIT");
    let writing = tokio::spawn(commit_one(url, 3));
    hold.reached().await.unwrap();
    assert_eq!(count_orders(&mut direct).await, 3);
    assert!(!writing.is_finished());
    hold.release();
    writing.await.unwrap().unwrap();
}

async fn commit_one(url: String, id: i64) -> sqlx::Result<()> {
    let mut client = MySqlConnection::connect(&url).await?;
    let mut transaction = client.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (?)").bind(id).execute(&mut *transaction).await?;
    transaction.commit().await
}

async fn count_orders(client: &mut MySqlConnection) -> i64 {
    sqlx::query_scalar("SELECT COUNT(*) FROM orders").fetch_one(client).await.unwrap()
}

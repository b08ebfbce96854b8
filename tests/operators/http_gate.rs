//! Tests of the gate over HTTP: requests and answers.

mod beside_worker;
mod callers;
mod connections;
mod events;
mod http_rules;
mod keys;
mod looks;
mod metrics;
mod refusals;
mod regions;
mod results;
mod rights;
mod shop;
mod sold_out;
mod stopping;
pub mod tls;
mod tokens;
mod tutorial;
mod vouchers;

use std::{net::SocketAddr, time::Duration};

use fred::interfaces::StreamsInterface;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_lab::{Proxy, RedisServer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    fixture::{Fixture, Worker, tokens::token_entry, until, worker_plan},
    order_event::operator,
};

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// The body, or null if it is no JSON.
    pub body: Value,
}

/// The address of a gate without TLS that has reached Redis.
pub async fn address_of(gate: &Worker) -> SocketAddr {
    let address = gate.gate_address().await;
    until("it has reached Redis", || async {
        ask(address, Method::GET, "/readyz", &[], "").await.status == 200
    })
    .await;
    address
}

pub async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let stream = TcpStream::connect(address).await.expect("the gate listens");
    ask_on(stream, method, path, headers, body).await.expect("an answer")
}

/// Sends a request on an open connection of any kind.
pub async fn ask_on<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> hyper::Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("Host", "gate");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let response = sender.send_request(request).await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    Ok(Answer { status, headers, text, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

pub async fn post(address: SocketAddr, body: &Value) -> Answer {
    ask(address, Method::POST, "/orders", &[("Content-Type", "application/json")], &body.to_string()).await
}

/// The status and the type of the problem that the gate answers.
pub async fn refused(address: SocketAddr, body: Value) -> (u16, String) {
    let answer = post(address, &body).await;
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{:#}", answer.body);
    assert_eq!(answer.body["status"], answer.status);
    let kind = answer.body["type"].as_str().expect("a type").to_owned();
    let page = ask(address, Method::GET, &kind, &[], "").await;
    assert_eq!(page.status, 200, "{kind} is explained");
    (answer.status, kind.trim_start_matches("/problems/").to_owned())
}

pub fn told(status: u16, kind: &str) -> (u16, String) {
    (status, kind.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_of_the_gate_is_told_by_a_status_and_a_problem_of_its_own() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let order = |voucher: i64, user: i64| json!({ "voucherId": voucher.to_string(), "userId": user });
    assert_eq!(refused(address, order(7, 1)).await, told(404, "no-such-sale"));
    program.run("voucher load --voucher 7 --stock 2").expect(0);
    let admitted = post(address, &order(7, 1)).await;
    assert_eq!(
        (admitted.status, &admitted.body["outcome"]),
        (202, &json!("admitted")),
        "{:#}",
        admitted.body
    );
    let id = admitted.body["orderId"].as_str().expect("a text").to_owned();
    let mut again = order(7, 1);
    again["orderId"] = json!(id);
    let again = post(address, &again).await;
    assert_eq!((again.status, &again.body["outcome"]), (202, &json!("admitted_before")));
    assert_eq!(refused(address, order(7, 1)).await, told(409, "second-order"));
    assert_eq!(
        refused(address, json!({ "voucherId": 7, "userId": 2, "quantity": 2 })).await,
        told(409, "too-few-left")
    );
    assert_eq!(
        refused(address, json!({ "voucherId": 7, "userId": 2, "orderId": id })).await,
        told(409, "id-taken")
    );
    let other = json!({ "voucherId": 7, "userId": 1, "quantity": 2, "orderId": id });
    assert_eq!(refused(address, other).await, told(409, "other-quantity"));
    program.run("pause --voucher 7 --yes").expect(0);
    let paused = post(address, &order(7, 3)).await;
    assert_eq!((paused.status, paused.headers["retry-after"].as_bytes()), (503, &b"1"[..]));
    program.run("voucher load --voucher 8 --stock 9 --begin 2037-01-01T00:00:00Z").expect(0);
    assert_eq!(refused(address, order(8, 1)).await, told(409, "not-begun"));

    program.run("voucher load --voucher 9 --stock 9").expect(0);
    program
        .run("limit set --voucher 9 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    program.run("limit set --voucher 9 --name fast --rate 1/1h --burst 2 --yes").expect(0);
    let limited =
        |user: i64, phone: &str| json!({ "voucherId": "9", "userId": user, "subjects": { "phone": phone } });
    assert_eq!(refused(address, order(9, 1)).await, told(422, "missing-subject"));
    assert_eq!(post(address, &limited(1, "a")).await.status, 202);
    let over = post(address, &limited(2, "a")).await;
    assert_eq!(
        (over.status, &over.body["limit"], &over.body["ordersLeft"]),
        (409, &json!("phones"), &json!(0))
    );
    assert!(over.body["opensAt"].is_string(), "{:#}", over.body);
    assert_eq!(post(address, &limited(2, "b")).await.status, 202);
    let fast = post(address, &limited(3, "c")).await;
    assert_eq!((fast.status, &fast.body["limit"]), (429, &json!("fast")), "{:#}", fast.body);
    let seconds: u64 = fast.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&seconds), "{seconds}");

    let worker = fixture.worker("w").start();
    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_told_its_place_and_nobody_is_held_up_by_who_sends_slowly() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 1000").expect(0);
    let secret = "0123456789abcdef";
    let gate = fixture
        .worker("gate")
        .set("GATE_LISTEN", "127.0.0.1:0")
        .set("TOKENS", token_entry("shop", "order", secret));
    let gate = gate.set("GATE_READ_MS", 1000).start_as("gate");
    let address = address_of(&gate).await;
    let bearer = format!("Bearer {secret}");
    let json_type = ("Content-Type", "application/json");
    let good = r#"{"voucherId":"7","userId":"1"}"#;
    let huge =
        format!(r#"{{"voucherId":"7","userId":"1","subjects":{{"phone":"{}"}}}}"#, "x".repeat(64 << 10));
    for (headers, method, path, body, status) in [
        (vec![json_type], Method::POST, "/orders", good, 401),
        (vec![json_type, ("Authorization", "Bearer 0123456789abcdeX")], Method::POST, "/orders", good, 401),
        (vec![("Authorization", bearer.as_str())], Method::POST, "/orders", good, 415),
        (vec![json_type, ("Authorization", &bearer)], Method::PUT, "/orders", "", 405),
        (vec![json_type, ("Authorization", &bearer)], Method::POST, "/order", good, 404),
        (vec![json_type, ("Authorization", &bearer)], Method::POST, "/orders", "{", 400),
        (vec![json_type, ("Authorization", &bearer)], Method::POST, "/orders", "{}", 422),
        (vec![json_type, ("Authorization", &bearer)], Method::POST, "/orders", &huge, 413),
        (vec![json_type, ("Authorization", &bearer)], Method::POST, "/orders", good, 202),
    ] {
        let answer = ask(address, method, path, &headers, body).await;
        assert_eq!(answer.status, status, "{path} {body:.60}: {:#}", answer.body);
    }
    let headers = [json_type, ("Authorization", bearer.as_str())];
    let wrong = ask(address, Method::POST, "/orders", &headers, r#"{"voucherId":"x"}"#).await.body;
    assert_eq!(wrong["errors"][0]["pointer"], "/voucherId", "{wrong:#}");
    assert_eq!(wrong["errors"][1]["pointer"], "/userId", "{wrong:#}");

    // Two hundred clients never finish their heads or bodies; other clients are answered meanwhile.
    let mut slow = Vec::new();
    for nth in 0..200 {
        let mut stream = TcpStream::connect(address).await.expect("the gate listens");
        let head = "POST /orders HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\n";
        let rest = format!("Authorization: {bearer}\r\nContent-Length: 30\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.expect("it is read");
        if nth % 2 == 0 {
            stream.write_all(rest.as_bytes()).await.expect("it is read");
        }
        slow.push(stream);
    }
    for user in 2..20 {
        let body = json!({ "voucherId": "7", "userId": user }).to_string();
        assert_eq!(ask(address, Method::POST, "/orders", &headers, &body).await.status, 202);
    }
    let ends = join_all(slow.iter_mut().map(async |stream| {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
        read.is_ok().then_some(answer)
    }));
    let ends = ends.await;
    assert!(ends.iter().all(Option::is_some), "the gate lets go of them");
    let late = ends.iter().flatten().filter(|answer| answer.starts_with(b"HTTP/1.1 408")).count();
    assert!(late >= 100, "{late}");
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_answer_asks_again_with_the_id_and_has_one_order() {
    let server = RedisServer::start().expect("a Redis");
    let proxy = Proxy::start(server.port()).await.expect("a proxy");
    let fixture = Fixture::open().await;
    let folder = tempfile::tempdir().expect("a folder");
    let plan = worker_plan(&proxy.url_for(&server), &fixture.mysql.url(), "gate", folder.path());
    let plan = plan.set("GATE_LISTEN", "127.0.0.1:0").set("REDIS_COMMAND_TIMEOUT_MS", 1000);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let client = tidegate_stream_client(&server).await;
    let _: () = fred::interfaces::KeysInterface::set(&client, "seckill:stock:7", 5, None, None, false)
        .await
        .expect("Redis answers");
    let order = json!({ "voucherId": "7", "userId": "1" });
    // After this order, the gate has loaded its scripts.
    assert_eq!(post(address, &json!({ "voucherId": "7", "userId": "9" })).await.status, 202);
    proxy.black_hole();
    until("it says that it is not ready", || async {
        ask(address, Method::GET, "/readyz", &[], "").await.status == 503
    })
    .await;
    let unsure = post(address, &order).await;
    assert_eq!((unsure.status, &unsure.body["type"]), (504, &json!("/problems/unsure")), "{:#}", unsure.body);
    let id = unsure.body["orderId"].as_str().expect("an id").to_owned();
    proxy.pass();
    let again = json!({ "voucherId": "7", "userId": "1", "orderId": id });
    until("it is admitted", || async { post(address, &again).await.status == 202 }).await;
    let entries: u64 = client.xlen("stream.orders").await.expect("Redis answers");
    assert_eq!(entries, 2, "one for each user");
    assert!(gate.stop().await.success());
}

async fn tidegate_stream_client(server: &RedisServer) -> fred::clients::Client {
    use fred::interfaces::ClientLike;
    let config = fred::types::config::Config::from_url(&server.url()).expect("a URL");
    let client = fred::clients::Client::new(config, None, None, None);
    client.init().await.expect("Redis answers");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gates_and_a_command_sell_no_unit_twice_and_a_stop_answers_who_is_on_the_way() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    let gates: Vec<Worker> = ["g1", "g2"]
        .map(|name| fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate"))
        .into();
    let (first, second) = (address_of(&gates[0]).await, address_of(&gates[1]).await);
    let asked = (1..=300).map(async |user: i64| {
        let address = if user % 2 == 0 { first } else { second };
        post(address, &json!({ "voucherId": "7", "userId": user })).await.status
    });
    let statuses = join_all(asked).await;
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(202), count(409)), (100, 200), "{statuses:?}");
    program.run("admit --voucher 7 --user 1000").expect(1);
    let entries: u64 = fixture.client.xlen("stream.orders").await.expect("Redis answers");
    assert_eq!(entries, 100);
    for gate in gates {
        assert!(gate.stop().await.success());
    }
}

//! Tests of the rules of RFC 9112 and RFC 9110 for servers, with requests sent byte by byte.

use std::{net::SocketAddr, time::Duration};

use tidegate_lab::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::address_of;
use crate::{
    fixture::{Fixture, worker_plan},
    order_event::operator,
};

const GOOD: &str = r#"{"voucherId":"7","userId":"1"}"#;

/// Sends these bytes, and reads until the gate closes the connection. The gate may close it before it has read all of
/// them.
async fn send(address: SocketAddr, bytes: &[u8], ends_its_half: bool) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the gate listens");
    let _sent = stream.write_all(bytes).await;
    if ends_its_half {
        stream.shutdown().await.expect("the other half stays open");
    }
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    read.expect("the gate answers at once and closes").expect("the answer comes whole");
    String::from_utf8(answer).expect("text")
}

fn request(line: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("{line}\r\n{headers}Connection: close\r\n\r\n{body}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_breaks_a_rule_of_http_is_refused_at_once() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 10").expect(0);
    // This time is longer than any test waits: a request that is refused at once does not wait for its body.
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_READ_MS", 60_000);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let post = "POST /orders HTTP/1.1";
    let json = "Content-Type: application/json";
    let length = format!("Content-Length: {}", GOOD.len());
    let large = "x".repeat(512 << 10);
    for (line, headers, body, expected) in [
        ("GET /livez HTTP/1.1", vec![], "", "400 bad-head"),
        ("GET /livez HTTP/1.1", vec!["Host: a", "Host: a"], "", "400 bad-head"),
        ("GET /livez HTTP/1.1", vec!["Host: a b"], "", "400 bad-head"),
        ("GET /livez HTTP/1.1", vec!["Host: user@a"], "", "400 bad-head"),
        ("GET /livez HTTP/1.1", vec!["Host: [::1]:8434"], "", "200 "),
        ("GET /livez HTTP/1.1", vec!["Host:"], "", "200 "),
        ("GET /livez HTTP/1.0", vec![], "", "200 "),
        (post, vec![json, &length], GOOD, "400 bad-head"),
        (
            post,
            vec!["Host: gate", json, &length, "Authorization: Bearer a", "Authorization: Bearer b"],
            GOOD,
            "400 bad-head",
        ),
        (post, vec!["Host: gate", json, &length, "Content-Encoding: gzip"], GOOD, "415 unknown-encoding"),
        (post, vec!["Host: gate", json, &length, "Content-Encoding: identity"], GOOD, "202 "),
        (post, vec!["Host: gate", json, "Content-Length: 16385"], "", "413 too-large"),
        (post, vec!["Host: gate", json, "Content-Length: 1000000000000"], "", "413 too-large"),
        // If the client sends the body nevertheless, it still gets the reason for the refusal.
        (post, vec!["Host: gate", json, "Content-Length: 524288"], &large, "413 too-large"),
    ] {
        let answer = send(address, request(line, &headers, body).as_bytes(), false).await;
        let (status, kind) = expected.split_once(' ').expect("a status and a kind");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} "))
                || answer.starts_with(&format!("HTTP/1.0 {status} ")),
            "{line} {headers:?}: {answer}"
        );
        assert!(kind.is_empty() || answer.contains(&format!("/problems/{kind}")), "{headers:?}: {answer}");
        assert_eq!(status == "415", answer.contains("accept-encoding: identity"), "{answer}");
    }
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_its_half_after_the_request_gets_its_answer() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 10").expect(0);
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let folder = tempfile::tempdir().expect("a folder");
    let plan = worker_plan(&proxy.url_for(&fixture.redis), &fixture.mysql.url(), "gate", folder.path());
    let gate = plan.set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    // The client closes its sending half long before Redis has answered.
    let hold = proxy.hold_when("seckill:journal:7");
    let length = format!("Content-Length: {}", GOOD.len());
    let headers = ["Host: gate", "Content-Type: application/json", &length];
    let asked = request("POST /orders HTTP/1.1", &headers, GOOD);
    let answered = tokio::spawn(async move { send(address, asked.as_bytes(), true).await });
    hold.reached().await.expect("the order is asked for");
    hold.release();
    let answer = answered.await.expect("it ends");
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert!(gate.stop().await.success());
}

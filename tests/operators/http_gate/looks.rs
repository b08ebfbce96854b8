//! Tests of the gate's page for the state of an order.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{address_of, ask, post, told};
use crate::{
    fixture::{Fixture, until},
    order_event::operator,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_asks_the_gate_what_became_of_the_order_that_it_admitted() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 2").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let admitted = post(address, &json!({ "voucherId": "7", "userId": "1" })).await;
    let place = admitted.headers["location"].to_str().expect("text").to_owned();
    let get = async |path: &str| ask(address, Method::GET, path, &[], "").await;
    let waiting = get(&place).await;
    assert_eq!((waiting.status, &waiting.body["state"]), (200, &json!("waiting")), "{:#}", waiting.body);
    assert_eq!(waiting.body["orderId"], admitted.body["orderId"]);

    // A client that listens receives the change.
    let mut listener = TcpStream::connect(address).await.expect("the gate listens");
    let (path, query) = place.split_once('?').expect("the voucher");
    let head = format!("GET {path}/events?{query} HTTP/1.1\r\nHost: gate\r\n\r\n");
    listener.write_all(head.as_bytes()).await.expect("it is read");
    let mut heard = String::new();
    let mut hear = async |what: &str| {
        let mut some = [0; 4096];
        while !heard.contains(what) {
            let read = tokio::time::timeout(Duration::from_secs(20), listener.read(&mut some)).await;
            let bytes = read.expect("in time").expect("the gate writes");
            assert!(bytes > 0, "the stream ends after {heard}");
            heard.push_str(&String::from_utf8_lossy(&some[..bytes]));
        }
    };
    hear("\"state\":\"waiting\"").await;
    let worker = fixture.worker("w").start();
    hear("\"state\":\"confirmed\"").await;
    until("it is confirmed", || async { get(&place).await.body["state"] == "confirmed" }).await;

    assert_eq!(get("/orders/4711").await.status, 404);
    for bad in ["/orders/x", "/orders/0", "/orders/1?voucherId=y"] {
        let answer = get(bad).await;
        let kind =
            answer.body["type"].as_str().unwrap_or_default().trim_start_matches("/problems/").to_owned();
        assert_eq!((answer.status, kind), told(400, "bad-question"), "{bad}");
    }
    assert_eq!(ask(address, Method::DELETE, &place, &[], "").await.status, 405);
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_location_of_an_order_leads_to_it_however_many_vouchers_and_orders_there_are() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    // Without the voucher, the search reads only the journals of the vouchers with the highest ids, and 500 entries.
    for voucher in 1..=18 {
        program.run(&format!("voucher load --voucher {voucher} --stock 2")).expect(0);
    }
    for order in 1..=600 {
        fixture.add_order(1_000_000 + order, order, 18).await;
    }
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let admitted = post(address, &json!({ "voucherId": "1", "userId": "1" })).await;
    let place = admitted.headers["location"].to_str().expect("text").to_owned();
    let found = ask(address, Method::GET, &place, &[], "").await;
    assert_eq!((found.status, &found.body["state"]), (200, &json!("waiting")), "{place}: {:#}", found.body);
    assert!(gate.stop().await.success());
}

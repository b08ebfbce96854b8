//! Requests that are sent again under an `Idempotency-Key`.

use std::net::SocketAddr;

use fred::interfaces::{KeysInterface, StreamsInterface};
use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};

use super::{Answer, address_of, ask};
use crate::{
    order_event::operator,
    site::{Site, Worker, until},
};

async fn post_under(address: SocketAddr, key: &str, body: &Value) -> Answer {
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
    ask(address, Method::POST, "/orders", &headers, &body.to_string()).await
}

/// Milliseconds for which each key is remembered.
async fn remembered_ms(site: &Site) -> Vec<i64> {
    let keys: Vec<String> = site.call("KEYS seckill:idempotency:*").await.convert().expect("keys");
    let pttl = async |key: String| site.client.pttl::<i64, _>(key).await.expect("Redis answers");
    join_all(keys.into_iter().map(pttl)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_under_its_key_is_the_same_order_at_any_gate() {
    let site = Site::open().await;
    let program = operator(&site);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 5 --yes").expect(0);
    let gates: Vec<Worker> =
        ["g1", "g2"].map(|name| site.worker(name).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate")).into();
    let addresses = [address_of(&gates[0]).await, address_of(&gates[1]).await];
    let order = json!({ "voucherId": "7", "userId": "1" });

    // Twenty times at once, at both gates: the user may have five orders, and has one.
    let answers = (0..20).map(|nth| post_under(addresses[nth % 2], "k-1", &order));
    let answers = join_all(answers).await;
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer.body["orderId"]).collect();
    assert!(answers.iter().all(|answer| answer.status == 202), "{:#}", answers[0].body);
    assert!(ids.iter().all(|id| **id == *ids[0]), "{ids:?}");
    let is_first = |answer: &&Answer| answer.body["outcome"] == "admitted";
    assert_eq!(answers.iter().filter(is_first).count(), 1);
    let location = answers[0].headers["location"].to_str().expect("text").to_owned();
    assert_eq!(location, format!("/orders/{}?voucher=7", ids[0].as_str().expect("text")));
    let entries: u64 = site.client.xlen("stream.orders").await.expect("Redis answers");
    assert_eq!(entries, 1);

    // In quotes, as the header has it, it is the same; with another body it is refused; another user's is another key.
    assert_eq!(post_under(addresses[1], "\"k-1\"", &order).await.body["orderId"], *ids[0]);
    let two = json!({ "voucherId": "7", "userId": "1", "quantity": 2 });
    let other = post_under(addresses[0], "k-1", &two).await;
    assert_eq!((other.status, &other.body["type"]), (422, &json!("/problems/other-request")));
    let another = post_under(addresses[0], "k-1", &json!({ "voucherId": "7", "userId": "2" })).await;
    assert_eq!((another.status, &another.body["outcome"]), (202, &json!("admitted")));
    let second = post_under(addresses[0], "k-2", &order).await;
    assert_eq!((second.status, &second.body["outcome"]), (202, &json!("admitted")));
    for (key, body) in
        [("a b", &order), ("", &order), ("k-3", &json!({ "voucherId": 7, "userId": 1, "orderId": 5 }))]
    {
        assert_eq!(post_under(addresses[0], key, body).await.status, 422, "{key:?} {body}");
    }
    let remembered = remembered_ms(&site).await;
    assert_eq!(remembered.len(), 3);
    assert!(remembered.iter().all(|ms| *ms > 23 * 3_600_000), "{remembered:?}");
    for gate in gates {
        assert!(gate.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_refused_order_is_forgotten_soon_and_kept_once_it_is_admitted() {
    let site = Site::open().await;
    let program = operator(&site);
    program.run("voucher load --voucher 7 --stock 1").expect(0);
    let gate = site.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let order = |user: i64| json!({ "voucherId": "7", "userId": user });
    let first = post_under(address, "first", &order(1)).await;
    assert_eq!(first.status, 202);
    assert_eq!(post_under(address, "late", &order(2)).await.status, 409);
    until("the refused one is forgotten soon", || async {
        let mut remembered = remembered_ms(&site).await;
        remembered.sort_unstable();
        remembered[0] <= 60_000 && remembered[1] > 23 * 3_600_000
    })
    .await;

    program.run("voucher add --voucher 7 --units 1 --yes").expect(0);
    let admitted = post_under(address, "late", &order(2)).await;
    assert_eq!((admitted.status, &admitted.body["outcome"]), (202, &json!("admitted")));
    let remembered = remembered_ms(&site).await;
    assert!(remembered.iter().all(|ms| *ms > 23 * 3_600_000), "{remembered:?}");
    assert!(gate.stop().await.success());
}

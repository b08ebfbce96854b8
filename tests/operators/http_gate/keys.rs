//! Tests of requests that are repeated with an `Idempotency-Key`.

use std::net::SocketAddr;

use fred::{
    interfaces::{ClientLike, KeysInterface, StreamsInterface},
    types::CustomCommand,
};
use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tidegate_lab::{Proxy, RedisServer};

use super::{Answer, address_of, ask};
use crate::{
    fixture::{Fixture, Worker, connect, until},
    order_event::operator,
};

/// The body of a user's request.
fn order(user: i64) -> Value {
    json!({ "voucherId": "7", "userId": user })
}

/// Buys for this many users, each with a key of its own: `k-1` and so on. Returns the order ids.
async fn buy(address: SocketAddr, users: i64) -> Vec<String> {
    let mut ids = Vec::new();
    for user in 1..=users {
        let asked = post_under(address, &format!("k-{user}"), &order(user)).await;
        assert_eq!(asked.status, 202, "{:#}", asked.body);
        ids.push(asked.body["orderId"].as_str().expect("text").to_owned());
    }
    ids
}

async fn post_under(address: SocketAddr, key: &str, body: &Value) -> Answer {
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
    ask(address, Method::POST, "/orders", &headers, &body.to_string()).await
}

/// The milliseconds for which Redis still keeps each key.
async fn remembered_ms(fixture: &Fixture) -> Vec<i64> {
    let keys: Vec<String> = fixture.call("KEYS seckill:idempotency:*").await.convert().expect("keys");
    let pttl = async |key: String| fixture.client.pttl::<i64, _>(key).await.expect("Redis answers");
    join_all(keys.into_iter().map(pttl)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_under_its_key_is_the_same_order_at_any_gate() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 5 --yes").expect(0);
    let gates: Vec<Worker> = ["g1", "g2"]
        .map(|name| fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate"))
        .into();
    let addresses = [address_of(&gates[0]).await, address_of(&gates[1]).await];
    let order = json!({ "voucherId": "7", "userId": "1" });

    // Twenty requests at once, at both gates: the user may have five orders, and gets one.
    let answers = (0..20).map(|nth| post_under(addresses[nth % 2], "k-1", &order));
    let answers = join_all(answers).await;
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer.body["orderId"]).collect();
    assert!(answers.iter().all(|answer| answer.status == 202), "{:#}", answers[0].body);
    assert!(ids.iter().all(|id| **id == *ids[0]), "{ids:?}");
    let is_first = |answer: &&Answer| answer.body["outcome"] == "admitted";
    assert_eq!(answers.iter().filter(is_first).count(), 1);
    let location = answers[0].headers["location"].to_str().expect("text").to_owned();
    assert_eq!(location, format!("/orders/{}?voucherId=7", ids[0].as_str().expect("text")));
    let entries: u64 = fixture.client.xlen("stream.orders").await.expect("Redis answers");
    assert_eq!(entries, 1);

    // A key in quotes, as the header defines it, is the same key. With another body, it is refused. The same key of
    // another user is another key.
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
    let remembered = remembered_ms(&fixture).await;
    assert_eq!(remembered.len(), 3);
    assert!(remembered.iter().all(|ms| *ms > 23 * 3_600_000), "{remembered:?}");
    for gate in gates {
        assert!(gate.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_refused_order_is_not_kept_until_the_order_is_admitted() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 1").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let first = post_under(address, "first", &order(1)).await;
    assert_eq!(first.status, 202);
    assert_eq!(post_under(address, "late", &order(2)).await.status, 409);
    assert_eq!(remembered_ms(&fixture).await.len(), 1, "a refusal takes no memory");

    program.run("voucher add --voucher 7 --units 1 --yes").expect(0);
    let admitted = post_under(address, "late", &order(2)).await;
    assert_eq!((admitted.status, &admitted.body["outcome"]), (202, &json!("admitted")));
    let remembered = remembered_ms(&fixture).await;
    assert_eq!(remembered.len(), 2);
    assert!(remembered.iter().all(|ms| *ms > 23 * 3_600_000), "{remembered:?}");
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsure_answer_names_the_order_of_its_key() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 5").expect(0);
    // There is no replica, so no order is ever confirmed.
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_WAIT_REPLICAS", 1);
    let gate = gate.set("GATE_WAIT_MS", 50).start_as("gate");
    let address = address_of(&gate).await;
    let first = post_under(address, "k", &order(1)).await;
    assert_eq!((first.status, &first.body["type"]), (504, &json!("/problems/unsure")));
    let again = post_under(address, "k", &order(1)).await;
    assert_eq!((again.status, &again.body["orderId"]), (504, &first.body["orderId"]));
    let id = first.body["orderId"].as_str().expect("an id");
    assert!(fixture.journal(7).await.contains_key(id), "{id} is in the journal");
    assert!(gate.stop().await.success());
}

/// Deletes an order of voucher 7 and its idempotency key from Redis, as a failover loses data that the promoted replica
/// had not received.
async fn lose(fixture: &Fixture, order: &str, user: &str, has_units: bool) {
    let keys: Vec<String> =
        fixture.call(&format!("KEYS seckill:idempotency:7:{user}:*")).await.convert().expect("keys");
    let _: u64 = fixture.client.del(keys).await.expect("Redis answers");
    assert_eq!(fixture.redis_says(&["HDEL", "seckill:journal:7", order]).await.as_i64(), Some(1));
    fixture.redis_says(&["SREM", "seckill:order:7", user]).await;
    if has_units {
        fixture.redis_says(&["INCR", "seckill:stock:7"]).await;
    } else {
        // Other users have bought the units meanwhile.
        fixture.redis_says(&["SET", "seckill:stock:7", "0"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_again_after_a_failover_lost_the_key_is_told_of_the_order_that_has_a_row() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let gate = |name: &str| fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0");
    let through = gate("g2").set("REDIS_URL", proxy.url_for(&fixture.redis));
    let gates = [gate("g1").start_as("gate"), through.start_as("gate")];
    let [first, second] = [address_of(&gates[0]).await, address_of(&gates[1]).await];
    let worker = fixture.worker("w").start();
    let ids = buy(first, 5).await;
    until("all have rows", || async { fixture.live_orders().await.len() == 5 }).await;
    fixture.settled().await;
    let is_first = |answer: &Answer, id: &str| {
        assert_eq!(answer.status, 202, "{:#}", answer.body);
        assert_eq!(answer.body, json!({ "orderId": id, "outcome": "admitted_before" }));
        assert_eq!(answer.headers["location"], format!("/orders/{id}?voucherId=7"));
    };

    // Only the key and the note are lost.
    let keys: Vec<String> = fixture.call("KEYS seckill:idempotency:7:1:*").await.convert().expect("keys");
    let _: u64 = fixture.client.del(keys).await.expect("Redis answers");
    fixture.redis_says(&["HDEL", "seckill:journal:7", &ids[0]]).await;
    is_first(&post_under(second, "k-1", &order(1)).await, &ids[0]);

    // Every trace in Redis is lost, so Redis admits a second order, which MySQL refuses.
    lose(&fixture, &ids[2], "3", true).await;
    let again = post_under(second, "k-3", &order(3)).await;
    assert_eq!(again.status, 202, "{:#}", again.body);
    let other = again.body["orderId"].as_str().expect("text").to_owned();
    until("the second order of the user is released", || async {
        fixture.journal(7).await.get(&other).is_some_and(|note| note.contains("\"action\":\"release\""))
    })
    .await;
    is_first(&post_under(second, "k-3", &order(3)).await, &ids[2]);

    // The gate has noticed that its connections broke, as in a failover. So it queries MySQL before it lets Redis admit
    // another order.
    let entries: u64 = fixture.client.xlen("stream.orders").await.expect("Redis answers");
    lose(&fixture, &ids[4], "5", true).await;
    proxy.cut_connections().await;
    until("the gate is connected again", || async {
        post_under(second, "k-4", &order(4)).await.status == 202
    })
    .await;
    is_first(&post_under(second, "k-5", &order(5)).await, &ids[4]);
    assert_eq!(fixture.client.xlen::<u64, _>("stream.orders").await.expect("Redis answers"), entries);

    // Every trace in Redis is lost, and all is sold. A gate whose connections did not break does not query MySQL for
    // every caller of a rush.
    let units = fixture.redis_stock(7).await.expect("a stock");
    lose(&fixture, &ids[1], "2", false).await;
    let refused = post_under(first, "k-2", &order(2)).await;
    assert_eq!((refused.status, &refused.body["type"]), (409, &json!("/problems/sold-out")));
    is_first(&post_under(second, "k-2", &order(2)).await, &ids[1]);
    fixture.redis_says(&["SET", "seckill:stock:7", &units.to_string()]).await;

    // A user with an order that Redis knows requests another one under another key, and gets none.
    for address in [first, second] {
        let refused = post_under(address, "k-other", &order(4)).await;
        assert_eq!((refused.status, &refused.body["type"]), (409, &json!("/problems/second-order")));
    }
    assert!(worker.stop().await.success());
    for gate in gates {
        assert!(gate.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_begins_after_the_failover_looks_for_the_row_before_redis_admits_another_order() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 10").expect(0);
    let port = fixture.redis.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().expect("a replica");
    let copy = connect(&replica.url()).await;
    let gate = fixture.worker("g1").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    until("the replica has the sale", || async {
        copy.get::<Option<i64>, _>("seckill:stock:7").await.ok().flatten() == Some(10)
    })
    .await;
    // The replica receives nothing of the orders.
    copy.custom::<String, _>(CustomCommand::new_static("REPLICAOF", None, false), vec!["NO", "ONE"])
        .await
        .expect("promoted");
    let worker = fixture.worker("w").start();
    let ids = buy(address, 2).await;
    until("both have rows", || async { fixture.live_orders().await.len() == 2 }).await;
    assert!(gate.stop().await.success());

    let gate = fixture.worker("g2").set("GATE_LISTEN", "127.0.0.1:0").set("REDIS_URL", replica.url());
    let gate = gate.start_as("gate");
    let address = address_of(&gate).await;
    let again = async |user: i64, id: &str| {
        let again = post_under(address, &format!("k-{user}"), &order(user)).await;
        assert_eq!(again.status, 202, "{:#}", again.body);
        assert_eq!(again.body, json!({ "orderId": id, "outcome": "admitted_before" }));
    };
    again(1, &ids[0]).await;
    assert_eq!(copy.get::<i64, _>("seckill:stock:7").await.expect("Redis answers"), 10);
    // Other users have bought all units meanwhile.
    copy.set::<(), _, _>("seckill:stock:7", 0, None, None, false).await.expect("Redis answers");
    again(2, &ids[1]).await;
    let refused = post_under(address, "k-3", &order(3)).await;
    assert_eq!((refused.status, &refused.body["type"]), (409, &json!("/problems/sold-out")));
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_user_may_hold_several_orders_a_new_key_is_a_new_order_also_after_a_failover() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 2 --yes").expect(0);
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let gate = fixture.worker("g").set("GATE_LISTEN", "127.0.0.1:0");
    let gate = gate.set("REDIS_URL", proxy.url_for(&fixture.redis)).start_as("gate");
    let address = address_of(&gate).await;
    let worker = fixture.worker("w").start();
    let mut ids = Vec::new();
    for user in 1..=2 {
        let asked = post_under(address, "first", &order(user)).await;
        assert_eq!(asked.status, 202, "{:#}", asked.body);
        ids.push(asked.body["orderId"].as_str().expect("text").to_owned());
    }
    until("both have rows", || async { fixture.live_orders().await.len() == 2 }).await;
    fixture.settled().await;

    // The keys and the first note are lost; a repair has written the second note.
    let keys: Vec<String> = fixture.call("KEYS seckill:idempotency:*").await.convert().expect("keys");
    let _: u64 = fixture.client.del(keys).await.expect("Redis answers");
    fixture.redis_says(&["HDEL", "seckill:journal:7", &ids[0]]).await;
    let note = fixture.journal(7).await[&ids[1]].clone();
    let repaired = note.replacen('{', "{\"mended\":\"repair:x\",", 1);
    fixture.redis_says(&["HSET", "seckill:journal:7", &ids[1], &repaired]).await;
    proxy.cut_connections().await;
    until("the gate is connected again", || async {
        post_under(address, "another", &order(3)).await.status == 202
    })
    .await;

    for user in 1..=2 {
        let second = post_under(address, "second", &order(user)).await;
        assert_eq!((second.status, &second.body["outcome"]), (202, &json!("admitted")), "{:#}", second.body);
        assert!(!ids.iter().any(|id| second.body["orderId"] == **id), "{:#}", second.body);
    }
    // The refusal of a third order is not taken for the answer about the first.
    let third = post_under(address, "third", &order(2)).await;
    assert_eq!((third.status, &third.body["type"]), (409, &json!("/problems/over-limit")));
    until("all have rows", || async { fixture.live_orders().await.len() == 5 }).await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

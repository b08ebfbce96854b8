//! Tests of results of several partitions, of other lists of partitions, and of other servers.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::Method;
use serde_json::json;
use tokio::time::timeout;

use super::{RESULTS, Reader, events::Listener, gate, kind, order_of, publish};
use crate::{
    fixture::{Fixture, Worker, until},
    http_gate::{address_of, ask, told},
    partitions::program,
};

fn gate_of(fixture: &Fixture, name: &str, list: &str) -> Worker {
    let plan = fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0").set("RESULTS_PUBLISH", "all");
    plan.set("STREAM_PARTITIONS", list).start_as("gate")
}

fn key(tag: &str) -> String {
    format!("{{{tag}}}:{RESULTS}")
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_all_partitions_come_once_and_a_partition_that_fails_holds_up_no_other() {
    let fixture = Fixture::open().await;
    let gate = gate_of(&fixture, "gate", "b,a");
    let address = address_of(&gate).await;
    for tens in 0..10 {
        publish(&fixture, &key("a"), tens * 10 + 1..=tens * 10 + 5, "confirmed").await;
        publish(&fixture, &key("b"), tens * 10 + 6..=tens * 10 + 10, "confirmed").await;
    }
    let mut reader = Reader::new(address, "limit=7");
    let mut read = reader.rest().await;
    let in_stream = |is_a: bool| read.iter().copied().filter(move |order| ((order - 1) % 10 < 5) == is_a);
    for is_a in [true, false] {
        assert!(in_stream(is_a).is_sorted(), "{read:?}");
    }
    read.sort_unstable();
    assert_eq!(read, (1..=100).collect::<Vec<_>>());
    let of_b = key("b");
    let (page, ()) = tokio::join!(reader.page("&wait=30"), publish(&fixture, &of_b, [101], "dead"));
    assert_eq!(page.iter().map(order_of).collect::<Vec<_>>(), [101]);

    fixture.redis_says(&["DEL", &key("a")]).await;
    fixture.redis_says(&["SET", &key("a"), "no stream"]).await;
    publish(&fixture, &key("b"), [102], "confirmed").await;
    // The reader of a partition checks its stream every two seconds.
    until("the partition is away", || async { reader.ask("").await.body["away"] == json!(["a"]) }).await;
    assert_eq!(reader.page("").await.iter().map(order_of).collect::<Vec<_>>(), [102]);
    fixture.redis_says(&["SET", &key("b"), "no stream"]).await;
    let nothing = || async { kind(&Reader::new(address, "").ask("").await) == told(503, "redis-away") };
    until("no partition can be read", nothing).await;
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_list_of_partitions_skips_nothing() {
    let fixture = Fixture::open().await;
    let gate = gate_of(&fixture, "gate", "b,a");
    let address = address_of(&gate).await;
    publish(&fixture, &key("a"), 1..=6, "confirmed").await;
    publish(&fixture, &key("b"), 11..=16, "confirmed").await;
    let mut reader = Reader::new(address, "limit=4");
    let mut read: Vec<i64> = reader.page("").await.iter().map(order_of).collect();
    assert_eq!(read.len(), 4);
    assert!(gate.stop().await.success());
    // The system now has the partitions b and c, as `tidegate partitions change` leaves it.
    for tag in ["a", "b"] {
        fixture.redis_says(&["DEL", &format!("{{{tag}}}:tidegate:partitions")]).await;
    }
    publish(&fixture, &key("c"), 21..=23, "confirmed").await;
    publish(&fixture, &key("b"), 17..=18, "confirmed").await;
    let gate = gate_of(&fixture, "gate2", "b,c");
    reader.address = address_of(&gate).await;
    read.extend(reader.rest().await);
    read.sort_unstable();
    let all: Vec<i64> = (1..=6).chain(11..=18).chain(21..=23).collect();
    assert_eq!(read, all);
    let shown = reader.ask("").await.body;
    assert_eq!(shown.get("away"), None, "the removed partition was read to its end: {shown}");
    publish(&fixture, &key("c"), [24], "confirmed").await;
    assert_eq!(reader.rest().await, [24]);
    assert!(gate.stop().await.success());
}

/// A cursor before all results of these partitions.
fn cursor(tags: impl Iterator<Item = String>) -> String {
    let positions: Vec<_> = tags.map(|tag| json!([tag, 0, 0, null, null])).collect();
    URL_SAFE_NO_PAD.encode(json!([1, 1, positions]).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invented_partition_keeps_no_place_and_a_partition_without_a_place_is_listed_as_away() {
    let fixture = Fixture::open().await;
    let gate = gate_of(&fixture, "gate", "b,a");
    let address = address_of(&gate).await;
    publish(&fixture, &key("old"), 1..=3, "confirmed").await;
    let after = |cursor| Reader { cursor: Some(cursor), ..Reader::new(address, "") };
    for round in 0..3 {
        let mut invented = after(cursor((0..60).map(|tag| format!("i{round}-{tag}"))));
        assert_eq!(invented.rest().await, [] as [i64; 0]);
        assert_eq!(invented.ask("").await.body.get("away"), None);
    }
    assert_eq!(after(cursor(["old".to_owned()].into_iter())).rest().await, [1, 2, 3]);
    let clients = fixture.call("INFO clients").await.as_string().expect("a text");
    let connected =
        clients.lines().find_map(|line| line.strip_prefix("connected_clients:")).expect("a count");
    assert!(connected.parse::<u32>().expect("a number") < 64 + 40, "{clients}");

    // More removed partitions than places, and most of them cannot be read.
    let broken = || (0..70).map(|tag| format!("w{tag}"));
    for tag in broken() {
        fixture.redis_says(&["SET", &key(&tag), "no stream"]).await;
    }
    let mut reader = after(cursor(broken().chain(["old".to_owned()])));
    let answer = reader.ask("").await;
    let away = &answer.body["away"];
    assert_eq!(*away, json!(broken().chain(["old".to_owned()]).collect::<Vec<_>>()), "{}", answer.text);
    for tag in broken() {
        fixture.redis_says(&["DEL", &key(&tag)]).await;
    }
    reader.cursor = Some(answer.body["cursor"].as_str().expect("a cursor").to_owned());
    let mut read = Vec::new();
    let reading = async {
        while read.len() < 3 {
            read.extend(reader.page("&wait=1").await.iter().map(order_of));
        }
    };
    timeout(Duration::from_secs(20), reading).await.expect("a place is free again");
    assert_eq!(read, [1, 2, 3]);

    // A stream of events takes all places, and reads on when it has left the partitions that it has read.
    for tag in broken() {
        fixture.redis_says(&["SET", &key(&tag), "no stream"]).await;
    }
    let all = cursor(broken().chain(["old".to_owned()]));
    let mut listener = Listener::open(address, "/results", &all).await;
    assert_eq!(listener.next().await, ("away".to_owned(), away.clone()));
    for tag in broken() {
        fixture.redis_says(&["DEL", &key(&tag)]).await;
    }
    let orders = timeout(Duration::from_secs(40), listener.orders(3)).await;
    assert_eq!(orders.expect("a heartbeat later, a place is free"), [1, 2, 3]);
    assert_eq!(listener.next().await, ("away".to_owned(), json!([])));
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_a_gate_read_on_after_it_has_followed_a_change_of_the_list() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, "3,1");
    program.run("voucher load --voucher 7 --stock 9").expect(0);
    let _worker = fixture.worker("w").set("STREAM_PARTITIONS", "3,1").start();
    let gate = gate_of(&fixture, "gate", "3,1");
    let address = address_of(&gate).await;
    publish(&fixture, &key("3"), 1..=6, "confirmed").await;
    publish(&fixture, &key("1"), 11..=16, "confirmed").await;
    let mut reader = Reader::new(address, "limit=6");
    let mut read: Vec<i64> = reader.page("").await.iter().map(order_of).collect();
    let mut listener = Listener::open(address, "/results", "").await;
    assert_eq!(listener.orders(12).await.len(), 12);
    program.run("partitions change --to 1,0 --yes").expect(0);
    listener.ended().await;
    until("the gate has the new list", || async {
        ask(address, Method::GET, "/readyz", &[], "").await.status == 200
            && gate.log().contains("the gate continues with the system's list")
    })
    .await;
    publish(&fixture, &key("1"), [17], "confirmed").await;
    publish(&fixture, &key("0"), 21..=22, "confirmed").await;
    read.extend(reader.rest().await);
    read.sort_unstable();
    let all: Vec<i64> = (1..=6).chain(11..=17).chain(21..=22).collect();
    assert_eq!(read, all, "also those of the removed partition");
    let mut again = Listener::open(address, "/results", &listener.last_id).await;
    let mut orders = again.orders(3).await;
    orders.sort_unstable();
    assert_eq!(orders, [17, 21, 22]);
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_redis_the_last_minute_comes_again_and_an_empty_server_is_a_loss() {
    let fixture = Fixture::open().await;
    let gate = gate(&fixture);
    let address = address_of(&gate).await;
    publish(&fixture, RESULTS, 1..=3, "confirmed").await;
    let mut reader = Reader::new(address, "");
    assert_eq!(reader.rest().await, [1, 2, 3]);
    assert_eq!(reader.rest().await, [] as [i64; 0]);
    fixture.redis.kill9().expect("it dies");
    let away = || async { ask(address, Method::GET, "/results", &[], "").await.status == 503 };
    until("Redis is away", away).await;
    fixture.redis.restart().expect("it starts");
    until("Redis answers", || async { reader.ask("").await.status == 200 }).await;
    publish(&fixture, RESULTS, [4], "confirmed").await;
    let again: BTreeMap<i64, ()> = reader.rest().await.into_iter().map(|order| (order, ())).collect();
    assert_eq!(again.into_keys().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(reader.rest().await, [] as [i64; 0]);

    fixture.redis_says(&["FLUSHALL"]).await;
    fixture.redis.kill9().expect("it dies");
    fixture.redis.restart().expect("it starts");
    // The shared reader serves what it has in memory until it notices that its connection has broken.
    until("the loss is noticed", || async { reader.ask("").await.status == 410 }).await;
    reader.loses().await;
    publish(&fixture, RESULTS, [5], "confirmed").await;
    assert_eq!(reader.rest().await, [5]);
    assert!(gate.stop().await.success());
}

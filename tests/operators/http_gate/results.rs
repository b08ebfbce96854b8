//! Tests of the gate's page `/results`: pages, long polls, cursors, and losses.

mod changes;
mod events;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use fred::interfaces::StreamsInterface;
use hyper::Method;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::{Answer, address_of, ask, post, told};
use crate::{
    fixture::{Fixture, Worker, until},
    order_event::operator,
};

const RESULTS: &str = "stream.orders.results";

fn gate(fixture: &Fixture) -> Worker {
    fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("RESULTS_PUBLISH", "all").start_as("gate")
}

/// Appends results of these orders to a results stream, as a worker does.
async fn publish(fixture: &Fixture, key: &str, orders: impl IntoIterator<Item = i64>, state: &str) {
    for order in orders {
        let (id, entry) = (order.to_string(), format!("{order}-0"));
        let fields = vec![
            ("orderId", id.as_str()),
            ("state", state),
            ("step", "0"),
            ("entry", entry.as_str()),
            ("at", "1718000000000"),
        ];
        let _: String = fixture.client.xadd(key, false, None, "*", fields).await.expect("Redis answers");
    }
}

async fn trim(fixture: &Fixture, length: usize) {
    fixture.redis_says(&["XTRIM", RESULTS, "MAXLEN", &length.to_string()]).await;
}

/// A reader of the page, with its cursor.
struct Reader {
    address: SocketAddr,
    query: String,
    cursor: Option<String>,
}

impl Reader {
    fn new(address: SocketAddr, query: &str) -> Self {
        Self { address, query: query.to_owned(), cursor: None }
    }

    async fn ask(&self, more: &str) -> Answer {
        let after = self.cursor.as_ref().map(|cursor| format!("&after={cursor}")).unwrap_or_default();
        let path = format!("/results?{}{after}{more}", self.query);
        ask(self.address, Method::GET, &path, &[], "").await
    }

    async fn page(&mut self, more: &str) -> Vec<Json> {
        let answer = self.ask(more).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        self.cursor = Some(answer.body["cursor"].as_str().expect("a cursor").to_owned());
        answer.body["results"].as_array().expect("a list").clone()
    }

    /// The ids of the orders of all results until there are none. The reader that all followers share may be a moment
    /// late, so each page waits.
    async fn rest(&mut self) -> Vec<i64> {
        let mut all = Vec::new();
        loop {
            let page = self.page("&wait=1").await;
            if page.is_empty() {
                return all;
            }
            all.extend(page.iter().map(order_of));
        }
    }

    /// Expects that results were lost, and continues after the loss.
    async fn loses(&mut self) {
        let answer = self.ask("").await;
        assert_eq!(kind(&answer), told(410, "results-lost"), "{}", answer.text);
        self.cursor = Some(answer.body["cursor"].as_str().expect("a cursor").to_owned());
    }
}

fn kind(answer: &Answer) -> (u16, String) {
    let kind = answer.body["type"].as_str().unwrap_or_default();
    (answer.status, kind.trim_start_matches("/problems/").to_owned())
}

fn order_of(result: &Json) -> i64 {
    result["orderId"].as_str().expect("a text").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_every_result_of_the_workers_once_in_their_sequence() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 100").expect(0);
    let gate = gate(&fixture);
    let address = address_of(&gate).await;
    let worker = fixture.worker("w").set("RESULTS_PUBLISH", "all").start();
    let buy = async |user: i64| {
        let order = json!({ "voucherId": "7", "userId": user.to_string(), "quantity": 2 });
        let answer = post(address, &order).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        order_of(&answer.body)
    };
    let mut orders = BTreeSet::new();
    for user in 1..=20 {
        orders.insert(buy(user).await);
    }
    let length = || async { fixture.client.xlen::<usize, _>(RESULTS).await.expect("Redis answers") };
    until("all are published", || async { length().await == 20 }).await;

    let mut reader = Reader::new(address, "limit=7");
    let first = reader.page("").await;
    assert_eq!(first.len(), 7);
    let one = &first[0];
    assert_eq!(
        (&one["state"], &one["kind"], &one["step"]),
        (&json!("confirmed"), &json!("state"), &json!(0))
    );
    assert_eq!((&one["voucherId"], &one["quantity"]), (&json!("7"), &json!(2)));
    assert!(one["at"].is_u64() && one["userId"].is_string() && one["entry"].is_string(), "{one}");
    assert!(one.get("reason").is_none(), "{one}");
    let mut read: Vec<i64> = first.iter().map(order_of).collect();
    read.extend(reader.rest().await);
    let entries: Vec<(String, std::collections::BTreeMap<String, String>)> =
        fixture.client.xrange(RESULTS, "-", "+", None).await.expect("Redis answers");
    let published: Vec<i64> = entries.iter().map(|(_, it)| it["orderId"].parse().unwrap()).collect();
    assert_eq!(read, published);
    assert_eq!(read.iter().copied().collect::<BTreeSet<_>>(), orders);

    // A reader that waits gets the next result at once.
    let mut late = Reader::new(address, "after=latest");
    assert_eq!(late.page("").await, [] as [Json; 0]);
    late.query.clear();
    let began = Instant::now();
    let (order, page) = tokio::join!(buy(21), late.page("&wait=50"));
    assert_eq!(page.iter().map(order_of).collect::<Vec<_>>(), [order]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(late.page("&wait=1").await, [] as [Json; 0]);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let metrics = ask(address, Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains("tidegate_gate_results_served_total 21\n"), "{metrics}");
    assert!(metrics.contains("tidegate_gate_result_followers 0\n"), "{metrics}");
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_some_kinds_passes_the_others_and_asks_only_for_what_is_published() {
    let fixture = Fixture::open().await;
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    publish(&fixture, RESULTS, 1..=30, "refused").await;
    publish(&fixture, RESULTS, [31], "refund_due").await;
    publish(&fixture, RESULTS, 32..=40, "cancelled").await;
    assert_eq!(Reader::new(address, "kinds=fact").rest().await, [31]);
    assert_eq!(
        Reader::new(address, "kinds=fact,cancelled&limit=4").rest().await,
        (31..=40).collect::<Vec<_>>()
    );
    assert_eq!(Reader::new(address, "kinds=state").rest().await.len(), 39);
    // The cursor of an empty page has passed the results that were not wanted: they may be trimmed.
    let mut dead = Reader::new(address, "kinds=dead");
    assert_eq!(dead.page("").await, [] as [Json; 0]);
    trim(&fixture, 0).await;
    assert_eq!(dead.page("").await, [] as [Json; 0]);
    publish(&fixture, RESULTS, [50], "dead").await;
    assert_eq!(dead.rest().await, [50]);

    // A later version published a result, and another program wrote an entry that is not a result.
    let mut later = Reader::new(address, "");
    assert_eq!(later.rest().await, [50]);
    fixture.redis_says(&["XADD", RESULTS, "*", "no", "result"]).await;
    publish(&fixture, RESULTS, [51], "teleported").await;
    let page = later.page("&wait=20").await;
    assert_eq!((page.len(), &page[0]["state"], &page[0]["kind"]), (1, &json!("teleported"), &json!("state")));
    assert_eq!(Reader::new(address, "kinds=state").rest().await, [50, 51]);
    gate.says("the gate leaves out an entry of the results stream").await;

    for (query, word) in [
        ("kinds=confirmed", "results.publish"),
        ("kinds=shipped", "refund_due"),
        ("wait=61", "`wait`"),
        ("limit=0", "`limit`"),
        ("after=xyz", "cursor"),
    ] {
        let answer = Reader::new(address, query).ask("").await;
        assert_eq!(kind(&answer), told(400, "bad-question"), "{query}");
        assert!(answer.text.contains(word), "{query}: {}", answer.text);
    }
    assert_eq!(ask(address, Method::POST, "/results", &[], "").await.status, 405);
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_were_trimmed_unread_are_reported_and_no_others() {
    let fixture = Fixture::open().await;
    let gate = gate(&fixture);
    let address = address_of(&gate).await;
    publish(&fixture, RESULTS, 1..=10, "confirmed").await;
    let mut reader = Reader::new(address, "limit=4");
    assert_eq!(reader.page("").await.len(), 4);
    trim(&fixture, 6).await;
    assert_eq!(
        reader.page("").await.iter().map(order_of).collect::<Vec<_>>(),
        [5, 6, 7, 8],
        "no false alarm"
    );
    trim(&fixture, 1).await;
    reader.loses().await;
    assert_eq!(reader.rest().await, [10]);
    // All results were read, so their trimming is no loss.
    trim(&fixture, 0).await;
    assert_eq!(reader.rest().await, [] as [i64; 0]);
    publish(&fixture, RESULTS, 11..=12, "confirmed").await;
    assert_eq!(reader.rest().await, [11, 12]);

    // A stream that was deleted is noticed, before and after it has new results; also by a reader that waits.
    let mut before = Reader::new(address, "");
    assert_eq!(before.rest().await, [11, 12]);
    let mut after = Reader { cursor: before.cursor.clone(), ..Reader::new(address, "") };
    let waits = async {
        let answer = before.ask("&wait=50").await;
        assert_eq!(kind(&answer), told(410, "results-lost"), "{}", answer.text);
    };
    let empty = async {
        until("it is followed", || async {
            let metrics = ask(address, Method::GET, "/metrics", &[], "").await.text;
            metrics.contains("tidegate_gate_result_followers 1\n")
        })
        .await;
        fixture.redis_says(&["FLUSHALL"]).await;
    };
    tokio::join!(waits, empty);
    publish(&fixture, RESULTS, 20..=50, "confirmed").await;
    after.loses().await;
    assert_eq!(after.rest().await, (20..=50).collect::<Vec<_>>());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn users_behind_a_proxy_get_no_results() {
    let fixture = Fixture::open().await;
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_USER_HEADER", "X-User-Id");
    let gate = plan.set("GATE_TRUSTED_PROXIES", "127.0.0.1").start_as("gate");
    let address = address_of(&gate).await;
    let get =
        async |headers: &[(&str, &str)]| kind(&ask(address, Method::GET, "/results", headers, "").await);
    assert_eq!(get(&[("X-User-Id", "5")]).await, told(403, "not-for-users"));
    assert_eq!(get(&[]).await, told(403, "no-user"));
    assert!(gate.stop().await.success());
}

//! A test of results over HTTP on a cluster. A master dies while followers read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_lab::{RedisCluster, RedisServer};
use tokio::{net::TcpStream, time::sleep};

use super::{
    WHOLE_WITHIN,
    fixture::{AT_WORK_WITHIN, ClusterFixture, TAGS},
};
use crate::fixture::until_within;

/// The answers that a follower got.
#[derive(Debug, Default)]
struct Heard {
    /// The number of times that each order's result came.
    orders: BTreeMap<i64, usize>,
    away: BTreeSet<String>,
    problems: Vec<Value>,
}

impl Heard {
    fn take(&mut self, page: Value) {
        for result in page["results"].as_array().into_iter().flatten() {
            let order = result["orderId"].as_str().and_then(|id| id.parse().ok()).expect("an id");
            *self.orders.entry(order).or_default() += 1;
        }
        let away = page["away"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.away.extend(away.map(str::to_owned));
        if page["results"].is_null() {
            self.problems.push(page);
        }
    }

    /// Checks that nothing was reported as lost, and that reading went back after the failover.
    fn judge(&self) {
        let lost = self.problems.iter().filter(|problem| problem["status"] == 410).count();
        assert_eq!(lost, 0, "{:#?}", self.problems);
        let twice = self.orders.values().filter(|times| **times > 1).count();
        assert!(twice > 0 && twice < self.orders.len(), "{twice} of {} came again", self.orders.len());
    }
}

struct Follower {
    gate: SocketAddr,
    heard: Mutex<Heard>,
}

impl Follower {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        let mut cursor = String::new();
        loop {
            let page = get(self.gate, &format!("/results?wait=5&limit=1000&after={cursor}")).await;
            if let Some(next) = page["cursor"].as_str() {
                next.clone_into(&mut cursor);
            }
            let is_problem = page["results"].is_null();
            self.heard().take(page);
            if is_problem {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn get(gate: SocketAddr, path: &str) -> Value {
    let stream = TcpStream::connect(gate).await.expect("the gate listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let request = Request::get(path).header("Host", "gate").body(Empty::<Bytes>::new()).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

/// The orders with results in the streams of all partitions.
fn published(cluster: &RedisCluster) -> BTreeSet<i64> {
    let of = |tag: &str| {
        let key = format!("{{{tag}}}:stream.orders.results");
        let shown = cluster.master_of(tag).expect("a master").says(&["XRANGE", &key, "-", "+"]);
        let shown = shown.expect("an answer");
        let words: Vec<&str> = shown.split_whitespace().map(|word| word.trim_matches('"')).collect();
        let pairs = words.windows(2).filter(|pair| pair[0] == "orderId");
        pairs.map(|pair| pair[1].parse().expect("an id")).collect::<Vec<i64>>()
    };
    TAGS.iter().flat_map(|tag| of(tag)).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn followers_hear_of_all_orders_while_a_master_dies_and_others_do_not_wait_for_it() {
    drill(RedisServer::kill9, RedisServer::restart).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn followers_hear_of_all_orders_while_a_master_is_frozen() {
    drill(RedisServer::stop, RedisServer::cont).await;
}

type OnServer = fn(&RedisServer) -> anyhow::Result<()>;

/// A master fails, and its replica takes over. Meanwhile orders are placed, and a follower reads.
async fn drill(fail: OnServer, mend: OnServer) {
    let fixture = ClusterFixture::open(RedisCluster::start().expect("a cluster")).await;
    let worker = fixture.worker("a").set("RESULTS_PUBLISH", "all").start();
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("RESULTS_PUBLISH", "all");
    let gate = plan.start_as("gate");
    let follower = Arc::new(Follower { gate: gate.gate_address().await, heard: Mutex::default() });
    let following = tokio::spawn(Arc::clone(&follower).run());
    let sale = fixture.sell();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;
    until_within(AT_WORK_WITHIN, "the follower hears of orders", || async {
        follower.heard().orders.len() >= 100
    })
    .await;

    let master = fixture.cluster.master_of("10").expect("a master");
    fixture.begin_risk().await;
    fail(master.server()).expect("it fails");
    until_within(AT_WORK_WITHIN, "the follower hears who is away", || async {
        follower.heard().away.contains("10")
    })
    .await;
    let before = follower.heard().orders.len();
    until_within(Duration::from_secs(2), "the others' results come on", || async {
        follower.heard().orders.len() > before + 20
    })
    .await;
    let is_followed = || async { fixture.cluster.master_of("10").is_ok_and(|new| new.id() != master.id()) };
    until_within(WHOLE_WITHIN, "the replica takes over", is_followed).await;
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    mend(master.server()).expect("back");
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("the old master is a replica");
    fixture.end_risk();
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    sale.end().await;
    fixture.adds_up().await;

    let all = published(&fixture.cluster);
    assert!(all.len() > before, "{} orders", all.len());
    until_within(AT_WORK_WITHIN, "the follower has heard of all orders", || async {
        let heard = follower.heard();
        all.iter().all(|order| heard.orders.contains_key(order))
    })
    .await;
    following.abort();
    follower.heard().judge();
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

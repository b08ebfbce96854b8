//! Test of slots with real workers. One user has as many orders as there are slots, and cancels and orders again, in
//! parallel. No two live orders share a slot, and each slot is used again.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use fred::interfaces::{HashesInterface, SetsInterface, StreamsInterface};
use futures_util::future::join_all;
use tidegate_orders::{
    RedisStore, Subjects,
    scripts::{Admission, AdmitReply},
};
use tokio::time::sleep;

use crate::{
    browser::get,
    fixture::{DEADLINE, Fixture, STREAM, until},
};

const USER: i64 = 1;
const SLOTS: i64 = 31;
/// The number of orders of each parallel buyer.
const ROUNDS: usize = 5;

struct Hands<'a> {
    fixture: &'a Fixture,
    store: RedisStore,
    next: AtomicI64,
}

impl Hands<'_> {
    /// Requests an order until there is a slot. A cancelled order keeps its slot until a worker releases it.
    async fn orders(&self) -> i64 {
        let order = self.next.fetch_add(1, Relaxed);
        let admission = Admission {
            order: order.try_into().expect("an order id"),
            user: USER.try_into().expect("a user id"),
            voucher: 7.try_into().expect("a voucher id"),
            quantity: 1.try_into().expect("a quantity"),
            subjects: Subjects::none(),
            traceparent: None,
        };
        let began = Instant::now();
        loop {
            match self.store.admissions().admit(&admission).await.expect("the store answers") {
                AdmitReply::Admitted => return order,
                AdmitReply::OverLimit(limit) => assert_eq!(limit.name, "slots"),
                other => panic!("{other:?}"),
            }
            assert!(began.elapsed() < DEADLINE, "order {order} gets no slot");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn cancels(&self, order: i64) {
        let (order, user) = (order.to_string(), USER.to_string());
        let fields = [("event", "cancelled"), ("orderId", &*order), ("userId", &user), ("voucherId", "7")];
        self.fixture.add(&fields).await;
    }

    /// Orders and cancels in turn; the last order stays.
    async fn come_and_go(&self) {
        for _ in 1..ROUNDS {
            let order = self.orders().await;
            self.cancels(order).await;
        }
        self.orders().await;
    }
}

async fn slots_of_rows(fixture: &Fixture) -> Vec<i64> {
    let sql = "SELECT CAST(slot AS SIGNED) FROM tb_voucher_order WHERE slot IS NOT NULL ORDER BY slot";
    sqlx::query_scalar(sql).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

/// The number of orders that got each slot.
async fn slots_of_entries(fixture: &Fixture) -> BTreeMap<i64, usize> {
    let entries: Vec<(String, BTreeMap<String, String>)> =
        fixture.client.xrange(STREAM, "-", "+", None).await.expect("Redis answers");
    let orders = entries.into_iter().filter(|(_, fields)| fields.contains_key("id"));
    let mut given = BTreeMap::new();
    for (_, fields) in orders {
        let slot = fields.get("slot").map_or(1, |slot| slot.parse().expect("a number"));
        *given.entry(slot).or_default() += 1;
    }
    given
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_one_orders_of_a_user_come_and_go_side_by_side_and_never_share_a_slot() {
    let fixture = Fixture::open().await;
    let runs = |line: &str| {
        let output = fixture.tidegate(&line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {output:?}");
    };
    runs("voucher load --voucher 7 --stock 1000");
    runs("limit set --voucher 7 --name mine --subject user --window sale --orders 1000 --yes");
    let plan = |name: &str| fixture.worker(name).set("WORKER_LANES", 3).set("WORKER_BATCH", 20);
    let workers = [plan("a").start(), plan("b").start()];
    for worker in &workers {
        worker.says("worker started").await;
    }
    let hands = Hands { fixture: &fixture, store: fixture.store().await, next: AtomicI64::new(1) };
    join_all((0..SLOTS).map(|_| hands.come_and_go())).await;
    fixture.settled().await;

    let all: Vec<i64> = (1..=SLOTS).collect();
    assert_eq!(slots_of_rows(&fixture).await, all);
    let given = slots_of_entries(&fixture).await;
    assert_eq!(given.keys().copied().collect::<Vec<_>>(), all);
    assert_eq!(given.values().sum::<usize>(), 31 * ROUNDS, "each was given again: {given:?}");
    assert_eq!(
        (fixture.refused().await.len(), fixture.dead().await.len()),
        (0, 0),
        "the unique key refused none"
    );
    for worker in &workers {
        let samples = get(worker, "/metrics").await.samples();
        assert_eq!(samples[r#"tidegate_mysql_contentions_total{kind="duplicate"}"#], 0.0);
    }
    let used: BTreeMap<String, String> =
        fixture.client.hgetall("seckill:uses:voucher:7").await.expect("Redis answers");
    assert_eq!((used["1:1"].as_str(), used["u:1"].as_str()), ("0:31:31", "2147483647"));
    fixture.judge().await;

    let live: Vec<i64> = fixture.live_orders().await.iter().map(|order| order.id).collect();
    join_all(live.into_iter().map(|order| hands.cancels(order))).await;
    until("nothing is left", || async { fixture.live_orders().await.is_empty() }).await;
    fixture.settled().await;
    let used: BTreeMap<String, String> =
        fixture.client.hgetall("seckill:uses:voucher:7").await.expect("Redis answers");
    assert_eq!(used, BTreeMap::new());
    assert!(!fixture.client.sismember::<bool, _, _>("seckill:order:7", USER).await.expect("Redis answers"));
    fixture.judge().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

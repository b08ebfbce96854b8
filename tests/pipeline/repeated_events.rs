//! Tests of many events of few orders: each is recorded once, in its sequence, and none of them delays another order.

use fred::{interfaces::LuaInterface, types::Value};
use tidegate_stream::{EntryId, Stream, StreamNames};

use crate::{
    browser::get,
    events::{add_event, by_outcome, by_status, recorded, sql, state},
    fixture::{DEAD, DEADLINE, Fixture, GROUP, STREAM, Worker, redis_pool, until, until_within},
};

/// Appends `times` payments of each of these orders, one order after the other, all with the reference of the order.
pub async fn repeat_payments(fixture: &Fixture, (first, last): (i64, i64), times: i64) {
    let lua = "for _ = 1, tonumber(ARGV[3]) do
            for id = tonumber(ARGV[1]), tonumber(ARGV[2]) do
                redis.call('XADD', KEYS[1], '*', 'voucherId', 1, 'event', 'paid', 'orderId', id, 'userId', id, 'ref', 'p' .. id)
            end
        end";
    let args = [first, last, times].map(|number| number.to_string()).to_vec();
    let _done: Value =
        fixture.client.eval(lua, vec![STREAM.to_owned()], args).await.expect("all is appended");
}

async fn add_orders(fixture: &Fixture, (first, last): (i64, i64)) {
    let lua = "for id = tonumber(ARGV[1]), tonumber(ARGV[2]) do
            redis.call('XADD', KEYS[1], '*', 'voucherId', 1, 'id', id, 'userId', id)
        end";
    let args = [first, last].map(|number| number.to_string()).to_vec();
    let _done: Value =
        fixture.client.eval(lua, vec![STREAM.to_owned()], args).await.expect("all is appended");
}

async fn sample(worker: &Worker, name: &str) -> f64 {
    let samples = get(worker, "/metrics").await.samples();
    samples.iter().filter(|(sample, _)| sample.starts_with(name)).map(|(_, value)| value).sum()
}

async fn last_entry(fixture: &Fixture) -> EntryId {
    let last = fixture.redis_says(&["XREVRANGE", STREAM, "+", "-", "COUNT", "1"]).await.into_array();
    let id = last[0].clone().into_array()[0].as_string();
    id.and_then(|id| id.parse().ok()).expect("an entry")
}

/// The number of queries of the pending list. Events that wait for each other need them.
async fn looks(fixture: &Fixture) -> u64 {
    fixture.calls_of("xpending").await
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_that_are_sent_again_two_hundred_times_are_recorded_and_delay_no_other_order() {
    const ORDERS: i64 = 20;
    const TIMES: i64 = 200;
    const OTHERS: i64 = 2_000;
    let fixture = Fixture::open().await;
    fixture.load(1, 100_000).await;
    let worker = fixture.worker("w").set("WORKER_LANES", 4).start();
    add_orders(&fixture, (1, ORDERS)).await;
    fixture.settled().await;
    repeat_payments(&fixture, (1, ORDERS), TIMES).await;
    add_orders(&fixture, (1_001, 1_000 + OTHERS)).await;
    repeat_payments(&fixture, (1_001, 1_000 + OTHERS), 1).await;
    until_within(3 * DEADLINE, "all orders are paid", || async {
        by_status(&fixture, 1).await == [(2, ORDERS + OTHERS)]
    })
    .await;
    fixture.settled().await;
    let expected = [("paid applied", ORDERS + OTHERS), ("paid unchanged", ORDERS * (TIMES - 1))];
    assert_eq!(by_outcome(&fixture).await, expected.map(|(word, count)| (word.to_owned(), count)));
    let (retried, entries) =
        (sample(&worker, "tidegate_entries_retried_total").await, ORDERS * TIMES + 2 * OTHERS);
    eprintln!("{retried} times set aside, of {entries} entries, {} looks", looks(&fixture).await);
    assert!(retried < 2.0 * entries as f64, "{retried} times set aside, of {entries} entries");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_costs_the_same_however_many_of_its_order_wait() {
    let mut costs = Vec::new();
    for times in [2_000, 10_000] {
        let fixture = Fixture::open().await;
        fixture.load(1, 100).await;
        fixture.admit(1, 1, 1, 1).await;
        // No lane claims entries of another lane of this process that was too slow to renew them: that is no part of
        // the cost.
        let plan = fixture.worker("w").set("WORKER_LANES", 4).set("WORKER_CLAIM_IDLE_MS", 600_000);
        let worker = plan.start();
        fixture.settled().await;
        let before = looks(&fixture).await;
        repeat_payments(&fixture, (1, 1), times).await;
        let all = [("paid applied".to_owned(), 1), ("paid unchanged".to_owned(), times - 1)];
        until_within(3 * DEADLINE, "all are recorded", || async { by_outcome(&fixture).await == all }).await;
        let retried = sample(&worker, "tidegate_entries_retried_total").await / times as f64;
        let looks = (looks(&fixture).await - before) as f64 / times as f64;
        eprintln!("{times} events: each {retried:.2} times set aside, {looks:.2} looks");
        costs.push(retried + looks);
        assert!(worker.stop().await.success());
    }
    assert!(costs[1] < 2.0 * costs[0] + 1.0, "{costs:?} for an event");
}

/// Order 9 of voucher 2 waits for the row of its voucher, so it stays the oldest pending entry.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_waits_for_its_order_that_a_repair_made_pending_again_while_an_older_entry_waits() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.load(2, 100).await;
    let mut rival = fixture.pool.begin().await.expect("a transaction");
    let hold = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 2 FOR UPDATE";
    sqlx::query(hold).execute(&mut *rival).await.expect("held");
    fixture.admit(9, 9, 2, 1).await;
    // The worker claims nothing, as if it had not come to that yet.
    let worker = fixture.worker("w").set("WORKER_CLAIM_IDLE_MS", 600_000).start();
    fixture.admit(1, 1, 1, 1).await;
    until("it is written", || async { state(&fixture, 1).await.is_some() }).await;
    let entry = last_entry(&fixture).await;
    add_event(&fixture, "paid", 1, &[("ref", "p")]).await;
    until("it is paid", || async { state(&fixture, 1).await.as_deref() == Some("2 held") }).await;
    until("all else is settled", || async { fixture.pending().await == 1 }).await;
    // MySQL loses the order. A repair is killed after it has made the entry pending again.
    sql(&fixture, "DELETE FROM tb_voucher_order; DELETE FROM tidegate_event").await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 1").await;
    let names = StreamNames { stream: STREAM.into(), dead: DEAD.into(), group: GROUP.into() };
    let stream = Stream::new(redis_pool(&fixture.redis.url()).await, names);
    stream.make_pending(&[entry], "reconcile-0").await.expect("it is pending");
    add_event(&fixture, "paid", 1, &[("ref", "p")]).await;
    let waiting = "tidegate_entries_set_aside{cause=\"earlier_entry\"";
    until("the payment is handled", || async {
        sample(&worker, waiting).await == 1.0 || !recorded(&fixture, 1).await.is_empty()
    })
    .await;
    assert_eq!(recorded(&fixture, 1).await, Vec::<String>::new(), "nobody knows of its order yet");
    let offered = fixture.tidegate(&["consumers", "drain", "reconcile-0", "--yes"]);
    assert!(offered.status.success(), "{offered:?}");
    until("it is paid", || async { state(&fixture, 1).await.as_deref() == Some("2 held") }).await;
    assert_eq!(recorded(&fixture, 1).await, ["paid applied 0"]);
    rival.rollback().await.expect("free");
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

//! Tests of busy marks: sales are busy while the fleet is too far behind, and no order is lost.

use std::time::{Duration, Instant};

use fred::interfaces::{HashesInterface, KeysInterface};
use tidegate_orders::{
    RedisStore, VoucherId,
    scripts::{AdmitReply, BusyMark, PauseScope},
};
use tokio::time::sleep;

use crate::{
    browser::get,
    fixture::{DEADLINE, Fixture, until},
    order_event::operator,
    sale::{admission, ask, open},
};

async fn mark_of(fixture: &Fixture, voucher: i64) -> Option<String> {
    fixture.client.hget(format!("seckill:voucher:{voucher}"), "brake").await.expect("Redis answers")
}

/// Places orders, each of a new user, until one gets this answer.
async fn until_told(store: &RedisStore, ids: &mut impl Iterator<Item = i64>, expected: AdmitReply) {
    let began = Instant::now();
    while asks(store, ids.next().expect("an id")).await != expected {
        assert!(began.elapsed() < DEADLINE, "waited in vain for {expected:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn asks(store: &RedisStore, order: i64) -> AdmitReply {
    ask(store, order, order, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_too_far_behind_makes_sales_busy_and_not_beyond_half_of_that() {
    let (fixture, program, store) = open().await;
    program.run("voucher load --voucher 8 --stock 5").expect(0);
    program.run("pause --workers --yes").expect(0);
    let worker = fixture.worker("w").set("GATE_BUSY_AFTER_MS", 1_000).start();
    assert_eq!(asks(&store, 1).await, AdmitReply::Admitted);
    // No worker reads, so the first entry grows old.
    until("the sale is busy", || async { mark_of(&fixture, 7).await.is_some() }).await;
    let marked = Instant::now();
    assert_eq!(asks(&store, 2).await, AdmitReply::Busy);
    let many = store.admissions().admit_all(&[admission(3, 3, 1), admission(1, 1, 1)]).await;
    let many: Vec<AdmitReply> = many.into_iter().map(|reply| reply.expect("the store answers")).collect();
    assert_eq!(many, [AdmitReply::Busy, AdmitReply::AdmittedBefore], "what the journal knows comes first");
    let told = program.run("admit --voucher 7 --user 9").expect(1);
    assert!(told.stdout.contains("refused, busy"), "{told:?}");
    assert_eq!(program.run("voucher check --voucher 7 --user 9 --json").expect(1).json()["outcome"], "busy");
    assert_eq!(mark_of(&fixture, 8).await, None, "nobody asked for it");
    // The pause of an operator takes precedence, and neither ends the other.
    program.run("pause --voucher 7 --yes").expect(0);
    assert_eq!(asks(&store, 4).await, AdmitReply::Paused);
    program.run("resume --voucher 7 --yes").expect(0);
    assert_eq!(asks(&store, 4).await, AdmitReply::Busy);
    // The worker renews the mark, for longer than one mark lasts.
    until("a mark has lasted", || async { marked.elapsed() > Duration::from_secs(4) }).await;
    assert_eq!(asks(&store, 4).await, AdmitReply::Busy);
    assert_eq!(get(&worker, "/metrics").await.samples().get("tidegate_busy"), Some(&1.0));
    assert!(worker.log().contains("busy: orders come faster than they are written"), "{}", worker.log());
    program.run("resume --workers --yes").expect(0);
    until("orders are admitted again", || async { asks(&store, 5).await == AdmitReply::Admitted }).await;
    assert_eq!(mark_of(&fixture, 7).await, None);
    fixture.settled().await;
    assert_eq!(fixture.live_orders().await.len(), 2, "what was busy was not admitted");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_ends_by_itself_when_the_fleet_dies() {
    let (fixture, program, store) = open().await;
    program.run("pause --workers --yes").expect(0);
    let worker = fixture.worker("w").set("GATE_BUSY_AFTER_MS", 1_000).start();
    let mut ids = 1..;
    until_told(&store, &mut ids, AdmitReply::Busy).await;
    worker.kill9();
    let killed = Instant::now();
    until_told(&store, &mut ids, AdmitReply::Admitted).await;
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_sales_need_workers_they_are_refused_without_one_until_the_setting_is_taken_back() {
    let (fixture, program, store) = open().await;
    // A limit changes only the name of the stock.
    program.run("voucher load --voucher 8 --stock 500").expect(0);
    program.run("limit set --voucher 8 --name each --subject user --window order --units 1 --yes").expect(0);
    let worker = fixture.worker("w").set("GATE_NEEDS_WORKERS", "yes").start();
    for voucher in [7, 8] {
        until("sales are marked", || async { mark_of(&fixture, voucher).await.is_some() }).await;
    }
    assert_eq!(asks(&store, 1).await, AdmitReply::Admitted);
    let limited = |order: i64| {
        let mut wanted = admission(order, order, 1);
        wanted.voucher = 8.try_into().expect("an id");
        wanted
    };
    assert_eq!(store.admissions().admit(&limited(2)).await.expect("the store answers"), AdmitReply::Admitted);
    worker.kill9();
    let mut ids = 100..;
    until_told(&store, &mut ids, AdmitReply::Busy).await;
    assert_eq!(store.admissions().admit(&limited(3)).await.expect("the store answers"), AdmitReply::Busy);
    // A mark of the kind `from` begins at its time and has no end, and nothing in Redis removes it.
    for voucher in [7, 8] {
        let mark = mark_of(&fixture, voucher).await.expect("a mark");
        assert!(mark.starts_with("from "), "it does not end by itself: {mark}");
        assert_eq!(fixture.call(&format!("TTL seckill:voucher:{voucher}")).await.as_i64(), Some(-1));
    }
    let again = fixture.worker("v").set("GATE_NEEDS_WORKERS", "yes").start();
    until_told(&store, &mut ids, AdmitReply::Admitted).await;
    assert!(again.stop().await.success());
    // Without the setting, a worker removes the marks.
    let last = fixture.worker("u").start();
    until("no mark is left", || async {
        mark_of(&fixture, 7).await.is_none() && mark_of(&fixture, 8).await.is_none()
    })
    .await;
    assert!(last.stop().await.success());
    assert!(!fixture.client.exists::<bool, _>("tidegate:sweeper:need-workers").await.expect("Redis answers"));
    assert_eq!(asks(&store, 903).await, AdmitReply::Admitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_marked_is_a_sale_and_what_is_wrong_is_refused() {
    let (fixture, _, store) = open().await;
    let vouchers: Vec<_> = (1..=450).map(|id| id.try_into().expect("an id")).collect();
    let busy = BusyMark::BusyFor(Duration::from_secs(60));
    assert_eq!(marked(&store, &vouchers, busy).await, (1, vec![]), "only 7 is on sale");
    assert!(!fixture.client.exists::<bool, _>("seckill:voucher:8").await.expect("Redis answers"));
    store.sales().pause(7.try_into().expect("an id"), PauseScope::Own).await.expect("Redis answers");
    store.sales().mark_busy(&vouchers, busy).await.expect("Redis answers");
    assert_eq!(asks(&store, 1).await, AdmitReply::Paused);
    assert_eq!(marked(&store, &vouchers, BusyMark::None).await, (1, vec![]));
    assert_eq!(asks(&store, 1).await, AdmitReply::Paused);
    assert_eq!(marked(&store, &[], busy).await, (0, vec![]));
    // A key that is no hash is left out when marks are set and removed, and stays unchanged.
    for voucher in [3, 250] {
        fixture.redis_says(&["SET", &format!("seckill:voucher:{voucher}"), "rubbish"]).await;
    }
    assert_eq!(marked(&store, &vouchers, busy).await, (1, vec![3, 250]));
    assert_eq!(marked(&store, &vouchers, BusyMark::None).await, (1, vec![3, 250]));
    assert_eq!(mark_of(&fixture, 7).await, None);
    let kept: String = fixture.client.get("seckill:voucher:250").await.expect("Redis answers");
    assert_eq!(kept, "rubbish");
}

/// Marks vouchers. Returns the number of sales that were changed, and the vouchers that were left out.
async fn marked(store: &RedisStore, vouchers: &[VoucherId], busy_mark: BusyMark) -> (u64, Vec<i64>) {
    let marks = store.sales().mark_busy(vouchers, busy_mark).await.expect("Redis answers");
    (marks.changed, marks.left_out.iter().map(|voucher| voucher.get()).collect())
}

/// The time up to which a sale that needs workers is served, by its mark.
async fn served_until_ms(fixture: &Fixture, voucher: i64) -> u64 {
    let mark = mark_of(fixture, voucher).await.unwrap_or_default();
    mark.strip_prefix("from ").map_or(0, |ms| ms.parse().expect("milliseconds"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_whose_key_is_no_hash_makes_no_other_sale_busy_and_is_named() {
    let (fixture, program, store) = open().await;
    for voucher in [6, 8] {
        program.run(&format!("voucher load --voucher {voucher} --stock 100")).expect(0);
    }
    let worker = fixture.worker("w").set("GATE_NEEDS_WORKERS", "yes").start();
    until("sales are marked", || async { mark_of(&fixture, 8).await.is_some() }).await;
    fixture.redis_says(&["DEL", "seckill:voucher:6"]).await;
    fixture.redis_says(&["SET", "seckill:voucher:6", "rubbish"]).await;
    worker.says("a voucher cannot be marked as busy").await;
    assert!(worker.log().contains("voucher=6"), "{}", worker.log());
    let broken = served_until_ms(&fixture, 8).await;
    until("the marks of the others are renewed", || async {
        served_until_ms(&fixture, 7).await > broken && served_until_ms(&fixture, 8).await > broken
    })
    .await;
    assert_eq!(asks(&store, 1).await, AdmitReply::Admitted);
    assert_eq!(get(&worker, "/metrics").await.samples().get("tidegate_busy"), Some(&0.0));
    assert!(worker.stop().await.success());
    // The marks can also be removed.
    let last = fixture.worker("u").start();
    until("no mark is left", || async {
        mark_of(&fixture, 7).await.is_none() && mark_of(&fixture, 8).await.is_none()
    })
    .await;
    assert!(last.stop().await.success());
    assert_eq!(asks(&store, 2).await, AdmitReply::Admitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_renew_the_marks_says_so_and_counts_as_busy_until_it_can() {
    let (fixture, _, store) = open().await;
    let worker = fixture.worker("w").set("GATE_NEEDS_WORKERS", "yes").start();
    until("the sale is marked", || async { mark_of(&fixture, 7).await.is_some() }).await;
    let busy = async || get(&worker, "/metrics").await.samples().get("tidegate_busy").copied();
    assert_eq!(busy().await, Some(0.0));
    fixture.redis_says(&["ACL", "SETUSER", "default", "-hset"]).await;
    let mut ids = 1..;
    until_told(&store, &mut ids, AdmitReply::Busy).await;
    until("the metric says so", || async { busy().await == Some(1.0) }).await;
    worker.says("busy marks of sales are not renewed").await;
    fixture.redis_says(&["ACL", "SETUSER", "default", "+hset"]).await;
    until("the metric says that it is over", || async { busy().await == Some(0.0) }).await;
    until_told(&store, &mut ids, AdmitReply::Admitted).await;
    assert!(worker.stop().await.success());
}

/// A load just above the rate of the fleet: the sale is busy now and then, but its mark does not flap.
#[tokio::test(flavor = "multi_thread")]
async fn just_above_what_the_fleet_can_write_it_does_not_flap_and_the_queue_stays_short() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 100000").expect(0);
    let store = fixture.store().await;
    let slow = |name: &str| fixture.worker(name).set("WORKER_LANES", 1).set("WORKER_BATCH", 1);
    // The rate of a worker is measured without a mark, however far the worker falls behind meanwhile.
    let measured = slow("measured").start();
    for order in 1..=300 {
        assert_eq!(asks(&store, order).await, AdmitReply::Admitted);
    }
    let began = Instant::now();
    until("they are written", || async { fixture.live_orders().await.len() == 300 }).await;
    let mut written_per_s = 300.0 / began.elapsed().as_secs_f64();
    assert!(measured.stop().await.success());
    let worker = slow("w").set("GATE_BUSY_AFTER_MS", 1_000).start();
    worker.says("worker started").await;

    let (mut order, mut admitted, mut changes, mut was_busy, mut oldest_ms) = (300_i64, 300, 0, false, 0.0);
    let (mut due, mut settled) = (300.0, 300.0);
    let (began, mut looked, mut counted) = (Instant::now(), Instant::now(), Instant::now());
    while began.elapsed() < Duration::from_secs(10) {
        due += 1.3 * written_per_s * counted.elapsed().as_secs_f64();
        counted = Instant::now();
        while (order as f64) < due {
            order += 1;
            let reply = asks(&store, order).await;
            let is_busy = reply == AdmitReply::Busy;
            assert!(is_busy || reply == AdmitReply::Admitted, "{reply:?}");
            admitted += usize::from(!is_busy);
            changes += u32::from(is_busy != was_busy);
            was_busy = is_busy;
        }
        sleep(Duration::from_millis(5)).await;
        if looked.elapsed() > Duration::from_millis(300) {
            let status = program.run("status --json").json();
            // The rate of the fleet depends on the load of the machine.
            let settled_now = status["stream"]["entries_settled"].as_f64().expect("a number");
            written_per_s = (written_per_s + (settled_now - settled) / looked.elapsed().as_secs_f64()) / 2.0;
            (settled, looked) = (settled_now, Instant::now());
            oldest_ms =
                f64::max(oldest_ms, 1e3 * status["stream"]["oldest_undelivered_s"].as_f64().unwrap_or(0.0));
        }
    }
    assert!(changes >= 1, "it was never busy: {admitted} admitted");
    // The age of the oldest entry takes at least half a second from half of the threshold to all of it, which is two
    // changes.
    assert!(changes <= 2 * 10_000 / 500, "{changes} changes in 10 s");
    assert!((500.0..4_000.0).contains(&oldest_ms), "the oldest unread entry was {oldest_ms} ms old");
    until("all are written", || async { fixture.live_orders().await.len() == admitted }).await;
    assert!(worker.stop().await.success());
    fixture.judge().await;
}

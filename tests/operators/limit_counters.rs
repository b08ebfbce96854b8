//! Tests of `tidegate reconcile` and `tidegate audit` for limits: they compare the counters with the orders.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use fred::interfaces::HashesInterface;
use serde_json::Value as Json;
use tidegate_compare::{
    Pace,
    limit_counters::{CountersSet, LimitCounterCheck, NotComparedReason},
};
use tidegate_orders::{Subjects, scripts::Admission};
use tokio_util::sync::CancellationToken;

use crate::{
    fixture::{Fixture, until},
    order_event::operator,
    program::Program,
};

const OWN: &str = "seckill:uses:voucher:7";
const COMMON: &str = "seckill:uses:campaign:5";

async fn held(fixture: &Fixture, key: &str) -> BTreeMap<String, String> {
    fixture.client.hgetall(key).await.expect("Redis answers")
}

async fn write(fixture: &Fixture, key: &str, field: &str, value: &str) {
    fixture.client.hset::<(), _, _>(key, (field, value)).await.expect("Redis answers");
}

/// The findings of a comparison: the kind, the field, the counted numbers and those of the orders.
fn found(look: &Json) -> Vec<(String, String, String, String)> {
    let word = |value: &Json| value.as_str().unwrap_or("-").to_owned();
    let kinds = look["vouchers"].as_array().expect("vouchers").iter();
    let kinds = kinds.flat_map(|voucher| voucher["differences"].as_array().expect("differences"));
    let all = kinds.flat_map(|kind| kind["first"].as_array().expect("the first of them"));
    all.map(|it| {
        let counter = &it["counter"];
        (word(&it["kind"]), word(&counter["field"]), word(&counter["counted"]), word(&counter["held"]))
    })
    .collect()
}

fn apart(kind: &str, field: &str, counted: &str, held: &str) -> (String, String, String, String) {
    (kind.to_owned(), field.to_owned(), counted.to_owned(), held.to_owned())
}

/// A sale of voucher 7 with three live orders. One user has two of them.
async fn sale_with_limits(fixture: &Fixture, program: &Program) {
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 3 --yes").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 5 --yes")
        .expect(0);
    program.run("limit set --voucher 7 --name fast --rate 100/1s --yes").expect(0);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    let worker = fixture.worker("w").start();
    for (user, phone, quantity) in [(1, "a", 2), (1, "a", 1), (2, "b", 1)] {
        let order = format!("admit --voucher 7 --user {user} --quantity {quantity} --subject phone={phone}");
        program.run(&order).expect(0);
    }
    let gone = program.run("admit --voucher 7 --user 3 --subject phone=b --json").expect(0).json();
    until("all are written", || async { fixture.live_orders().await.len() == 4 }).await;
    program.run(&format!("order event cancelled {} --yes", gone["order"].as_str().expect("an id"))).expect(0);
    until("one is cancelled", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_and_slots_that_somebody_changed_are_named_one_by_one_and_set_by_a_repair() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    sale_with_limits(&fixture, &program).await;
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    fixture.judge().await;
    let mut before = held(&fixture, OWN).await;
    let day = before["2:a"].split(':').next().expect("a window").to_owned();
    assert_eq!((before["2:a"].as_str(), before["u:1"].as_str()), (format!("{day}:2:3").as_str(), "3"));

    // Counters that are too high, too low, missing, without an order, and unreadable; slots that are too many, too few,
    // and without an order.
    write(&fixture, OWN, "2:a", &format!("{day}:5:9")).await;
    write(&fixture, OWN, "1:1", "0:1:3").await;
    fixture.client.hdel::<(), _, _>(OWN, "2:b").await.expect("Redis answers");
    write(&fixture, OWN, "2:nobody", &format!("{day}:1:1")).await;
    write(&fixture, OWN, "1:9", "many").await;
    write(&fixture, OWN, "u:1", "7").await;
    write(&fixture, OWN, "u:2", "2").await;
    write(&fixture, OWN, "u:9", "1").await;
    // No order is checked against these counters: their day is over, or their limit does not exist.
    for (field, value) in [("2:c", "19000:1:1"), ("9:1", "0:1:1")] {
        write(&fixture, OWN, field, value).await;
        before.insert(field.to_owned(), value.to_owned());
    }
    let counters = ["1:1", "1:9", "2:a", "2:b", "2:nobody"].map(|field| format!("counter {field}: "));
    let slots = ["1", "2", "9"].map(|user| format!("slots of user {user}: "));
    fixture.judge_except(&[&counters[..], &slots[..]].concat()).await;
    let uses = "limit_uses_mismatch";
    let expected = [
        apart(uses, "1:1", "0:1:3", "0:2:3"),
        apart(uses, "1:9", "many", "-"),
        apart(uses, "2:a", &format!("{day}:5:9"), &format!("{day}:2:3")),
        apart(uses, "2:b", "-", &format!("{day}:1:1")),
        apart(uses, "2:nobody", &format!("{day}:1:1"), "-"),
        apart("slots_mismatch", "u:1", "7", "3"),
        apart("slots_mismatch", "u:2", "2", "1"),
        apart("slots_mismatch", "u:9", "1", "-"),
    ];
    let look = program.run("reconcile --json").expect(1).json();
    assert_eq!(found(&look), expected, "{look:#}");
    let told = program.run("reconcile --voucher 7").expect(1);
    let line = format!("counter 2:a (limit phones of voucher:7) is {day}:5:9, but should be {day}:2:3");
    assert!(told.stdout.contains(&line), "{told:#?}");
    let audit = program.run("audit").expect(1);
    assert!(audit.stdout.contains("It does NOT hold") && audit.stdout.contains(&line), "{audit:#?}");
    assert!(audit.stdout.contains("counter u:1 (slots of voucher:7) is 7, but should be 3"), "{audit:#?}");

    let dry = program.run("reconcile --repair --dry-run").expect(0);
    assert!(
        dry.stdout.contains("voucher 7: 8 counters to be set to the sum of the counted orders"),
        "{dry:#?}"
    );
    assert_eq!(found(&program.run("reconcile --json").expect(1).json()), expected, "nothing was changed");
    let repaired = program.run("reconcile --repair --yes").expect(0);
    assert!(repaired.stdout.contains("8 counters set to the sum of the counted orders"), "{repaired:#?}");
    assert_eq!(held(&fixture, OWN).await, before);
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    fixture.judge().await;
    let log = program.run("log").expect(0);
    assert!(log.stdout.contains("counters of voucher:7"), "{log:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_of_a_campaign_is_compared_with_the_orders_of_all_its_regions() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    campaign(&fixture, &program).await;
    let worker = fixture.worker("w").start();
    for (voucher, user) in [(101, 1), (102, 2), (102, 3)] {
        program.run(&format!("admit --voucher {voucher} --user {user} --subject phone=a")).expect(0);
    }
    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    program.run("reconcile").expect(0);
    program.run("reconcile --voucher 102").expect(0);
    assert_eq!(held(&fixture, COMMON).await["1:a"], "0:3:3");
    // The counter is as high as the uses of one region.
    write(&fixture, COMMON, "1:a", "0:2:2").await;
    let expected = [apart("limit_uses_mismatch", "1:a", "0:2:2", "0:3:3")];
    for look in ["reconcile --json", "reconcile --voucher 101 --json", "reconcile --voucher 102 --json"] {
        let look = program.run(look).expect(1).json();
        assert_eq!(found(&look), expected, "told once: {look:#}");
    }
    let audit = program.run("audit").expect(1);
    assert!(audit.stdout.contains("(limit phones of campaign:5)"), "{audit:#?}");
    program.run("reconcile --repair --yes").expect(0);
    assert_eq!(held(&fixture, COMMON).await["1:a"], "0:3:3");
    program.run("reconcile").expect(0);
    fixture.judge().await;
}

async fn campaign(fixture: &Fixture, program: &Program) {
    let regions = fixture.file("regions.csv", "north,101,100\nsouth,102,100\n");
    program.run(&format!("campaign load --campaign 5 --regions {}", regions.display())).expect(0);
    program
        .run("limit set --campaign 5 --name phones --subject phone --window sale --orders 3 --yes")
        .expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_was_passed_is_named_until_orders_end_and_one_that_was_lowered_is_not() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    campaign(&fixture, &program).await;
    sqlx::query("UPDATE tidegate_limit SET set_at = set_at - INTERVAL 1 HOUR")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let worker = fixture.worker("w").start();
    let admit = |voucher: i64, user: i64| {
        let admitted =
            program.run(&format!("admit --voucher {voucher} --user {user} --subject phone=a --json"));
        admitted.expect(0).json()["order"].as_str().expect("an id").to_owned()
    };
    for user in 1..=3 {
        admit(101, user);
    }
    // Redis loses the counter, and two more orders pass the limit.
    fixture.client.hdel::<(), _, _>(COMMON, "1:a").await.expect("Redis answers");
    let last = [admit(102, 4), admit(102, 5)];
    until("all are written", || async { fixture.live_orders().await.len() == 5 }).await;
    fixture.settled().await;
    let (uses, passed) = ("limit_uses_mismatch", "limit_passed");
    let both = [apart(uses, "1:a", "0:2:2", "0:5:5"), apart(passed, "1:a", "0:2:2", "0:5:5")];
    let look = program.run("reconcile --json").expect(1).json();
    assert_eq!(found(&look), both, "{look:#}");
    let dry = program.run("reconcile --repair --dry-run").expect(0);
    assert!(dry.stdout.contains("not repaired: 1 difference of limit_passed"), "{dry:#?}");
    // No other order passes, and the difference stays in the report.
    program.run("reconcile --repair --yes").expect(1);
    assert_eq!(held(&fixture, COMMON).await["1:a"], "0:5:5");
    for _ in 0..2 {
        let look = program.run("reconcile --json").expect(1).json();
        assert_eq!(found(&look), [apart(passed, "1:a", "0:5:5", "0:5:5")], "{look:#}");
        program.run("reconcile --repair --yes").expect(1);
    }
    let audit = program.run("audit").expect(1);
    assert!(audit.stdout.contains("exceed limit phones of campaign:5"), "{audit:#?}");
    fixture.judge_except(&["campaign:5: 1:a passes limit phones"]).await;
    for order in &last {
        program.run(&format!("order event cancelled {order} --yes")).expect(0);
    }
    until("they end", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    program.run("reconcile").expect(0);
    // The limit is lowered since: no order has passed it.
    program
        .run("limit set --campaign 5 --name phones --subject phone --window sale --orders 1 --yes")
        .expect(0);
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_goes_on_gives_no_false_alarm_and_a_counter_that_is_wrong_in_it_is_found() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    campaign(&fixture, &program).await;
    for limit in ["all --window sale --orders 1000000", "days --subject user --window day --orders 1000"] {
        program.run(&format!("limit set --voucher 101 --name {limit} --yes")).expect(0);
    }
    program.run("voucher add --voucher 101 --units 1000000 --yes").expect(0);
    let worker = fixture.worker("w").start();
    let (stop, next, store) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(1)), fixture.store().await);
    let buyer = |shard: i64| {
        let (stop, next, store) = (Arc::clone(&stop), Arc::clone(&next), store.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                let id = next.fetch_add(1, Ordering::Relaxed);
                let subjects = Subjects::none().with("phone", &format!("p{id}")).expect("a phone");
                let admission = Admission {
                    order: (id * 10 + shard).try_into().expect("an id"),
                    user: (id % 500 + 1).try_into().expect("a user"),
                    voucher: 101.try_into().expect("a voucher"),
                    quantity: (1 + id % 3).try_into().expect("a quantity"),
                    subjects,
                    traceparent: None,
                };
                store.admissions().admit(&admission).await.expect("the store answers");
            }
        }
    };
    let buyers = [tokio::spawn(buyer(1)), tokio::spawn(buyer(2))];
    let canceller = {
        let (stop, program) = (Arc::clone(&stop), operator(&fixture));
        let pool = fixture.pool.clone();
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let any = "SELECT id FROM tb_voucher_order WHERE slot IS NOT NULL ORDER BY id DESC LIMIT 1";
                let Ok(order) = sqlx::query_scalar::<_, i64>(any).fetch_one(&pool).await else { continue };
                program.run(&format!("order event cancelled {order} --yes")).expect(0);
            }
        })
    };
    until("it is going on", || async { fixture.live_orders().await.len() > 300 }).await;
    for _ in 0..3 {
        let look = program.run("reconcile --json");
        assert_eq!(look.code, 0, "{look:#?}");
    }
    program.run("audit").expect(0);
    // A comparison also finds a wrong counter that every order changes.
    let all: String = fixture.client.hget("seckill:uses:voucher:101", "1:").await.expect("Redis answers");
    assert!(all.starts_with("0:"), "{all}");
    fixture.redis_says(&["EVAL", MOVE, "1", "seckill:uses:voucher:101"]).await;
    let look = program.run("reconcile --json").expect(1).json();
    let found = found(&look);
    assert_eq!(
        found.iter().map(|it| (it.0.as_str(), it.1.as_str())).collect::<Vec<_>>(),
        [("limit_uses_mismatch", "1:")]
    );
    stop.store(true, Ordering::Relaxed);
    for task in buyers.into_iter().chain([canceller]) {
        task.await.expect("it ends well");
    }
    fixture.settled().await;
    program.run("reconcile --repair --yes").expect(0);
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

/// Adds a thousand orders that do not exist to a counter.
const MOVE: &str = "local orders, units = string.match(redis.call('HGET', KEYS[1], '1:'), '^0:(%d+):(%d+)$') \
    return redis.call('HSET', KEYS[1], '1:', '0:' .. orders + 1000 .. ':' .. units + 1000)";

#[tokio::test(flavor = "multi_thread")]
async fn what_orders_hold_that_were_compacted_is_known_from_mysql() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 3 --yes").expect(0);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    let plan = fixture.worker("w").set("RECONCILE_EVERY_S", 1).set("RECONCILE_COMPACT_AFTER_S", 1);
    let worker = plan.start();
    let mut orders = Vec::new();
    for _ in 0..2 {
        let order = program.run("admit --voucher 7 --user 1 --json").expect(0).json();
        orders.push(order["order"].as_str().expect("an id").to_owned());
    }
    fixture.settled().await;
    for event in ["paid", "used"] {
        program.run(&format!("order event {event} {} --yes", orders[0])).expect(0);
    }
    fixture.settled().await;
    fixture.redis_says(&["XTRIM", "stream.orders", "MAXLEN", "0"]).await;
    until("it is compacted", || async {
        fixture.redis_says(&["HEXISTS", "seckill:journal:7", &orders[0]]).await.as_i64() == Some(0)
    })
    .await;
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    assert!(worker.stop().await.success());
    write(&fixture, OWN, "1:1", "0:1:1").await;
    write(&fixture, OWN, "u:1", "2").await;
    let look = program.run("reconcile --json").expect(1).json();
    let expected =
        [apart("limit_uses_mismatch", "1:1", "0:1:1", "0:2:2"), apart("slots_mismatch", "u:1", "2", "3")];
    assert_eq!(found(&look), expected, "{look:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_ends_before_a_lost_counter_is_set_is_not_counted_for_ever() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 3 --yes").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 3 --yes")
        .expect(0);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    let worker = fixture.worker("w").start();
    let mut orders = Vec::new();
    for _ in 0..2 {
        let order = program.run("admit --voucher 7 --user 1 --subject phone=a --json").expect(0).json();
        orders.push(order["order"].as_str().expect("an id").to_owned());
    }
    fixture.settled().await;
    let counted = held(&fixture, OWN).await;
    let day = counted["2:a"].split(':').next().expect("a window").to_owned();
    // One counter is lost, one is of a day that is over, and one lacks the second slot.
    fixture.client.hdel::<(), _, _>(OWN, "1:1").await.expect("Redis answers");
    write(&fixture, OWN, "2:a", "19000:1:1").await;
    write(&fixture, OWN, "u:1", "1").await;

    let (store, stop) = (fixture.store().await, CancellationToken::new());
    let check = LimitCounterCheck::new(&store, &fixture.pool, Pace::Full, &stop);
    let seven = [7.try_into().expect("a voucher")];
    let found = check.compare(&seven).await.expect("both answer").differences;
    assert_eq!(found.len(), 3, "{found:?}");
    program.run(&format!("order event cancelled {} --yes", orders[1])).expect(0);
    fixture.settled().await;
    let mut done = CountersSet::default();
    check.set(found, &mut done).await.expect("both answer");
    assert!(done.left.is_empty(), "{done:?}");
    let now = held(&fixture, OWN).await;
    let one = format!("{day}:1:1");
    assert_eq!((now["1:1"].as_str(), now["2:a"].as_str(), now["u:1"].as_str()), ("0:1:1", one.as_str(), "1"));
    assert!(check.compare(&seven).await.expect("both answer").differences.is_empty());
    program.run("reconcile").expect(0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_is_gone_or_cannot_be_read_lowers_no_counter_and_is_said() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    sale_with_limits(&fixture, &program).await;
    // The order is only in the journal and the stream.
    let order = program.run("admit --voucher 7 --user 4 --subject phone=d --json").expect(0).json();
    let order = order["order"].as_str().expect("an id").to_owned();
    let before = held(&fixture, OWN).await;
    let (store, stop) = (fixture.store().await, CancellationToken::new());
    let check = LimitCounterCheck::new(&store, &fixture.pool, Pace::Full, &stop);
    let seven = [7.try_into().expect("a voucher")];
    let why = async || {
        let report = check.compare(&seven).await.expect("both answer");
        assert!(report.differences.is_empty(), "{report:?}");
        report.not_compared.into_iter().map(|not| not.why).collect::<Vec<_>>()
    };
    assert_eq!(why().await, []);

    let journal = "seckill:journal:7";
    write(&fixture, journal, &order, "?").await;
    assert_eq!(why().await, [NotComparedReason::UnreadableNotes]);
    fixture.redis_says(&["DEL", journal]).await;
    assert_eq!(why().await, [NotComparedReason::JournalGone]);
    let said = "counters of voucher:7 were not compared: a journal is missing in Redis";
    for command in ["reconcile", "audit"] {
        let told = program.run(command);
        assert!(told.stdout.contains(said), "{told:#?}");
        let json = program.run(&format!("{command} --json")).json();
        assert_eq!(json["counters_not_compared"][0]["why"], "journal_gone", "{json:#}");
    }
    program.run("reconcile --repair --yes");
    assert_eq!(held(&fixture, OWN).await, before);
}

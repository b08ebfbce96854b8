//! Tests of the judge of the other tests: it must find each fault. A judge that never finds one proves nothing.

mod breaks;

use std::collections::BTreeMap;

use fred::interfaces::StreamsInterface;
use sqlx::AssertSqlSafe;

use crate::fixture::{
    DEAD, Fixture, GROUP, STREAM,
    invariants::{Ends, fates},
    rush::{Wanted, Way},
};

async fn sql(fixture: &Fixture, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&fixture.pool).await.expect("MySQL answers");
}

/// The first voucher. Each break has a voucher of its own, and the ids of its orders begin with its number.
const FIRST: i64 = 101;
const STOCK: i64 = 100;

/// Puts a voucher on sale whose journal is complete, as `lua/load.lua` does.
async fn load(fixture: &Fixture, voucher: i64) {
    fixture.load(voucher, STOCK).await;
    let note = format!(r#"{{"action":"load","from":null,"to":{STOCK},"change":{STOCK},"by":"test"}}"#);
    fixture.call(&format!("HSET seckill:journal:{voucher} #load {note} #complete {{}}")).await;
}

/// Order 1 is live, 2 is paid, 3 is cancelled, 4 is the refused second order of user 1, and 5 came by XADD alone.
/// Another user's entry with the id of order 1 is a dead letter.
async fn sell(fixture: &Fixture, voucher: i64) {
    let id = |nth: i64| 10 * voucher + nth;
    for (nth, quantity) in [(1, 2), (2, 1), (3, 1)] {
        fixture.admit(id(nth), nth, voucher, quantity).await;
    }
    fixture.add_order(id(4), 1, voucher).await;
    fixture.add_order(id(5), 5, voucher).await;
    let (voucher, taken) = (voucher.to_string(), id(1).to_string());
    fixture.add(&[("userId", "9"), ("voucherId", &voucher), ("id", &taken)]).await;
    for (event, nth, reference) in [("paid", 2, "p"), ("cancelled", 3, "c")] {
        let (order, user) = (id(nth).to_string(), nth.to_string());
        let fields = [("event", event), ("orderId", &order), ("userId", &user), ("voucherId", &voucher)];
        fixture.add(&[&fields[..], &[("ref", reference)]].concat()).await;
    }
}

/// Vouchers with limits: five with one limit each, the two regions of a campaign, and the region of another campaign.
/// Each is sold to users 1 and 2.
async fn sell_with_limits(fixture: &Fixture, vouchers: [i64; 8]) {
    let program = |line: String| {
        let done = fixture.tidegate(&line.split(' ').collect::<Vec<_>>());
        assert!(done.status.success(), "{line}: {done:?}");
    };
    let [.., north, south, east] = vouchers;
    for (campaign, regions) in
        [(5, format!("north,{north},100\nsouth,{south},100\n")), (6, format!("east,{east},100\n"))]
    {
        let regions = fixture.file("regions.csv", &regions);
        program(format!("campaign load --campaign {campaign} --regions {}", regions.display()));
        let limit = "--name ours --subject user --window month --orders 3 --yes";
        program(format!("limit set --campaign {campaign} {limit}"));
    }
    for voucher in &vouchers[..5] {
        load(fixture, *voucher).await;
        let limit = "--name mine --subject user --window sale --orders 3 --yes";
        program(format!("limit set --voucher {voucher} {limit}"));
    }
    for voucher in vouchers {
        for user in [1, 2] {
            fixture.admit(10 * voucher + user, user, voucher, 1).await;
        }
    }
}

/// Deletes the dead letter of this order.
async fn delete_letter(fixture: &Fixture, order: &str) {
    let letters: Vec<(String, BTreeMap<String, String>)> =
        fixture.client.xrange(DEAD, "-", "+", None).await.expect("Redis answers");
    let (letter, _) = letters.iter().find(|(_, fields)| fields["id"] == order).expect("it is buried");
    fixture.call(&format!("XDEL {DEAD} {letter}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fact_that_is_broken_by_hand_is_named() {
    let fixture = Fixture::open().await;
    let of_limits = [11, 12, 13, 14, 15, 16, 17, 18];
    sell_with_limits(&fixture, of_limits).await;
    let of_sales = FIRST..FIRST + breaks::OF_SALES.len() as i64;
    for voucher in of_sales.clone() {
        load(&fixture, voucher).await;
        sell(&fixture, voucher).await;
    }
    let no_order = fixture.add(&[("userId", "nobody"), ("voucherId", "1"), ("id", "1")]).await;
    // There is one lane, because the later of two lanes might write the taken id first.
    let worker = fixture.worker("w").set("WORKER_LANES", 1).start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    fixture.judge().await;

    sql(&fixture, "ALTER TABLE tb_voucher_order DROP INDEX uk_voucher_user_slot").await;
    sql(&fixture, "UPDATE tidegate_limit SET set_at = set_at - INTERVAL 1 DAY").await;
    delete_letter(&fixture, "1").await;
    let cases =
        || of_sales.clone().zip(&breaks::OF_SALES).chain(of_limits.into_iter().zip(&breaks::OF_LIMITS));
    for (voucher, (how, _)) in cases() {
        how.happens(&fixture, voucher).await;
    }
    let found = fixture.mismatches().await;
    for (voucher, (how, expected)) in cases() {
        let expected = breaks::of(expected, voucher);
        assert!(found.iter().any(|what| what.contains(&expected)), "{how:?}: {expected}: {found:#?}");
    }
    let expected = format!("entry {no_order} is neither order nor event, settled, and not buried");
    assert!(found.contains(&expected), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_nobody_can_judge_are_named() {
    let fixture = Fixture::open().await;
    fixture.judge().await;
    fixture.add_order(1, 1, FIRST).await;
    let without_a_group = format!("{STREAM} has 1 entries, and no group {GROUP}");
    fixture.judge_except(&[&without_a_group]).await;
    fixture.call(&format!("XGROUP CREATE {STREAM} other 0")).await;
    fixture.judge_except(&[&without_a_group]).await;
    fixture.call(&format!("XGROUP CREATE {STREAM} {GROUP} 0")).await;
    fixture.judge_except(&[format!("{STREAM} has 1 open entries")]).await;
    for stream in [STREAM, DEAD] {
        fixture.call(&format!("DEL {stream}")).await;
        fixture.call(&format!("SET {stream} 1")).await;
    }
    fixture
        .judge_except(&[STREAM, DEAD].map(|stream| format!("{stream}: Invalid Argument: WRONGTYPE")))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "a number or -: \"1 mine user sale 0 many -\"")]
async fn rules_that_nobody_can_read_are_no_rules_without_bounds() {
    let fixture = Fixture::open().await;
    fixture.load(FIRST, STOCK).await;
    let rules = "1 -;1 mine user sale 0 many -";
    fixture.redis_says(&["HSET", &format!("seckill:limits:voucher:{FIRST}"), "rules", rules]).await;
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_which_its_caller_was_told_may_be_missing_only_if_a_failover_may_have_lost_it() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100).await;
    let (caller_log, wanted) =
        (&fixture.caller_log, Wanted { user: 1, voucher: 7, quantity: 1, way: Way::Gate });
    let missing = async || fates(&caller_log.read(), &Ends::read(&fixture.pool).await);
    let unanswered = caller_log.ask(1, wanted);
    assert_eq!(missing().await, [""; 0], "its caller got no answer");
    caller_log.begin_risk();
    caller_log.told(&unanswered);
    let asked_at_risk = caller_log.ask(2, wanted);
    caller_log.told(&asked_at_risk);
    assert_eq!(missing().await, [""; 0], "they were answered while a failover may lose them");
    let asked_at_risk = caller_log.ask(3, wanted);
    caller_log.end_risk();
    caller_log.told(&asked_at_risk);
    let refused = caller_log.ask(4, wanted);
    caller_log.refused(&refused);
    assert_eq!(missing().await, [""; 0]);
    let safe = caller_log.ask(5, wanted);
    caller_log.told(&safe);
    let found = missing().await;
    assert!(found.len() == 1 && found[0].starts_with("order 5: "), "{found:?}");
    // An order that was admitted during the failover may be lost, but must not be refused.
    sql(
        &fixture,
        "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
         VALUES (2, 1, 7, 1, 'out_of_stock', '1-1')",
    )
    .await;
    let found = missing().await;
    assert!(found.len() == 2 && found[0].starts_with("order 2: "), "{found:?}");
    sql(&fixture, "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (5, 1, 7), (6, 6, 7)").await;
    let found = missing().await;
    assert!(found.iter().any(|what| what == "order 6 was never admitted"), "{found:?}");
    assert!(!found.iter().any(|what| what.starts_with("order 5")), "{found:?}");
}

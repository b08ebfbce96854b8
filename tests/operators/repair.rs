//! Tests of `tidegate reconcile --repair`: one command repairs all differences during a sale.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::{
    browser::until_all,
    fixture::{Fixture, until},
    program::Program,
    sale::{self, program},
};

const VOUCHER: i64 = 21;
const ORDERS: i64 = 40;
/// The number of orders that are paid.
const PAID: i64 = 15;

async fn sql(fixture: &Fixture, statements: &[&str]) {
    for statement in statements {
        let statement = statement.replace("VOUCHER", &VOUCHER.to_string());
        sale::sql(fixture, statement).await;
    }
}

/// The number of orders by status, with the units left in MySQL and in Redis.
async fn state(fixture: &Fixture) -> (Vec<(i64, i64)>, i64, Option<i64>) {
    let statuses =
        "SELECT CAST(status AS SIGNED), COUNT(*) FROM tb_voucher_order GROUP BY status ORDER BY status";
    let statuses = sqlx::query_as(statuses).fetch_all(&fixture.pool).await.expect("MySQL answers");
    let stock = "SELECT CAST(stock AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = ?";
    let stock =
        sqlx::query_scalar(stock).bind(VOUCHER).fetch_one(&fixture.pool).await.expect("MySQL answers");
    let in_redis = fixture.redis_says(&["GET", &format!("seckill:stock:{VOUCHER}")]).await;
    (statuses, stock, in_redis.as_i64())
}

/// Sells orders with payments, and waits until all are settled.
async fn sell(fixture: &Fixture, program: &Program) {
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    for order in 1..=ORDERS {
        fixture.admit(order, 500 + order, VOUCHER, 1).await;
    }
    fixture.settled().await;
    for order in 1..=PAID {
        program.run(&format!("order event paid {order} --ref p{order} --yes")).expect(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_and_payments_that_mysql_lost_come_back_and_what_hands_did_to_redis_is_repaired() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    sell(&fixture, &program).await;
    program.run("reconcile").expect(0);
    let before = state(&fixture).await;
    assert_eq!(before, (vec![(1, ORDERS - PAID), (2, PAID)], 100 - ORDERS, Some(100 - ORDERS)));

    // MySQL has its state of an hour ago, and Redis was changed manually.
    let restored = [
        "DELETE FROM tb_voucher_order WHERE id > 5",
        "DELETE FROM tidegate_event WHERE order_id > 5",
        "UPDATE tb_seckill_voucher SET stock = 95 WHERE voucher_id = VOUCHER",
    ];
    sql(&fixture, &restored).await;
    fixture.redis_says(&["INCRBY", &format!("seckill:stock:{VOUCHER}"), "7"]).await;
    fixture.redis_says(&["SADD", &format!("seckill:order:{VOUCHER}"), "9999"]).await;
    fixture.redis_says(&["SREM", &format!("seckill:order:{VOUCHER}"), "501"]).await;
    program.run("reconcile").expect(1);

    let planned = program.run("reconcile --repair --dry-run").expect(0).stdout;
    assert!(planned.contains("35 orders to handle again") && planned.contains("dry run"), "{planned}");
    program.run("reconcile").expect(1);
    let done = program.run("reconcile --repair --yes").expect(0).stdout;
    assert!(done.contains("35 orders written again, 10 events recorded again"), "{done}");
    assert!(done.contains("the stock in Redis changed by -7"), "{done}");
    assert_eq!(state(&fixture).await, before);
    program.run("reconcile").expect(0);
    fixture.judge().await;
    let again = program.run("reconcile --repair --yes").expect(0).stdout;
    assert!(again.contains("Both stores agree"), "{again}");
    let story = program.run("log --json").expect(0).stdout;
    assert!(story.contains("reconcile"), "{story}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_cancelled_by_its_own_hand_is_released_once() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    sell(&fixture, &program).await;
    // A service cancels order 20 in both stores, as the tutorial's services do, and order 21 in MySQL only.
    let by_hand = [
        "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id IN (20, 21)",
        "UPDATE tb_seckill_voucher SET stock = stock + 2 WHERE voucher_id = VOUCHER",
    ];
    sql(&fixture, &by_hand).await;
    fixture.redis_says(&["INCR", &format!("seckill:stock:{VOUCHER}")]).await;
    fixture.redis_says(&["SREM", &format!("seckill:order:{VOUCHER}"), "520"]).await;

    let done: Json = program.run("reconcile --repair --yes --json").expect(0).json();
    assert_eq!(done["released"], json!(2), "{done:#}");
    let (_, in_mysql, in_redis) = state(&fixture).await;
    assert_eq!((in_mysql, in_redis), (62, Some(62)));
    program.run("reconcile").expect(0);
    // Both users may order again.
    for user in [520, 521] {
        fixture.admit(1_000 + user, user, VOUCHER, 1).await;
    }
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_a_redis_that_went_back_sold_twice_are_neither_on_sale_nor_lost_afterwards() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 5")).expect(0);
    for order in 1..=5 {
        fixture.admit(order, order, VOUCHER, 1).await;
    }
    fixture.settled().await;
    // A replica without these orders was promoted, and sold their units once more: MySQL refuses.
    let (stock, buyers, journal) = (
        format!("seckill:stock:{VOUCHER}"),
        format!("seckill:order:{VOUCHER}"),
        format!("seckill:journal:{VOUCHER}"),
    );
    for order in 1..=5 {
        fixture.redis_says(&["HDEL", &journal, &order.to_string()]).await;
        fixture.redis_says(&["SREM", &buyers, &order.to_string()]).await;
    }
    fixture.redis_says(&["INCRBY", &stock, "5"]).await;
    for order in 11..=15 {
        fixture.admit(order, order, VOUCHER, 1).await;
    }
    fixture.settled().await;
    assert_eq!(state(&fixture).await, (vec![(1, 5)], 0, Some(0)));
    program.run("reconcile").expect(1);
    program.run("reconcile --repair --yes").expect(0);
    assert_eq!(state(&fixture).await, (vec![(1, 5)], 0, Some(0)), "nothing is owed to the refused");
    program.run("reconcile").expect(0);
    fixture.judge().await;
    // A released unit is on sale again, in both stores.
    program.run("order event cancelled 1 --yes").expect(0);
    assert_eq!(state(&fixture).await, (vec![(1, 4), (4, 1)], 1, Some(1)));
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

/// The tables with orders and their events.
const TABLES: [&str; 5] =
    ["tb_voucher_order", "tb_seckill_voucher", "tidegate_event", "tidegate_refusal", "tidegate_unpaid_order"];

/// Copies the tables.
async fn back_up(fixture: &Fixture) {
    for table in TABLES {
        sql(fixture, &[&format!("CREATE TABLE before_{table} AS SELECT * FROM {table}")]).await;
    }
}

/// Restores the copied tables.
async fn restore(fixture: &Fixture) {
    let back = TABLES
        .map(|table| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM before_{table};"))
        .concat();
    let mark = "UPDATE tidegate_fleet_mark SET mark = mark - 2, confirmed = mark";
    let all = format!("START TRANSACTION; {back} {mark}; COMMIT");
    sqlx::raw_sql(sqlx::AssertSqlSafe(all)).execute(&fixture.pool).await.expect("MySQL does it");
}

/// The events in MySQL, without their times.
async fn history(fixture: &Fixture) -> Vec<String> {
    let events = "SELECT CONCAT_WS(' ', order_id, step, event, outcome, from_status, to_status, released, entry_id) \
                  FROM tidegate_event ORDER BY order_id, step";
    sqlx::query_scalar(events).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

async fn append(fixture: &Fixture, event: &str, (order, user, voucher): (i64, i64, i64)) -> String {
    let (order, user, voucher) = (order.to_string(), user.to_string(), voucher.to_string());
    let reference = format!("{event}-{order}");
    let whose = [("orderId", order.as_str()), ("userId", &user), ("voucherId", &voucher)];
    fixture.add(&[&[("event", event), ("ref", &reference)], whose.as_slice()].concat()).await
}

/// The orders of each kind of difference.
fn orders_by_kind(look: &Json) -> BTreeMap<String, Vec<i64>> {
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for count in
        look["vouchers"].as_array().unwrap().iter().flat_map(|it| it["differences"].as_array().unwrap())
    {
        let orders = count["first"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["order"].as_str()?.parse::<i64>().ok());
        found.entry(count["kind"].as_str().unwrap().to_owned()).or_default().extend(orders);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_event_that_mysql_lost_is_found_and_recorded_again_with_all_that_it_does() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    for order in 1..=10 {
        fixture.admit(order, 500 + order, VOUCHER, 1).await;
    }
    // The orders of a producer that keeps no journal.
    let plain = VOUCHER + 1;
    fixture.load(plain, 100).await;
    for order in [20, 21] {
        fixture.add_order(order, 500 + order, plain).await;
    }
    fixture.settled().await;
    back_up(&fixture).await;
    let lives: [(i64, &[&str]); 10] = [
        (1, &["paid"]),
        (2, &["paid", "used"]),
        (3, &["paid", "refunding"]),
        (4, &["paid", "refunding", "refunded"]),
        (5, &["paid", "refunding", "refund_failed"]),
        (6, &["cancelled"]),
        (7, &["expired"]),
        // The payment comes too late, so it has to be refunded.
        (8, &["cancelled", "paid"]),
        (9, &["used"]),
        // There is no such order.
        (99, &["paid"]),
    ];
    for (order, events) in lives {
        for event in events {
            append(&fixture, event, (order, 500 + order, VOUCHER)).await;
        }
    }
    // These payments name the user of another order, or no user of an order.
    append(&fixture, "paid", (10, 77, VOUCHER)).await;
    append(&fixture, "paid", (20, 520, plain)).await;
    fixture.settled().await;
    let (before, happened) = (state(&fixture).await, history(&fixture).await);
    assert_eq!(happened.len(), 19, "{happened:?}");
    program.run("reconcile").expect(0);

    restore(&fixture).await;
    let look = program.run("reconcile --json").expect(1).json();
    let mut expected: Vec<i64> = lives.iter().map(|(order, _)| *order).collect();
    expected.extend([10, 20]);
    expected.sort_unstable();
    let mut found = orders_by_kind(&look);
    found.values_mut().for_each(|orders| orders.sort_unstable());
    assert_eq!(found, BTreeMap::from([("lost_event".to_owned(), expected)]), "{look:#}");
    let first = &look["vouchers"][0]["differences"][0]["first"][0];
    assert_eq!(
        (&first["cause"], &first["repair"]),
        (&json!("acknowledged_and_not_written"), &json!("record_events"))
    );
    let text = program.run("reconcile").expect(1).stdout;
    assert!(text.contains("11 orders with acknowledged events, such as payments"), "{text}");
    let planned = program.run("reconcile --repair --dry-run").expect(0).stdout;
    assert!(planned.contains("11 orders with events to handle again"), "{planned}");
    let done = program.run("reconcile --repair --yes --json").expect(0).json();
    assert_eq!((&done["events"], &done["created"]), (&json!(19), &json!(0)), "{done:#}");
    assert_eq!((state(&fixture).await, history(&fixture).await), (before, happened));
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_buried_or_put_back_as_another_entry_is_not_lost() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let entry = append(&fixture, "paid", (1, 501, VOUCHER)).await;
    fixture.hand_over("ghost-0", 1).await;
    program.run(&format!("pending bury {entry} --why tested --yes")).expect(0);
    program.run("reconcile").expect(0);
    program.run("dead requeue --all --yes").expect(0);
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert_eq!(history(&fixture).await.len(), 1);
    program.run("reconcile").expect(0);
    // Events that were recorded only from the other entry are lost with it.
    sql(&fixture, &["DELETE FROM tidegate_event", "UPDATE tb_voucher_order SET status = 1"]).await;
    let look = program.run("reconcile --json").expect(1).json();
    assert_eq!(orders_by_kind(&look), BTreeMap::from([("lost_event".to_owned(), vec![1])]), "{look:#}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_that_was_restored_from_an_hour_ago_holds_after_one_repair_and_no_order_expires_before() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    sql(&fixture, &["UPDATE tb_seckill_voucher SET pay_within = 3600"]).await;
    let admit = async |orders: std::ops::RangeInclusive<i64>| {
        for order in orders {
            fixture.admit(order, 500 + order, VOUCHER, 1).await;
        }
        fixture.settled().await;
    };
    let pay = async |orders: std::ops::RangeInclusive<i64>| {
        for order in orders {
            append(&fixture, "paid", (order, 500 + order, VOUCHER)).await;
        }
        fixture.settled().await;
    };
    admit(1..=10).await;
    pay(1..=2).await;
    until("the mark is raised", || async {
        fixture.redis_says(&["GET", "tidegate:mark"]).await.as_i64() >= Some(2)
    })
    .await;
    back_up(&fixture).await;
    // The orders and events of the hour that will be lost: orders, their payments, and payments of earlier orders.
    admit(11..=20).await;
    pay(3..=5).await;
    pay(11..=15).await;
    restore(&fixture).await;
    worker.says("a store went back in time").await;
    // Redis keeps its data, and sells on.
    admit(21..=25).await;
    let all_due = "UPDATE tidegate_unpaid_order SET due_ms = 1, ask_ms = 1";
    sql(&fixture, &[all_due]).await;
    let found = orders_by_kind(&program.run("reconcile --json").expect(1).json());
    assert_eq!(found["lost_event"], [3, 4, 5], "{found:?}");
    assert_eq!(found["lost_order"], (11..=20).collect::<Vec<_>>(), "{found:?}");

    program.run("reconcile --repair --yes").expect(0);
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert_eq!(state(&fixture).await, (vec![(1, 15), (2, 10)], 75, Some(75)), "nothing has expired");

    // After the operator resumes expirations, only unpaid orders expire.
    sql(&fixture, &[all_due]).await;
    program.run("resume --expirations --yes").expect(0);
    until("the unpaid expire", || async { state(&fixture).await.0 == [(2, 10), (4, 15)] }).await;
    fixture.settled().await;
    assert_eq!(state(&fixture).await.2, Some(90));
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

/// MySQL still has the first order, which has ended since. Until its end is recorded again, it blocks the second order
/// of its user.
#[tokio::test(flavor = "multi_thread")]
async fn who_bought_again_after_a_cancellation_that_mysql_lost_has_both_the_second_order_and_its_payment() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    fixture.settled().await;
    back_up(&fixture).await;
    append(&fixture, "cancelled", (1, 501, VOUCHER)).await;
    fixture.settled().await;
    fixture.admit(2, 501, VOUCHER, 1).await;
    append(&fixture, "paid", (2, 501, VOUCHER)).await;
    fixture.settled().await;
    let before = history(&fixture).await;
    restore(&fixture).await;

    program.run("reconcile --repair --yes").expect(0);
    assert_eq!(history(&fixture).await, before);
    assert_eq!(state(&fixture).await, (vec![(2, 1), (4, 1)], 99, Some(99)));
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

/// The number of entries that wait for this cause, as `pending list` names it.
fn waiting_for(program: &Program, cause: &str) -> usize {
    let list = program.run("pending list --set-aside --json").expect(0).json();
    let entries = list["entries"].as_array().expect("entries");
    entries.iter().filter(|entry| entry["waits_for"]["kind"] == cause).count()
}

/// The payments with their outcomes, by order.
async fn payments(fixture: &Fixture) -> Vec<(i64, String)> {
    let payments =
        "SELECT order_id, outcome FROM tidegate_event WHERE event = 'paid' ORDER BY order_id, step";
    sqlx::query_as(payments).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

/// Buries an admitted order, whose voucher is missing in MySQL for that time.
async fn bury(fixture: &Fixture, order: i64, user: i64) {
    sql(fixture, &["UPDATE tb_seckill_voucher SET voucher_id = 1 WHERE voucher_id = VOUCHER"]).await;
    fixture.admit(order, user, VOUCHER, 1).await;
    fixture.settled().await;
    sql(fixture, &["UPDATE tb_seckill_voucher SET voucher_id = VOUCHER WHERE voucher_id = 1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_read_after_mysql_went_back_waits_for_what_it_lost_and_nothing_else_does() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    fixture.settled().await;
    bury(&fixture, 4, 504).await;
    back_up(&fixture).await;
    fixture.admit(2, 502, VOUCHER, 1).await;
    fixture.admit(6, 506, VOUCHER, 1).await;
    append(&fixture, "cancelled", (1, 501, VOUCHER)).await;
    fixture.settled().await;

    restore(&fixture).await;
    fixture.admit(3, 501, VOUCHER, 1).await;
    // Order 4 is a dead letter, order 9 was never placed, and user 599 has not placed order 6: their payments have to
    // be refunded.
    let payment = append(&fixture, "paid", (2, 502, VOUCHER)).await;
    for (order, user) in [(3, 501), (4, 504), (9, 509)] {
        append(&fixture, "paid", (order, user, VOUCHER)).await;
    }
    let of_another = [("event", "paid"), ("orderId", "6"), ("userId", "599"), ("voucherId", "21")];
    fixture.add(&of_another).await;
    fixture.admit(5, 505, VOUCHER, 1).await;
    append(&fixture, "paid", (5, 505, VOUCHER)).await;
    let due = |order| (order, "refund_due".to_owned());
    let paid = |order| (order, "applied".to_owned());
    until("the others are done", || async { payments(&fixture).await == [due(4), paid(5), due(6), due(9)] })
        .await;
    until("an order and a payment wait for what is lost", || async {
        waiting_for(&program, "lost_in_mysql") == 2 && waiting_for(&program, "earlier_entry") == 1
    })
    .await;
    worker.says("lost_in_mysql").await;
    // The payment by another user does not keep the payment of the owner from waiting.
    append(&fixture, "paid", (6, 506, VOUCHER)).await;
    until("it waits, too", || async { waiting_for(&program, "lost_in_mysql") == 3 }).await;
    // Without its dead letter, order 4 is lost, too.
    fixture.call("XTRIM stream.orders.dead MAXLEN 0").await;
    let late = [("event", "paid"), ("ref", "late"), ("orderId", "4"), ("userId", "504"), ("voucherId", "21")];
    fixture.add(&late).await;
    until("its next payment waits", || async { waiting_for(&program, "lost_in_mysql") == 4 }).await;
    let look = program.run("reconcile --json").expect(1).json();
    let found = orders_by_kind(&look);
    assert_eq!((&found["lost_order"], &found["lost_event"]), (&vec![2, 4, 6], &vec![1]), "{found:?}");

    let left = program.run(&format!("replay --from {payment} --to {payment} --yes")).expect(1);
    let said = left.stdout + &left.stderr;
    assert!(said.contains("1 entry left") && said.contains("run `tidegate reconcile --repair`"), "{said}");

    program.run("reconcile --repair --yes").expect(0);
    fixture.settled().await;
    let all = [paid(2), paid(3), due(4), paid(4), paid(5), due(6), paid(6), due(9)];
    assert_eq!(payments(&fixture).await, all);
    assert_eq!(state(&fixture).await, (vec![(2, 5), (4, 1)], 95, Some(95)));
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_an_event_is_in_flight_nothing_else_is_told_of_its_order() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    fixture.settled().await;
    program.run("pause --workers --yes").expect(0);
    // A lane can still get entries from a read that began before the pause.
    until_all(&worker, "paused").await;
    sql(&fixture, &["UPDATE tb_voucher_order SET user_id = 777 WHERE id = 1"]).await;
    append(&fixture, "paid", (1, 501, VOUCHER)).await;
    let kinds = || orders_by_kind(&program.run("reconcile --json").json()).into_keys().collect::<Vec<_>>();
    assert_eq!(kinds(), [""; 0]);
    program.run("resume --workers --yes").expect(0);
    fixture.settled().await;
    assert_eq!(kinds(), ["mismatched"]);
    assert!(worker.stop().await.success());
}

/// If no repair can bring something back, workers decide as if nothing were lost.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_for_a_row_that_somebody_deleted_or_for_a_journal_that_is_not_complete() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100 --pay-within 1h")).expect(0);
    for order in 1..=3 {
        fixture.admit(order, 500 + order, VOUCHER, 1).await;
    }
    fixture.settled().await;
    sql(&fixture, &["DELETE FROM tb_voucher_order WHERE id = 1"]).await;
    append(&fixture, "paid", (1, 501, VOUCHER)).await;
    let due = |order| (order, "refund_due".to_owned());
    until("it is due back", || async { payments(&fixture).await == [due(1)] }).await;

    fixture.redis_says(&["HDEL", &format!("seckill:journal:{VOUCHER}"), "#complete"]).await;
    let forgotten = ["tb_voucher_order WHERE id", "tidegate_unpaid_order WHERE order_id"];
    sql(&fixture, &forgotten.map(|rows| format!("DELETE FROM {rows} = 2")).each_ref().map(String::as_str))
        .await;
    append(&fixture, "paid", (2, 502, VOUCHER)).await;
    until("so is this", || async { payments(&fixture).await == [due(1), due(2)] }).await;
    // The first order of user 503 was released manually, and only the journal shows that.
    fixture.call(&format!("SREM seckill:order:{VOUCHER} 503")).await;
    let released = r#"{"action":"release","change":1,"by":"hand","timestamp":1}"#;
    fixture.redis_says(&["HSET", &format!("seckill:journal:{VOUCHER}"), "3", released]).await;
    fixture.admit(4, 503, VOUCHER, 1).await;
    until("the second one is refused", || async {
        let refused =
            "SELECT COUNT(*) FROM tidegate_refusal WHERE order_id = 4 AND reason = 'user_has_order'";
        sqlx::query_scalar::<_, i64>(refused).fetch_one(&fixture.pool).await.expect("MySQL answers") == 1
    })
    .await;
    assert!(worker.stop().await.success());
}

/// The content of a journal of a wrong type is unknown. The orders that depend on it wait, and all others are handled.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_cannot_be_read_stops_only_what_depends_on_it() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    program.run("voucher load --voucher 22 --stock 100").expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    fixture.settled().await;
    let journal = format!("seckill:journal:{VOUCHER}");
    fixture.call(&format!("RENAME {journal} kept")).await;
    fixture.call(&format!("SET {journal} x")).await;
    append(&fixture, "paid", (2, 502, VOUCHER)).await;
    fixture.add_order(3, 501, VOUCHER).await;
    until("both wait", || async { waiting_for(&program, "lost_in_mysql") == 2 }).await;
    fixture.admit(4, 504, 22, 1).await;
    append(&fixture, "paid", (4, 504, 22)).await;
    let due = |order| (order, "refund_due".to_owned());
    let paid = |order| (order, "applied".to_owned());
    until("the other sale goes on", || async { payments(&fixture).await == [paid(4)] }).await;
    fixture.call(&format!("RENAME kept {journal}")).await;
    fixture.settled().await;
    assert_eq!(payments(&fixture).await, [due(2), paid(4)]);
    assert!(worker.stop().await.success());
}

/// The steps of docs/runbook/store-went-back.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_brings_lost_orders_back_while_their_payments_are_unread() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    fixture.settled().await;
    back_up(&fixture).await;
    fixture.admit(2, 502, VOUCHER, 1).await;
    append(&fixture, "cancelled", (1, 501, VOUCHER)).await;
    fixture.settled().await;

    program.run("pause --workers --yes").expect(0);
    // A lane can still get entries from a read that began before the pause.
    until_all(&worker, "paused").await;
    restore(&fixture).await;
    fixture.admit(3, 501, VOUCHER, 1).await;
    for (order, user) in [(2, 502), (3, 501)] {
        append(&fixture, "paid", (order, user, VOUCHER)).await;
    }
    program.run("reconcile --repair --yes").expect(0);
    program.run("resume --workers --yes").expect(0);
    fixture.settled().await;
    assert_eq!(state(&fixture).await, (vec![(2, 2), (4, 1)], 98, Some(98)));
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_came_by_xadd_alone_are_named_by_their_usual_cause_and_a_repair_clears_the_remark() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.admit(1, 501, VOUCHER, 1).await;
    for order in [2, 3] {
        fixture.add_order(order, 500 + order, VOUCHER).await;
    }
    fixture.settled().await;
    let look = program.run("reconcile").expect(1);
    assert!(look.stdout.contains("a producer appended the entry by XADD without an admission"), "{look:#?}");
    let remark = "(not_admitted: 2)";
    for line in ["status", "doctor"] {
        let said = program.run(line).expect(0).stdout;
        assert!(
            said.contains(remark) && said.contains("usually a producer appends orders by XADD alone"),
            "{said}"
        );
        assert!(!said.contains("went back in time"), "{said}");
    }
    // A repair of all vouchers removes the repaired differences from the stored result at once.
    program.run("reconcile --repair --yes").expect(0);
    for line in ["status", "doctor"] {
        let said = program.run(line).expect(0).stdout;
        assert!(!said.contains("not_admitted"), "{said}");
    }
    program.run("reconcile").expect(0);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_one_voucher_leaves_the_remark_about_another() {
    let fixture = Fixture::open().await;
    let (program, worker) = (program(&fixture), fixture.worker("w").start());
    for voucher in [VOUCHER, 22] {
        program.run(&format!("voucher load --voucher {voucher} --stock 100")).expect(0);
    }
    let append = async |orders: std::ops::RangeInclusive<i64>, voucher| {
        for order in orders {
            fixture.add_order(order, 500 + order, voucher).await;
        }
        fixture.settled().await;
    };
    append(1..=3, VOUCHER).await;
    program.run("reconcile").expect(1);
    // Since the comparison, another voucher has as many differences.
    append(4..=6, 22).await;
    let kept = || program.run("status --json").json()["reconciled"].clone();
    let before = kept();
    assert_eq!(before["counts"], json!({ "not_admitted": 3 }), "{before}");

    let repaired = program.run("reconcile --repair --voucher 22 --yes").expect(0);
    assert!(repaired.stderr.contains("may still show repaired differences"), "{repaired:#?}");
    assert_eq!(kept(), before, "what is kept tells of the voucher that was not repaired");
    assert!(program.run("status").stdout.contains("(not_admitted: 3)"));
    program.run("reconcile --repair --since -1h --yes").expect(0);
    assert_eq!(kept(), before, "a look at new orders only knows nothing of the others");

    append(7..=7, VOUCHER).await;
    program.run("reconcile --repair --yes").expect(0);
    assert_eq!(kept()["counts"], json!({}));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_goes_on_without_the_right_to_the_counters_of_order_ids_and_names_it() {
    let fixture = Fixture::open().await;
    let (owner, worker) = (program(&fixture), fixture.worker("w").start());
    owner.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    fixture.add_order(1, 501, VOUCHER).await;
    fixture.settled().await;
    // The Redis user has the rights of earlier versions.
    let user = "repairer on >CHANGE-ME ~seckill:* ~stream.orders* ~lock:order:* ~tidegate:* +@all";
    fixture.call(&format!("ACL SETUSER {user}")).await;
    let redis = fixture.redis_url_of("repairer");
    let repairer = Program::with_flags(&["--redis-url", &redis, "--mysql-url", &fixture.mysql.url()]);
    let repaired = repairer.run("reconcile --repair --yes").stdout;
    assert_eq!(
        repaired.matches("Allow this Redis user the key pattern ~icr:order:*").count(),
        1,
        "{repaired}"
    );
    owner.run("reconcile").expect(0);

    fixture.add_order(2, 502, VOUCHER).await;
    fixture.settled().await;
    let plan = fixture.worker("v").set("REDIS_URL", redis).set("RECONCILE_EVERY_S", 1);
    let repairing = plan.set("RECONCILE_REPAIR", "yes").start();
    repairing.says("repaired the differences between both stores").await;
    repairing.says("Allow this Redis user the key pattern ~icr:order:*").await;
    owner.run("reconcile").expect(0);
    assert!(repairing.stop().await.success() && worker.stop().await.success());
}

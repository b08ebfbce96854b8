//! `tidegate reconcile --repair`: one command from what differs to "it holds", while the sale goes on.

use serde_json::{Value as Json, json};

use crate::{program::Program, site::Site};

const VOUCHER: i64 = 21;
const ORDERS: i64 = 40;
/// Of these, the ones that are paid.
const PAID: i64 = 15;

fn program(site: &Site) -> Program {
    Program::with_flags(&["--redis-url", &site.redis.url(), "--mysql-url", &site.mysql.url()])
}

async fn sql(site: &Site, statements: &[&str]) {
    for statement in statements {
        let statement = statement.replace("VOUCHER", &VOUCHER.to_string());
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&site.pool).await.expect("MySQL does it");
    }
}

/// Orders by status, with the units left in MySQL and in Redis.
async fn state(site: &Site) -> (Vec<(i64, i64)>, i64, Option<i64>) {
    let statuses =
        "SELECT CAST(status AS SIGNED), COUNT(*) FROM tb_voucher_order GROUP BY status ORDER BY status";
    let statuses = sqlx::query_as(statuses).fetch_all(&site.pool).await.expect("MySQL answers");
    let stock = "SELECT CAST(stock AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = ?";
    let stock = sqlx::query_scalar(stock).bind(VOUCHER).fetch_one(&site.pool).await.expect("MySQL answers");
    let in_redis = site.redis_says(&["GET", &format!("seckill:stock:{VOUCHER}")]).await;
    (statuses, stock, in_redis.as_i64())
}

/// A sale with orders and payments, of which all is settled.
async fn sell(site: &Site, program: &Program) {
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 100")).expect(0);
    for order in 1..=ORDERS {
        site.admit(order, 500 + order, VOUCHER, 1).await;
    }
    site.settled().await;
    for order in 1..=PAID {
        program.run(&format!("order pay {order} --ref p{order} --yes")).expect(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_and_payments_that_mysql_lost_come_back_and_what_hands_did_to_redis_is_mended() {
    let site = Site::open().await;
    let (program, worker) = (program(&site), site.worker("w").start());
    sell(&site, &program).await;
    program.run("reconcile").expect(0);
    let before = state(&site).await;
    assert_eq!(before, (vec![(1, ORDERS - PAID), (2, PAID)], 100 - ORDERS, Some(100 - ORDERS)));

    // MySQL as it was an hour ago; and hands at Redis.
    let restored = [
        "DELETE FROM tb_voucher_order WHERE id > 5",
        "DELETE FROM tidegate_event WHERE order_id > 5",
        "UPDATE tb_seckill_voucher SET stock = 95 WHERE voucher_id = VOUCHER",
    ];
    sql(&site, &restored).await;
    site.redis_says(&["INCRBY", &format!("seckill:stock:{VOUCHER}"), "7"]).await;
    site.redis_says(&["SADD", &format!("seckill:order:{VOUCHER}"), "9999"]).await;
    site.redis_says(&["SREM", &format!("seckill:order:{VOUCHER}"), "501"]).await;
    program.run("reconcile").expect(1);

    let planned = program.run("reconcile --repair --dry-run").expect(0).stdout;
    assert!(planned.contains("35 orders to run again") && planned.contains("dry run"), "{planned}");
    program.run("reconcile").expect(1);
    let done = program.run("reconcile --repair --yes").expect(0).stdout;
    assert!(done.contains("35 orders written again, 10 events recorded again"), "{done}");
    assert!(done.contains("the stock in Redis moved by -7"), "{done}");
    assert_eq!(state(&site).await, before);
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    let again = program.run("reconcile --repair --yes").expect(0).stdout;
    assert!(again.contains("Nothing is different"), "{again}");
    let story = program.run("log --json").expect(0).stdout;
    assert!(story.contains("reconcile"), "{story}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_cancelled_by_its_own_hand_is_released_once() {
    let site = Site::open().await;
    let (program, worker) = (program(&site), site.worker("w").start());
    sell(&site, &program).await;
    // Order 20 in both stores, as the tutorial's services do; order 21 in MySQL only.
    let by_hand = [
        "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id IN (20, 21)",
        "UPDATE tb_seckill_voucher SET stock = stock + 2 WHERE voucher_id = VOUCHER",
    ];
    sql(&site, &by_hand).await;
    site.redis_says(&["INCR", &format!("seckill:stock:{VOUCHER}")]).await;
    site.redis_says(&["SREM", &format!("seckill:order:{VOUCHER}"), "520"]).await;

    let done: Json = program.run("reconcile --repair --yes --json").expect(0).json();
    assert_eq!(done["released"], json!(2), "{done:#}");
    let (_, in_mysql, in_redis) = state(&site).await;
    assert_eq!((in_mysql, in_redis), (62, Some(62)));
    program.run("reconcile").expect(0);
    // Both may buy again.
    for user in [520, 521] {
        site.admit(1_000 + user, user, VOUCHER, 1).await;
    }
    site.settled().await;
    program.run("audit").expect(0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_a_redis_that_went_back_sold_twice_are_neither_on_sale_nor_lost_afterwards() {
    let site = Site::open().await;
    let (program, worker) = (program(&site), site.worker("w").start());
    program.run(&format!("voucher load --voucher {VOUCHER} --stock 5")).expect(0);
    for order in 1..=5 {
        site.admit(order, order, VOUCHER, 1).await;
    }
    site.settled().await;
    // A replica without these orders was promoted, and sold their units once more: MySQL refuses.
    let (stock, buyers, journal) = (
        format!("seckill:stock:{VOUCHER}"),
        format!("seckill:order:{VOUCHER}"),
        format!("seckill:journal:{VOUCHER}"),
    );
    for order in 1..=5 {
        site.redis_says(&["HDEL", &journal, &order.to_string()]).await;
        site.redis_says(&["SREM", &buyers, &order.to_string()]).await;
    }
    site.redis_says(&["INCRBY", &stock, "5"]).await;
    for order in 11..=15 {
        site.admit(order, order, VOUCHER, 1).await;
    }
    site.settled().await;
    assert_eq!(state(&site).await, (vec![(1, 5)], 0, Some(0)));
    program.run("reconcile").expect(1);
    program.run("reconcile --repair --yes").expect(0);
    assert_eq!(state(&site).await, (vec![(1, 5)], 0, Some(0)), "nothing is owed to the refused");
    program.run("reconcile").expect(0);
    program.run("audit").expect(0);
    // What comes back is on sale again, on both sides.
    program.run("order cancel 1 --yes").expect(0);
    assert_eq!(state(&site).await, (vec![(1, 4), (4, 1)], 1, Some(1)));
    program.run("reconcile").expect(0);
    assert!(worker.stop().await.success());
}

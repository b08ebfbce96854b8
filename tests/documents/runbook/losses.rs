//! Runbook: both stores come back with less than they had.

use jiff::{ToSpan, Zoned};
use sqlx::AssertSqlSafe;

use crate::{
    fixture::{Fixture, until},
    runbook::recipes::Operator,
};

async fn sql(fixture: &Fixture, statement: &str) {
    sqlx::query(AssertSqlSafe(statement)).execute(&fixture.pool).await.expect("MySQL does it");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_emptied_and_mysql_is_as_it_was_an_hour_ago() {
    let fixture = Fixture::with_own_mysql().await;
    let (worker, operator) = (fixture.worker("w").start(), Operator::at(&fixture));
    let loaded = fixture.tidegate(&["voucher", "load", "--voucher", "109", "--stock", "1000"]);
    assert!(loaded.status.success(), "{loaded:?}");
    for order in 1..=60 {
        fixture.admit(order, order, 109, 1).await;
    }
    // These orders have ids from the counter.
    for user in ["101", "102", "103"] {
        let admitted = fixture.tidegate(&["admit", "--voucher", "109", "--user", user]);
        assert!(admitted.status.success(), "{admitted:?}");
    }
    fixture.settled().await;
    let paid = fixture.tidegate(&["order", "event", "paid", "5", "--ref", "p5", "--yes"]);
    assert!(paid.status.success(), "{paid:?}");

    // Twenty orders of the last hour and a payment are in no backup. Then Redis loses all its data.
    sql(&fixture, "DELETE FROM tb_voucher_order WHERE id BETWEEN 41 AND 60").await;
    sql(&fixture, "UPDATE tb_voucher_order SET status = 1").await;
    sql(&fixture, "DELETE FROM tidegate_event").await;
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = 957").await;
    fixture.call("FLUSHALL").await;
    worker.says("the consumer group was gone and was created again").await;
    // The payment service sends the payment again, and a user orders early, while there is no stock.
    let again = fixture.tidegate(&["order", "event", "paid", "5", "--ref", "p5", "--yes"]);
    assert!(again.status.success(), "{again:?}");
    let refused = fixture.tidegate(&["admit", "--voucher", "109", "--user", "77"]);
    assert!(!refused.status.success(), "{refused:?}");

    operator.types("Redis lost data", "tidegate rebuild --all", &[]).succeeds().shows(&[
        "voucher 109: rebuilt with 957 units left, 43 live orders",
        "no store knows, because the counter of order ids was lost",
    ]);
    let from = (&Zoned::now() - 2.hours()).strftime("%Y-%m-%d %H:%M").to_string();
    operator
        .types("Redis lost data", "tidegate replay --from", &[("2026-11-20 10:00", from.as_str())])
        .succeeds()
        .shows(&["Both stores agree"]);
    operator
        .types("Redis lost data", "tidegate audit", &[])
        .succeeds()
        .shows(&["It holds: 43 admitted orders"]);
    let buy = |order: i64| fixture.admit(order, order, 109, 1);
    // Order 50 is in no store, so it is admitted as a new one. All other orders exist.
    buy(50).await;
    until("it is written", || async { fixture.live_orders().await.len() == 44 }).await;
    let reconciled = fixture.tidegate(&["reconcile"]);
    assert!(reconciled.status.success(), "{reconciled:?}");
    assert_eq!((fixture.mysql_stock(109).await, fixture.redis_stock(109).await), (956, Some(956)));
    assert!(worker.stop().await.success());
}

//! Runbook: late payments, and payments that have to be refunded.

use super::sales::at_work;
use crate::fixture::Fixture;

/// Appends a payment of an order. Its user has the number of the order.
async fn pays(fixture: &Fixture, order: &str, reference: &str) {
    let about =
        [("event", "paid"), ("orderId", order), ("userId", order), ("voucherId", "120"), ("ref", reference)];
    fixture.add(&about).await;
    fixture.settled().await;
}

async fn count(fixture: &Fixture, condition: &'static str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM tb_voucher_order WHERE {condition}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_that_never_came_are_appended_and_what_stays_unpaid_ends() {
    let (worker, operator, fixture) = at_work(120).await;
    for order in 1_001..=1_010 {
        fixture.admit(order, order, 120, 1).await;
    }
    fixture.settled().await;
    let back = "UPDATE tb_voucher_order SET create_time = NOW() - INTERVAL 3 HOUR";
    sqlx::query(back).execute(&fixture.pool).await.expect("MySQL takes it");
    pays(&fixture, "1001", "p-1").await;
    operator
        .types("Payments come late", "tidegate order show 693106606080120", &[("693106606080120", "1001")])
        .succeeds()
        .shows(&["order 1001", "paid, applied", "undelivered 0", "No pending entry matches"]);
    operator
        .types("Payments come late", "SELECT e.outcome, COUNT(*) AS payments", &[])
        .succeeds()
        .shows(&["applied", "1080"]);
    let paid: String = (1_001..=1_004).map(|order| format!("{order},p-{}\n", order - 1_000)).collect();
    let file = fixture.file("paid.csv", &paid);
    operator
        .types(
            "Payments come late",
            "tidegate order event paid --file",
            &[("paid.csv", file.to_str().expect("a path"))],
        )
        .succeeds()
        .shows(&["Nothing was changed (dry run).", "3 applied, 1 unchanged"]);
    operator.types("Payments come late", "tidegate order release-unpaid", &[]).succeeds().shows(&[
        "6 unpaid orders with 6 units",
        "Nothing was changed (dry run).",
        "6 orders cancelled, 6 units released",
    ]);
    assert_eq!(
        (count(&fixture, "status = 2").await, count(&fixture, "status = 4 AND slot IS NULL").await),
        (4, 6)
    );
    assert_eq!((fixture.mysql_stock(120).await, fixture.redis_stock(120).await), (996, Some(996)));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_that_pay_for_nothing_are_listed_and_refunded_from_a_file() {
    let (worker, operator, fixture) = at_work(120).await;
    for order in 1_001..=1_002 {
        fixture.admit(order, order, 120, 1).await;
    }
    fixture.settled().await;
    fixture.tidegate(&["order", "event", "cancelled", "1001", "--yes"]);
    // One payment comes too late, one order is paid twice, and one payment is for an order that does not exist.
    for (order, reference) in [("1001", "late"), ("1002", "first"), ("1002", "second"), ("1003", "lost")] {
        pays(&fixture, order, reference).await;
    }
    operator
        .types("Payments come late", "SELECT p.order_id", &[])
        .succeeds()
        .shows(&["late", "second", "lost"]);
    operator
        .types("Payments come late", "tidegate order show 693106606080121", &[("693106606080121", "1002")])
        .succeeds()
        .shows(&["Its payment second has to be refunded."]);
    operator.types("Payments come late", "mysql -N -B -r -e", &[]).succeeds();
    let mut due: Vec<String> = operator.file("due.csv").lines().map(str::to_owned).collect();
    due.sort();
    assert_eq!(due, ["1001,,late", "1002,,second", "1003,,lost"]);
    operator.types("Payments come late", "tidegate order event refunded --file", &[]).succeeds().shows(&[
        "3 would be applied",
        "Nothing was changed (dry run).",
        "refunded for 3 orders: 3 applied",
    ]);
    operator
        .types("Payments come late", "tidegate order event refunded --file", &[])
        .succeeds()
        .shows(&["refunded for 3 orders: 3 unchanged"]);
    let left = operator.types("Payments come late", "SELECT p.order_id", &[]).succeeds();
    assert!(!left.shown.contains("late"), "{}", left.shown);
    assert_eq!((count(&fixture, "status = 6").await, count(&fixture, "status = 2").await), (1, 1));
    assert_eq!((fixture.mysql_stock(120).await, fixture.redis_stock(120).await), (999, Some(999)));
    assert!(worker.stop().await.success());
}

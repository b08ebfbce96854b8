//! Runbook: callers that do not get the results of their orders.

use jiff::Timestamp;

use crate::{
    fixture::{Fixture, until},
    runbook::recipes::Operator,
};

const RESULTS: &str = "stream.orders.results";

#[tokio::test(flavor = "multi_thread")]
async fn results_are_refused_and_are_published_when_their_key_is_free() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(123, 1_000).await;
    let operator = Operator::at(&fixture);
    fixture.call(&format!("SET {RESULTS} something")).await;
    let worker = fixture.worker("w").set("RESULTS_PUBLISH", "all").start();
    for order in 1..=20 {
        fixture.admit(order, order, 123, 1).await;
    }
    fixture.settled().await;
    worker.says("Redis does not take results").await;
    operator.types("Results are not published", "tidegate doctor", &[]).ends_with(&[1, 0]).shows(&[
        "stream.orders.results is a string, not a stream",
        "Redis has not accepted 20 order results",
        "see docs/runbook/results-are-not-published.md",
        "string",
    ]);
    operator
        .types("Results are not published", "SELECT at", &[])
        .succeeds()
        .shows(&["1 confirmed", "2 confirmed"]);
    operator.types("Results are not published", "redis RENAMENX", &[]).succeeds().shows(&["1"]);
    let unpublished = || async {
        let count = "SELECT COUNT(*) FROM tidegate_unannounced_result";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&fixture.pool).await.expect("MySQL answers")
    };
    until("all are published", || async { unpublished().await == 0 }).await;
    let shown = operator.types("Results are not published", "tidegate doctor", &[]).shown;
    assert!(!shown.contains("results") && shown.contains("\nstream"), "{shown}");
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_away_and_has_missed_results() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(123, 1_000).await;
    let operator = Operator::at(&fixture);
    let worker = fixture.worker("w").set("RESULTS_PUBLISH", "exceptions").start();
    for group in ["shop", "old"] {
        fixture.call(&format!("XGROUP CREATE {RESULTS} {group} 0 MKSTREAM")).await;
    }
    let before_ms = Timestamp::now().as_millisecond() - 3_600_000;
    fixture.call(&format!("XADD {RESULTS} {before_ms}-0 orderId 1 state refused")).await;
    fixture.call(&format!("XREADGROUP GROUP shop app-1 COUNT 1 STREAMS {RESULTS} >")).await;
    // These orders are refused, because their voucher does not exist.
    for order in 1..=3 {
        fixture.add_order(order, order, 8).await;
    }
    fixture.settled().await;
    let doctor = String::from_utf8(fixture.tidegate(&["doctor"]).stdout).expect("text");
    assert!(
        doctor.contains("the group old has not read results from stream.orders.results for 60 min"),
        "{doctor}"
    );
    assert!(!doctor.contains("the group shop"), "{doctor}");
    operator.types("Results are not published", "redis XINFO GROUPS", &[]).succeeds().shows(&[
        "old",
        "lag",
        "shop",
        "pending",
        "(integer) 1",
        "lag",
        "app-1",
    ]);
    operator.types("Results are not published", "redis XGROUP DESTROY", &[]).succeeds().shows(&["1"]);
    operator.types("Results are not published", "redis MEMORY USAGE", &[]).succeeds().shows(&["(integer)"]);
    let length = || async { fixture.call(&format!("XLEN {RESULTS}")).await.as_u64().expect("a number") };
    let before = length().await;
    let (from, to) = ("2020-01-01 00:00", "2099-01-01 00:00");
    let hour = [("2026-11-20 10:00", from), ("2026-11-20 11:00", to)];
    operator.types("Results are not published", "tidegate replay", &hour).succeeds();
    assert_eq!(length().await, before + 3, "they are told again");
    let doctor = String::from_utf8(fixture.tidegate(&["doctor"]).stdout).expect("text");
    assert!(!doctor.contains("from stream.orders.results"), "{doctor}");
    assert!(worker.stop().await.success());
}

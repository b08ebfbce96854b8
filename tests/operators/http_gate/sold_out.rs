//! Tests of the gate's memory of sold-out vouchers: for a moment, it refuses most requests of a rush without Redis.

use serde_json::json;

use super::{address_of, post, refused, told};
use crate::{fixture::Fixture, order_event::operator};

#[tokio::test(flavor = "multi_thread")]
async fn sold_out_is_told_without_redis_for_a_moment_and_never_to_who_names_an_order() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 1").expect(0);
    // The gate remembers "sold out" for longer than this test takes.
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 10_000);
    let gate = gate.start_as("gate");
    let address = address_of(&gate).await;
    let order = |user: i64| json!({ "voucherId": "7", "userId": user });
    let mut asked = Vec::new();
    for quantity in [2, 3, 2] {
        let more = post(address, &json!({ "voucherId": "7", "userId": 1, "quantity": quantity })).await.body;
        let told = (&more["type"], &more["unitsLeft"]);
        assert_eq!(told, (&json!("/problems/too-few-left"), &json!(1)), "{more:#}");
        asked.push(fixture.calls_of("evalsha").await);
    }
    assert_eq!(asked, [asked[0]; 3], "the gate has asked once");
    let first = post(address, &order(1)).await;
    assert_eq!(first.status, 202, "one unit was left: {:#}", first.body);
    assert_eq!(refused(address, order(2)).await, told(409, "sold-out"));
    // An operator adds a unit. Until the time is over, the gate still answers "sold out", except to a caller that names
    // an order.
    program.run("voucher add --voucher 7 --units 1 --yes").expect(0);
    assert_eq!(refused(address, order(3)).await, told(409, "sold-out"));
    let named = json!({ "voucherId": "7", "userId": 3, "orderId": "4711" });
    assert_eq!(post(address, &named).await.status, 202);
    let again = json!({ "voucherId": "7", "userId": 1, "orderId": first.body["orderId"] });
    assert_eq!(post(address, &again).await.body["outcome"], "admitted_before");
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_come_back_are_sold_once_the_moment_is_over() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 1").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 2_000);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let order = |user: i64| json!({ "voucherId": "7", "userId": user });
    assert_eq!(post(address, &order(1)).await.status, 202);
    assert_eq!(refused(address, order(2)).await, told(409, "sold-out"));
    program.run("voucher add --voucher 7 --units 1 --yes").expect(0);
    let began = std::time::Instant::now();
    crate::fixture::until("it is sold again", || async { post(address, &order(2)).await.status == 202 })
        .await;
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert!(gate.stop().await.success());
}

//! Tests of a gate and a worker in one process.

use serde_json::json;

use super::{address_of, post, refused, told};
use crate::{
    fixture::{Fixture, until},
    order_event::operator,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_gate_sells_at_once_what_it_releases_itself() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 1").expect(0);
    // This time is so long that only the release ends it.
    let plan = fixture.worker("w").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 10_000);
    let both = plan.start_with(&["worker", "--gate"]);
    let address = address_of(&both).await;
    let order = |user: i64| json!({ "voucherId": "7", "userId": user });
    let first = post(address, &order(1)).await;
    assert_eq!(first.status, 202);
    until("it is written", || async { fixture.live_orders().await.len() == 1 }).await;
    assert_eq!(refused(address, order(2)).await, told(409, "sold-out"));
    let id = first.body["orderId"].as_str().expect("text");
    let began = std::time::Instant::now();
    program.run(&format!("order event cancelled {id} --yes")).expect(0);
    until("its unit is sold again", || async { post(address, &order(2)).await.status == 202 }).await;
    assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());
    assert!(both.stop().await.success(), "both stop in good order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_cannot_listen_is_told_before_the_worker_begins() {
    let fixture = Fixture::open().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let plan = fixture.worker("w").set("GATE_LISTEN", taken.local_addr().expect("an address"));
    let mut both = plan.start_with(&["worker", "--gate"]);
    both.says("check gate.listen / TIDEGATE_GATE_LISTEN").await;
    assert_eq!(both.ended().await.code(), Some(3));
    let names: Vec<String> = fixture.call("KEYS tidegate:worker:*").await.convert().expect("keys");
    assert!(
        names.is_empty() && !both.log().contains("consumer group created"),
        "it did not begin: {names:?}"
    );
}

//! Tests of orders for regions of a campaign, by their names.

use hyper::Method;
use serde_json::json;

use super::{address_of, ask, post, refused, told};
use crate::{
    fixture::{Fixture, until},
    order_event::operator,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_region_is_asked_for_by_its_name_and_an_unknown_one_is_refused_by_it() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("regions.csv");
    std::fs::write(&file, "north,101,2\nsouth,102,1\n").expect("a file");
    program.run(&format!("campaign load --campaign 5 --regions {}", file.display())).expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let order = |region: &str, user: i64| json!({ "campaignId": "5", "region": region, "userId": user });

    assert_eq!(post(address, &order("south", 1)).await.status, 202);
    assert_eq!(refused(address, order("south", 2)).await, told(409, "sold-out"));
    assert_eq!(post(address, &order("north", 2)).await.status, 202, "its stock is its own");
    assert_eq!(refused(address, order("north", 2)).await, told(409, "second-order"));
    let unknown = post(address, &order("west", 3)).await;
    assert_eq!((unknown.status, &unknown.body["region"]), (404, &json!("west")), "{:#}", unknown.body);
    assert_eq!(unknown.body["type"], "/problems/no-such-region");
    let other = json!({ "campaignId": "6", "region": "north", "userId": 3 });
    assert_eq!(refused(address, other).await, told(404, "no-such-region"));
    let half = post(address, &json!({ "campaignId": "5", "userId": 3 })).await;
    assert_eq!((half.status, &half.body["errors"][0]["pointer"]), (422, &json!("/region")));

    // A region that joins later is found within a second, although a caller requested it before.
    std::fs::write(&file, "west,103,1\n").expect("a file");
    program.run(&format!("campaign load --campaign 5 --regions {}", file.display())).expect(0);
    until("it is found", || async { post(address, &order("west", 3)).await.status == 202 }).await;
    // A Redis that was emptied and rebuilt has the regions, too.
    let worker = fixture.worker("w").start();
    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    assert!(worker.stop().await.success());
    fixture.call("FLUSHALL").await;
    for voucher in [101, 102, 103] {
        program.run(&format!("rebuild --voucher {voucher} --yes")).expect(0);
    }
    assert_eq!(post(address, &order("north", 4)).await.status, 202);
    assert_eq!(ask(address, Method::GET, "/readyz", &[], "").await.status, 200);
    assert!(gate.stop().await.success());
}

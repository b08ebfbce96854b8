//! Tests of events on a cluster: every node has the rows of the events and of their orders.

use tidegate_lab::ClusterKind;

use super::{STOCK, Scene};
use crate::{
    events::{append_orders_with_events, by_outcome, by_status},
    fixture::rush::PLENTY,
};

/// The number of orders, a multiple of three, because a third of them goes each way.
const ORDERS: i64 = 6_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn events_are_recorded_once_on_every_node_of_galera_though_one_dies_with_its_worker() {
    a_node_dies_among_events(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn events_are_recorded_once_on_every_member_of_a_group_though_one_dies_with_its_worker() {
    a_node_dies_among_events(ClusterKind::MultiPrimary).await;
}

async fn a_node_dies_among_events(kind: ClusterKind) {
    let mut scene = Scene::open(kind, 0).await;
    append_orders_with_events(&scene.fixture, PLENTY, (1, ORDERS)).await;
    scene.start_workers();
    scene.look_at(1).await;
    scene.poll("some have ended", async || by_status(&scene.fixture, PLENTY).await.len() > 2).await;
    scene.workers.remove(0).kill9();
    scene.node(0).kill9().unwrap();
    scene.settled().await;
    scene.node(0).restart().unwrap();
    for node in [0, 1, 2] {
        scene.look_at(node).await;
        let (fixture, third) = (&scene.fixture, ORDERS / 3);
        assert_eq!(by_status(fixture, PLENTY).await, [(2, third), (3, third), (6, third)], "node {node}");
        let expected = [
            ("cancelled paid", third),
            ("paid applied", ORDERS),
            ("refunded applied", third),
            ("refunding applied", third),
            ("used applied", third),
        ];
        let expected = expected.map(|(outcome, count)| (outcome.to_owned(), count));
        assert_eq!(by_outcome(fixture).await, expected, "node {node}");
        let left = STOCK - 2 * third;
        assert_eq!(
            (fixture.mysql_stock(PLENTY).await, fixture.redis_stock(PLENTY).await),
            (left, Some(left))
        );
        assert_eq!(fixture.dead().await, [], "nothing is buried");
        assert_eq!(fixture.mismatches().await, Vec::<String>::new(), "node {node}");
    }
}

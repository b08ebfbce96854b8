//! What a node of a cluster does not show yet: an event that comes before its order does, and an order before its voucher.

use std::time::Duration;

use sqlx::{Connection, Executor, MySqlConnection};
use tidegate_lab::ClusterKind;
use tidegate_orders::{Incoming, Ledger, Order, Quantity, Slot, Verdict};
use tidegate_stream::EntryId;

use super::{Scene, reader_of};
use crate::{events::by_outcome, site::rush::PLENTY};

/// A voucher that only the other nodes know for a while.
const NEW: i64 = 77;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn what_a_node_of_galera_does_not_show_yet_is_waited_for() {
    a_node_is_behind(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn what_a_member_of_a_group_does_not_show_yet_is_waited_for() {
    a_node_is_behind(ClusterKind::MultiPrimary).await;
}

/// An order is written at node 0. A worker at node 1, whose applier is stalled, reads the payment of that order, an order of a
/// voucher that was made at node 0, and a payment of an order that is nowhere.
async fn a_node_is_behind(kind: ClusterKind) {
    let mut scene = Scene::open(kind, 0).await;
    let at_first = reader_of(&scene.site.mysql, 0).await;
    at_first.execute("CREATE TABLE stall (id INT PRIMARY KEY)").await.unwrap();
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM stall")
        .fetch_one(&reader_of(&scene.site.mysql, 1).await)
        .await
        .expect("the table is on node 1");
    assert_eq!(rows, 0);
    let behind = scene.plan(1).start();
    behind.says("worker started").await;
    let mut rival = MySqlConnection::connect(&scene.node(1).url()).await.unwrap();
    rival.execute("LOCK TABLES stall READ").await.unwrap();
    // Node 1 cannot apply this, and nothing that comes after it.
    at_first.execute("INSERT INTO stall VALUES (1)").await.unwrap();

    scene.look_at(0).await;
    let order = Order {
        id: 1.try_into().unwrap(),
        user: 1.try_into().unwrap(),
        voucher: PLENTY.try_into().unwrap(),
        quantity: Quantity::ONE,
        slot: Slot::FIRST,
        uses: None,
    };
    let written = Ledger::new(at_first.clone(), Duration::from_secs(20))
        .record(&[Incoming { order, entry: EntryId { ms: 1, seq: 1 } }])
        .await
        .unwrap();
    assert_eq!(written, [Verdict::Created]);
    let made = format!("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES ({NEW}, 10)");
    at_first.execute(sqlx::AssertSqlSafe(made)).await.unwrap();

    let voucher = PLENTY.to_string();
    for (order, reference) in [("1", "a"), ("999", "b")] {
        let of = [("orderId", order), ("userId", "1"), ("voucherId", voucher.as_str())];
        scene.site.add(&[&[("event", "paid"), ("ref", reference)][..], &of].concat()).await;
    }
    scene.site.add_order(2, 2, NEW).await;
    behind.says("this MySQL node does not show what the other nodes have committed").await;
    assert_eq!(by_outcome(&scene.site).await, [], "nothing is decided");
    assert_eq!(scene.site.dead().await, [], "nothing is buried");
    assert_eq!(scene.site.open_entries().await, Some(3));

    rival.execute("UNLOCK TABLES").await.unwrap();
    scene.settled().await;
    assert_eq!(scene.site.dead().await, [], "nothing is buried");
    for node in [0, 1, 2] {
        scene.look_at(node).await;
        let orders = "SELECT CONCAT_WS(' ', id, status) FROM tb_voucher_order ORDER BY id";
        let orders: Vec<String> = sqlx::query_scalar(orders).fetch_all(&scene.site.pool).await.unwrap();
        assert_eq!(
            orders,
            ["1 2", "2 1"],
            "node {node}: the order is paid, and that of the new voucher is written"
        );
        // The payment of an order that is nowhere has to go back, as ever.
        let outcomes =
            [("paid applied", 1), ("paid refund_due", 1)].map(|(word, count)| (word.to_owned(), count));
        assert_eq!(by_outcome(&scene.site).await, outcomes, "node {node}");
    }
    assert!(behind.stop().await.success());
}

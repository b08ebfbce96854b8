//! Tests of a node that does not show recent commits yet: an event comes before its order, and an order before its
//! voucher. The tests also cover commands and comparisons at such a node.

use std::{collections::BTreeMap, process::Output, time::Duration};

use serde_json::Value as Json;
use sqlx::{Connection, Executor, MySqlConnection, MySqlPool, mysql::MySqlDatabaseError};
use tidegate_lab::ClusterKind;
use tidegate_orders::{Incoming, Ledger, Order, Quantity, Slot, Verdict};
use tidegate_stream::EntryId;

use super::{Scene, reader_of};
use crate::{
    events::by_outcome,
    fixture::{DEAD, STREAM, rush::PLENTY, until},
};

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

/// Stalls the applier of node 1 until the first of these connections unlocks its tables. The others are connections to
/// node 0.
async fn stall(scene: &Scene) -> (MySqlConnection, MySqlPool) {
    let at_first = reader_of(&scene.fixture.mysql, 0).await;
    at_first.execute("CREATE TABLE stall (id INT PRIMARY KEY)").await.unwrap();
    // A member may prepare a statement before it waits for the commits of the others.
    let at_behind = reader_of(&scene.fixture.mysql, 1).await;
    until("the table is on node 1", || async {
        let rows = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM stall").fetch_one(&at_behind).await;
        rows.is_ok_and(|rows| rows == 0)
    })
    .await;
    let mut rival = MySqlConnection::connect(&scene.node(1).url()).await.unwrap();
    rival.execute("LOCK TABLES stall READ").await.unwrap();
    // Node 1 cannot apply this write or any later one.
    at_first.execute("INSERT INTO stall VALUES (1)").await.unwrap();
    (rival, at_first)
}

/// An order is written at node 0, and the applier of node 1 is stalled. A worker at node 1 reads the payment of that
/// order, an order of a new voucher of node 0, and a payment of an order that does not exist.
async fn a_node_is_behind(kind: ClusterKind) {
    let mut scene = Scene::open(kind, 0).await;
    let behind = scene.plan(1).start();
    behind.says("worker started").await;
    let (mut rival, at_first) = stall(&scene).await;

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
        scene.fixture.add(&[&[("event", "paid"), ("ref", reference)][..], &of].concat()).await;
    }
    scene.fixture.add_order(2, 2, NEW).await;
    behind.says("this MySQL node does not show what the other nodes have committed").await;
    assert_eq!(by_outcome(&scene.fixture).await, [], "nothing is decided");
    assert_eq!(scene.fixture.dead().await, [], "nothing is buried");
    assert_eq!(scene.fixture.open_entries().await, Some(3));

    rival.execute("UNLOCK TABLES").await.unwrap();
    scene.settled().await;
    assert_eq!(scene.fixture.dead().await, [], "nothing is buried");
    for node in [0, 1, 2] {
        scene.look_at(node).await;
        let orders = "SELECT CONCAT_WS(' ', id, status) FROM tb_voucher_order ORDER BY id";
        let orders: Vec<String> = sqlx::query_scalar(orders).fetch_all(&scene.fixture.pool).await.unwrap();
        assert_eq!(
            orders,
            ["1 2", "2 1"],
            "node {node}: the order is paid, and that of the new voucher is written"
        );
        // The payment of an order that does not exist has to be refunded, as always.
        let outcomes =
            [("paid applied", 1), ("paid refund_due", 1)].map(|(word, count)| (word.to_owned(), count));
        assert_eq!(by_outcome(&scene.fixture).await, outcomes, "node {node}");
    }
    assert!(behind.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn no_command_decides_by_what_a_node_of_galera_does_not_show_yet() {
    commands_at_a_node_that_is_behind(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn no_command_decides_by_what_a_member_of_a_group_does_not_show_yet() {
    commands_at_a_node_that_is_behind(ClusterKind::MultiPrimary).await;
}

/// The data that a command must not change: the stock, the journal, the stream and the dead letters.
type InRedis = (Option<i64>, BTreeMap<String, String>, i64, Vec<BTreeMap<String, String>>);

async fn in_redis(scene: &Scene) -> InRedis {
    let entries = scene.fixture.redis_says(&["XLEN", STREAM]).await.as_i64().expect("a stream");
    let (stock, journal) = (scene.fixture.redis_stock(PLENTY).await, scene.fixture.journal(PLENTY).await);
    (stock, journal, entries, scene.fixture.dead().await)
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// Adds a dead letter as if a worker had buried the order.
async fn bury(scene: &Scene, order: i64) {
    let (order, voucher) = (order.to_string(), PLENTY.to_string());
    let fields = ["id", &order, "userId", &order, "voucherId", &voucher, "dead:entry", "1-1"];
    let burial = ["dead:reason", "unknown_voucher", "dead:error", "-", "dead:consumer", "w-0"];
    let burial = [&burial[..], &["dead:deliveries", "1", "dead:at_ms", "1"]].concat();
    scene.fixture.redis_says(&[&["XADD", DEAD, "*"][..], &fields, &burial].concat()).await;
}

/// The number of the error that a member of a group returns after a wait that `wait_timeout` limits.
async fn number_of_a_wait_in_vain(url: &str) -> u16 {
    let mut session = MySqlConnection::connect(url).await.unwrap();
    let settings = "SET SESSION wait_timeout = 1, SESSION group_replication_consistency = 'BEFORE'";
    session.execute(settings).await.unwrap();
    let error = session.execute("SELECT id FROM tidegate_probe").await.expect_err("it lags");
    let error = error.as_database_error().expect("the server says it").downcast_ref::<MySqlDatabaseError>();
    error.number()
}

/// Orders are written at node 0. Commands and a worker at node 1, whose applier is stalled, must not report them as
/// lost.
async fn commands_at_a_node_that_is_behind(kind: ClusterKind) {
    let mut scene = Scene::open(kind, 0).await;
    let (first, behind) = (scene.node(0).url(), scene.node(1).url());
    // A complete journal makes the comparison compare each order.
    let rebuilt = scene.tidegate(&first, &["rebuild", "--all", "--yes"]);
    assert!(rebuilt.status.success(), "{}", said(&rebuilt));
    let (mut rival, at_first) = stall(&scene).await;
    scene.look_at(0).await;
    let writer = scene.plan(0).start();
    for order in 1..=3 {
        scene.fixture.admit(order, order, PLENTY, 1).await;
    }
    scene.settled().await;
    assert!(writer.stop().await.success());
    assert_eq!(scene.fixture.live_orders().await.len(), 3);
    let compared = scene.tidegate(&first, &["reconcile"]);
    assert!(compared.status.success(), "node 0 has them: {}", said(&compared));

    let worker = scene.plan(1).set("RECONCILE_EVERY_S", 1).start();
    worker.says("both stores are not compared").await;
    worker.says("lags").await;
    assert!(worker.stop().await.success());
    let before = in_redis(&scene).await;
    let lags = |output: &Output, command: &[&str]| {
        let said = said(output);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains("lags") && said.contains("mysql.url"), "{command:?}: {said}");
        assert!(!said.contains("lost_order"), "{command:?}: {said}");
    };
    for command in [
        &["reconcile"][..],
        &["reconcile", "--repair", "--dry-run"],
        &["reconcile", "--repair", "--yes"],
        &["rebuild", "--all", "--yes"],
    ] {
        lags(&scene.tidegate(&behind, command), command);
        assert_eq!(in_redis(&scene).await, before, "{command:?}");
    }

    // Order 2 was cancelled at node 0 by a command that died before it released the order in Redis.
    for cancelled in [
        format!("UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 2 AND voucher_id = {PLENTY}"),
        format!("UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = {PLENTY}"),
    ] {
        at_first.execute(sqlx::AssertSqlSafe(cancelled)).await.unwrap();
    }
    bury(&scene, 1).await;
    bury(&scene, 2).await;
    let before = in_redis(&scene).await;
    for command in ["cancel", "requeue", "drop"] {
        for more in [&["--dry-run"][..], &["--yes"]] {
            let command = [&["dead", command, "--all"][..], more].concat();
            lags(&scene.tidegate(&behind, &command), &command);
            assert_eq!(in_redis(&scene).await, before, "{command:?}");
        }
    }

    if kind == ClusterKind::MultiPrimary {
        assert_eq!(number_of_a_wait_in_vain(&behind).await, 3797, "as mysql_error.rs has it");
    }

    rival.execute("UNLOCK TABLES").await.unwrap();
    scene.look_at(1).await;
    assert_eq!(scene.fixture.live_orders().await.len(), 2);
    let cancelled = scene.tidegate(&behind, &["dead", "cancel", "--all", "--yes", "--json"]);
    assert_eq!(cancelled.status.code(), Some(1), "order 1 is live: {}", said(&cancelled));
    let stock = before.0.map(|stock| stock + 1);
    assert_eq!(scene.fixture.redis_stock(PLENTY).await, stock, "order 2 is released, and no other");
    let dropped = scene.tidegate(&behind, &["dead", "drop", "--all", "--yes"]);
    assert!(dropped.status.success(), "order 1 is written: {}", said(&dropped));
    for command in [&["reconcile", "--json"][..], &["reconcile", "--repair", "--yes"]] {
        let compared = scene.tidegate(&behind, command);
        assert!(compared.status.success(), "{command:?}: {}", said(&compared));
    }
    let json = scene.tidegate(&behind, &["reconcile", "--json"]).stdout;
    let json: Json = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((&json["clean"], &json["mysql_orders"]), (&true.into(), &3.into()), "{json}");
}

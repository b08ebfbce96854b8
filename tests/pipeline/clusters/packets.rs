//! Tests of conflicts between transactions of several nodes.

use std::time::Instant;

use nix::sys::signal::Signal;
use sqlx::{Connection, Executor, MySqlConnection};
use tidegate_lab::{ClusterKind, Proxy};

use super::Scene;
use crate::fixture::rush::PLENTY;

const ORDERS: i64 = 30_000;

/// When COMMIT was in one packet with its statements, 401 of 80,000 orders were acknowledged and not in the table.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn three_workers_on_three_nodes_of_galera_lose_no_order_of_a_hot_voucher() {
    drain_with_three(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn three_workers_on_three_members_of_a_group_lose_no_order_of_a_hot_voucher() {
    drain_with_three(ClusterKind::MultiPrimary).await;
}

async fn drain_with_three(kind: ClusterKind) {
    let mut scene = Scene::open(kind, ORDERS).await;
    let began = Instant::now();
    scene.start_workers();
    scene.settled().await;
    println!("{kind:?}: {:.0} orders/s", ORDERS as f64 / began.elapsed().as_secs_f64());
    scene.ends_well_on(&[0, 1, 2]).await;
}

/// On a cluster, COMMIT is a packet of its own. A worker that is frozen before it holds its rows, on its own node,
/// until the server ends its session.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn a_worker_that_is_frozen_before_its_commit_holds_rows_no_longer_than_its_session_may_be_silent() {
    let mut scene = Scene::open(ClusterKind::Galera, 100).await;
    let proxy = Proxy::start(scene.node(0).port()).await.unwrap();
    // The packet that is only a COMMIT.
    let commit = proxy.hold_when(b"\x03COMMIT");
    let plan = scene.plan(0).set("MYSQL_URL", proxy.url_for(scene.node(0))).set("WORKER_LANES", 1);
    let worker = plan.start();
    commit.reached().await.unwrap();
    worker.signal(Signal::SIGSTOP);

    let mut other = MySqlConnection::connect(&scene.node(0).url()).await.unwrap();
    let touch = "UPDATE tb_seckill_voucher SET stock = stock WHERE voucher_id = 1";
    other.execute("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    let held = other.execute(touch).await.unwrap_err().to_string();
    assert!(held.contains("1205"), "the voucher's row is held: {held}");
    // The session may be silent for three seconds here (worker.claim_idle_ms). The timeout is longer than that.
    other.execute("SET SESSION innodb_lock_wait_timeout = 30").await.unwrap();
    let began = Instant::now();
    other.execute(touch).await.expect("the server has ended the frozen worker's session");
    println!("held for {:?} more", began.elapsed());
    assert_eq!(scene.fixture.mysql_stock(PLENTY).await, super::STOCK, "its transaction was rolled back");

    worker.signal(Signal::SIGCONT);
    commit.cut();
    scene.workers.push(worker);
    scene.ends_well_on(&[0, 1, 2]).await;
}

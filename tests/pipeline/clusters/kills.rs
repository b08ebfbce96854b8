//! Tests of nodes that die or are partitioned under load.

use tidegate_lab::ClusterKind;

use super::Scene;

const ORDERS: i64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn a_node_of_galera_dies_with_its_worker() {
    a_node_dies_with_its_worker(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn a_member_of_a_group_dies_with_its_worker() {
    a_node_dies_with_its_worker(ClusterKind::MultiPrimary).await;
}

async fn a_node_dies_with_its_worker(kind: ClusterKind) {
    let mut scene = Scene::under_way(kind, ORDERS).await;
    scene.look_at(1).await;
    scene.sold(2_000).await;
    scene.workers.remove(0).kill9();
    scene.node(0).kill9().unwrap();
    scene.ends_well_on(&[1, 2]).await;

    scene.node(0).restart().unwrap();
    scene.ends_well_on(&[0, 1, 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn a_worker_whose_node_of_galera_died_goes_to_the_next_and_comes_back() {
    a_worker_outlives_its_node(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn a_worker_whose_member_died_goes_to_the_next_and_comes_back() {
    a_worker_outlives_its_node(ClusterKind::MultiPrimary).await;
}

async fn a_worker_outlives_its_node(kind: ClusterKind) {
    let mut scene = Scene::under_way(kind, ORDERS).await;
    scene.look_at(1).await;
    scene.sold(2_000).await;
    scene.node(0).kill9().unwrap();
    scene.workers[0].says("sessions go to another node").await;
    scene.ends_well_on(&[1, 2]).await;

    scene.node(0).restart().unwrap();
    scene.workers[0].says("sessions return to this node").await;
    scene.fixture.plain_rush(100_000, 2_000).await;
    scene.ends_well_on(&[0, 1, 2]).await;
}

/// The worker at the primary dies with it. The other workers have connected to the primary from the start, because
/// secondaries accept no writes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn all_workers_follow_the_primary_of_a_group() {
    let mut scene = Scene::under_way(ClusterKind::SinglePrimary, ORDERS).await;
    scene.workers[1].says("super_read_only is ON").await;
    let doctor = scene.tidegate(&scene.fixture.mysql.url_from(0), &["doctor"]);
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert_eq!(doctor.matches("is a secondary of the replication group").count(), 2, "{doctor}");
    assert_eq!(
        doctor.matches("accepts orders and is a node of the replication group").count(),
        1,
        "{doctor}"
    );
    scene.look_at(1).await;
    scene.sold(2_000).await;
    scene.node(0).kill9().unwrap();
    scene.workers[0].says("sessions go to another node").await;
    scene.ends_well_on(&[1, 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn a_node_of_galera_that_was_alone_comes_back_with_all_orders() {
    a_node_parts_and_comes_back(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn a_member_of_a_group_that_was_frozen_comes_back_with_all_orders() {
    a_node_parts_and_comes_back(ClusterKind::MultiPrimary).await;
}

async fn a_node_parts_and_comes_back(kind: ClusterKind) {
    let mut scene = Scene::under_way(kind, ORDERS).await;
    scene.look_at(1).await;
    scene.sold(2_000).await;
    scene.node(0).partition_away().unwrap();
    scene.workers[0].says("sessions go to another node").await;
    scene.ends_well_on(&[1, 2]).await;

    scene.fixture.plain_rush(100_000, 2_000).await;
    scene.node(0).bring_back().unwrap();
    scene.workers[0].says("sessions return to this node").await;
    scene.ends_well_on(&[0, 1, 2]).await;
}

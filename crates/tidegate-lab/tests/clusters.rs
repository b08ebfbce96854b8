//! Tests of the lab's clusters.

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use tidegate_lab::{ClusterKind, ClusterNode, MysqlCluster, MysqlFlavour};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes up to a minute; run `just clusters`"]
async fn a_node_of_galera_that_was_killed_or_alone_has_what_the_others_have() {
    each_node_comes_back(ClusterKind::Galera).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes up to a minute; run `just clusters`"]
async fn a_member_of_a_group_that_was_killed_or_alone_has_what_the_others_have() {
    if MysqlFlavour::Mysql.is_installed() {
        each_node_comes_back(ClusterKind::MultiPrimary).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes up to a minute; run `just clusters`"]
async fn a_group_with_one_primary_takes_writes_there_alone() {
    if !MysqlFlavour::Mysql.is_installed() {
        return;
    }
    let cluster = MysqlCluster::start(ClusterKind::SinglePrimary).unwrap();
    let [primary, secondary, _] = cluster.nodes() else { panic!("three nodes") };
    run(primary, "CREATE TABLE kept (id BIGINT PRIMARY KEY)").await.unwrap();
    let refused = run(secondary, "INSERT INTO kept VALUES (1)").await;
    assert!(refused.unwrap_err().to_string().contains("super-read-only"), "a secondary");
}

async fn each_node_comes_back(kind: ClusterKind) {
    let cluster = MysqlCluster::start(kind).unwrap();
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    run(first, "CREATE TABLE kept (id BIGINT PRIMARY KEY)").await.unwrap();

    second.kill9().unwrap();
    run(third, "INSERT INTO kept VALUES (1)").await.unwrap();
    second.restart().unwrap();
    assert_eq!(kept(second, kind).await, 1, "after it was killed");

    third.partition_away().unwrap();
    if kind == ClusterKind::Galera {
        let alone = run(third, "INSERT INTO kept VALUES (3)").await;
        assert!(alone.unwrap_err().to_string().contains("1047"), "it is alone");
    }
    run(first, "INSERT INTO kept VALUES (2)").await.unwrap();
    third.bring_back().unwrap();
    assert_eq!(kept(third, kind).await, 2, "after it was alone");
}

async fn run(node: &ClusterNode, statement: &str) -> sqlx::Result<()> {
    let mut client = MySqlConnection::connect(&node.url()).await?;
    client.execute(AssertSqlSafe(statement.to_owned())).await?;
    client.close().await
}

/// Reads the rows that all nodes have committed. A node of Galera applies the commits of others a moment later, so the
/// read waits for them. It is no prepared statement, because preparing waits for nothing, and the table may not exist
/// yet.
async fn kept(node: &ClusterNode, kind: ClusterKind) -> i64 {
    let mut client = MySqlConnection::connect(&node.url()).await.unwrap();
    if kind == ClusterKind::Galera {
        client.execute("SET SESSION wsrep_sync_wait = 1").await.unwrap();
    }
    sqlx::raw_sql("SELECT COUNT(*) FROM kept").fetch_one(&mut client).await.unwrap().get(0)
}

//! Runbook: a node of a Redis Cluster dies, and its replica lacks a part of the data.

use fred::interfaces::{HashesInterface, KeysInterface, SetsInterface};
use sqlx::MySqlPool;
use tidegate_lab::{MysqlServer, RedisCluster, RedisNode};

use crate::{
    fixture::{connect, until, worker_plan},
    program::Program,
    runbook::recipes::Operator,
};

const TAGS: &str = "3,1,0";

/// The replication offset of a node: the bytes that it has written, or received.
fn offset(node: &RedisNode, field: &str) -> u64 {
    let info = node.says(&["INFO", "replication"]).expect("it answers");
    let value = info.lines().find_map(|line| line.trim_end().strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).expect("an offset")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_dies_and_what_its_replica_lacked_is_found_and_repaired() {
    let cluster = RedisCluster::start().expect("a cluster");
    let mysql = MysqlServer::shared().expect("a database");
    let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
    tidegate_orders::schema::migrate(&pool).await.expect("the schema is made");
    let operator = Operator::in_cluster(&cluster.url(), &mysql.url(), TAGS);
    let partitions = format!("stream.partitions={TAGS}");
    let flags = ["--redis-url", &cluster.url(), "--mysql-url", &mysql.url(), "--set", &partitions];
    let program = Program::with_flags(&flags);
    let folder = tempfile::tempdir().expect("a folder");
    let worker = worker_plan(&cluster.url(), &mysql.url(), "w", folder.path());
    let worker = worker.set("STREAM_PARTITIONS", TAGS).start();
    // Voucher 9 is in the first partition.
    program.run("voucher load --voucher 9 --stock 10").expect(0);
    let is_written = async |order: i64| {
        let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM tb_voucher_order WHERE id = ?");
        count.bind(order).fetch_one(&pool).await.expect("MySQL answers") == 1
    };
    for order in 1..=3 {
        program.run(&format!("admit --voucher 9 --user {order} --order {order}")).expect(0);
        until("the order is written", || is_written(order)).await;
    }

    let master = cluster.master_of("3").expect("a master");
    // A replica that has just synchronized may receive nothing for another second.
    until("the replica has what its master has", || async {
        let written = offset(master, "master_repl_offset");
        cluster.replicas_of(master).iter().any(|replica| offset(replica, "slave_repl_offset") == written)
    })
    .await;
    master.server().kill9().expect("it dies");
    cluster.wait_whole(std::time::Duration::from_secs(30)).expect("its replica takes over");
    let promoted = cluster.master_of("3").expect("a master");
    assert_ne!(promoted.id(), master.id());
    // These are the changes that a delayed replica lacks.
    let redis = connect(&promoted.url()).await;
    let _: i64 = redis.hdel("{3}:seckill:journal:9", "2").await.expect("it answers");
    let _: i64 = redis.srem("{3}:seckill:order:9", "2").await.expect("it answers");
    let _: i64 = redis.incr("{3}:seckill:stock:9").await.expect("it answers");

    operator.types("Redis is down", "tidegate doctor\ntidegate status", &[]).shows(&[
        "Partition {3}",
        "this Redis master has no replica",
        "undelivered 0",
    ]);
    master.server().restart().expect("it comes back");
    cluster.wait_whole(std::time::Duration::from_secs(30)).expect("it is a replica");
    operator
        .types("Redis is down", "tidegate reconcile\n", &[])
        .ends_with(&[1])
        .shows(&["1 order (1 unit) live in MySQL, and not in the journal", "It does NOT agree"]);
    operator
        .types("Redis is down", "tidegate reconcile --repair", &[])
        .succeeds()
        .shows(&["1 admission to be restored", "1 admission restored, the stock in Redis changed by -1"]);
    operator.types("Redis is down", "tidegate reconcile\n", &[]).succeeds().shows(&["It agrees"]);
    assert!(worker.stop().await.success());
}

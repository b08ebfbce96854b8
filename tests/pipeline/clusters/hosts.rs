//! Test of several hosts in `mysql.url`: they must be nodes of one cluster.

use tidegate_lab::{ClusterKind, MysqlFlavour, MysqlServer};

use super::Scene;
use crate::fixture::rush::PLENTY;

/// An asynchronous replica lacks acknowledged orders, so a worker that connects to it would lose them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn a_server_outside_of_the_cluster_is_never_gone_to() {
    let mut scene = Scene::open(ClusterKind::Galera, 1_000).await;
    let stranger = MysqlServer::options().flavour(MysqlFlavour::MariaDb).start().unwrap();
    let urls = format!("127.0.0.1:{},127.0.0.1:{}", scene.node(0).port(), stranger.port());
    let url = format!("mysql://tidegate@{urls}/tidegate?ssl-mode=disabled");
    let worker = scene.plan(0).set("MYSQL_URL", &url).start();
    worker.says("the server is not a node of the Galera cluster").await;
    scene.sold(1).await;

    scene.node(0).kill9().unwrap();
    worker.says("outage began").await;
    scene.look_at(1).await;
    scene.fixture.plain_rush(100_000, 100).await;
    let refused = scene.tidegate(&url, &["status"]);
    let said =
        String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(said.contains("the server is not a node of a cluster"), "{said}");
    assert!(!worker.log().contains("sessions go to another node"), "{}", worker.log());

    scene.node(0).restart().unwrap();
    scene.workers.push(worker);
    scene.ends_well_on(&[0, 1, 2]).await;
    assert!(scene.fixture.mysql_stock(PLENTY).await < super::STOCK);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn doctor_tells_a_cluster_from_what_is_none() {
    let scene = Scene::open(ClusterKind::Galera, 1).await;
    let doctor = |url: &str| {
        let output = scene.tidegate(url, &["doctor"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let well = doctor(&scene.fixture.mysql.url_from(0));
    assert!(well.contains("accepts orders") && well.contains("3 nodes"), "{well}");
    assert!(well.contains("the cluster is Galera: give all workers the nodes in the same order"), "{well}");
    // The doctor checks this setting of every node, and not only of the node that it asks for everything else.
    let second = sqlx::MySqlPool::connect(&scene.node(1).url()).await.unwrap();
    sqlx::raw_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").execute(&second).await.unwrap();
    let lazy = doctor(&scene.fixture.mysql.url_from(0));
    assert!(lazy.contains("innodb_flush_log_at_trx_commit is 2: if all Galera nodes"), "{lazy}");
    sqlx::raw_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1").execute(&second).await.unwrap();

    scene.node(2).partition_away().unwrap();
    let alone = doctor(&scene.node(2).url());
    assert!(alone.contains("outside of its cluster's primary component"), "{alone}");
    let one_less = doctor(&scene.fixture.mysql.url_from(0));
    assert!(one_less.contains("2 nodes") && one_less.contains("if one more node fails"), "{one_less}");
    let one_named = doctor(&scene.node(0).url());
    assert!(one_named.contains("mysql.url names one node of the Galera cluster"), "{one_named}");

    let stranger = MysqlServer::options().flavour(MysqlFlavour::MariaDb).start().unwrap();
    let two =
        format!("mysql://tidegate@127.0.0.1:{0},127.0.0.1:{0}/tidegate?ssl-mode=disabled", stranger.port());
    let none = doctor(&two);
    assert!(none.contains("several hosts must be nodes of one Galera cluster"), "{none}");
}

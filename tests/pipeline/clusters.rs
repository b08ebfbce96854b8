//! Tests of workers on clusters of MySQL: Galera, and group replication with one primary or many. `just clusters` runs
//! them.
//!
//! In each test, three workers drain a rush for one hot voucher, each at a node of its own. At the end, the invariants
//! hold on every live node.

mod causal_reads;
mod events;
mod hosts;
mod kills;
mod migrations;
mod packets;

use std::{
    process::Output,
    time::{Duration, Instant},
};

use sqlx::{Executor, MySqlPool, mysql::MySqlPoolOptions};
use tidegate_lab::{ClusterKind, ClusterNode, MysqlCluster, RedisServer};
use tidegate_orders::schema::{self, MigrateError};
use tokio::time::sleep;

use crate::fixture::{Fixture, Worker, WorkerPlan, program, rush::PLENTY};

/// Longer than any step takes on a busy machine, including the discovery of a dead node.
const WITHIN: Duration = Duration::from_secs(180);
const STOCK: i64 = 1_000_000;

/// A sale on a cluster, with one worker at each node.
struct Scene {
    // These fields come before the fixture, which holds the logs, so that they are dropped first.
    workers: Vec<Worker>,
    fixture: Fixture<MysqlCluster>,
}

impl Scene {
    /// Opens a sale with this many waiting orders, all of one voucher.
    async fn open(kind: ClusterKind, orders: i64) -> Self {
        let cluster = MysqlCluster::start(kind).expect("a cluster");
        let redis = RedisServer::options().args(["--appendfsync", "always"]).start().expect("a Redis");
        let fixture = Fixture::on(redis, cluster).await;
        migrate(&fixture.mysql).await;
        fixture.load(PLENTY, STOCK).await;
        fixture.load_scripts().await;
        fixture.plain_rush(1, orders).await;
        Self { fixture, workers: Vec::new() }
    }

    /// Opens a sale like [`Scene::open`], and starts the workers.
    async fn under_way(kind: ClusterKind, orders: i64) -> Self {
        let mut scene = Self::open(kind, orders).await;
        scene.start_workers();
        scene.sold(1).await;
        scene
    }

    /// The plan of a worker whose first node is `at`. Small batches conflict more often.
    fn plan(&self, at: usize) -> WorkerPlan {
        let plan = self.fixture.worker(&format!("w{at}")).set("MYSQL_URL", self.fixture.mysql.url_from(at));
        let plan = plan.set("WORKER_BATCH", 100).set("WORKER_LOCK_LEASE_MS", 2_000);
        let plan = plan.set("WORKER_CLAIM_IDLE_MS", 3_000).set("WORKER_CLAIM_EVERY_MS", 200);
        let plan = plan.set("WORKER_HEARTBEAT_TTL_MS", 2_000).set("WORKER_BACKOFF_MAX_MS", 500);
        plan.set("MYSQL_ACQUIRE_TIMEOUT_MS", 2_000).set("MYSQL_STATEMENT_TIMEOUT_MS", 5_000)
    }

    /// Starts a worker at each node.
    fn start_workers(&mut self) {
        self.workers = (0..3).map(|at| self.plan(at).start()).collect();
    }

    fn node(&self, at: usize) -> &ClusterNode {
        &self.fixture.mysql.nodes()[at]
    }

    /// Waits until this many units are sold, as seen by the node that the fixture reads.
    async fn sold(&self, units: i64) {
        self.poll("units are sold", async || self.fixture.mysql_stock(PLENTY).await <= STOCK - units).await;
    }

    /// Waits until no entry is open.
    async fn settled(&self) {
        self.poll("all is settled", async || self.fixture.open_entries().await == Some(0)).await;
    }

    async fn poll(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            assert!(
                began.elapsed() < WITHIN,
                "waited in vain until {what}; open: {:?}",
                self.fixture.open_entries().await
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Reads the tables of this node from now on.
    async fn look_at(&mut self, node: usize) {
        self.fixture.pool = reader_of(&self.fixture.mysql, node).await;
    }

    /// Checks that no entry is open, and that the invariants hold on each of these nodes.
    async fn ends_well_on(&mut self, nodes: &[usize]) {
        self.settled().await;
        for node in nodes {
            self.look_at(*node).await;
            self.fixture.invariants().await;
        }
    }

    /// Runs the program to its end, with this `mysql.url`.
    fn tidegate(&self, url: &str, args: &[&str]) -> Output {
        let mut command = program();
        command.env("TIDEGATE_REDIS_URL", self.fixture.redis.url()).env("TIDEGATE_MYSQL_URL", url);
        command.args(args).output().expect("the program runs")
    }
}

/// Creates the schema at a node that accepts writes. In a replication group, that may be one member only.
async fn migrate(cluster: &MysqlCluster) {
    for node in cluster.nodes() {
        let pool = MySqlPool::connect(&node.url()).await.expect("the node answers");
        match schema::migrate(&pool).await {
            Err(MigrateError::AnotherMember { .. }) => {}
            migrated => return drop(migrated.expect("the schema is made")),
        }
    }
    panic!("each node names another one");
}

/// Connections to one node that see all earlier commits of the other nodes.
async fn reader_of(cluster: &MysqlCluster, node: usize) -> MySqlPool {
    let waits = match cluster.kind() {
        ClusterKind::Galera => "SET SESSION wsrep_sync_wait = 1",
        ClusterKind::SinglePrimary | ClusterKind::MultiPrimary => {
            "SET SESSION group_replication_consistency = 'BEFORE'"
        }
    };
    let pool = MySqlPoolOptions::new().max_connections(2).after_connect(move |connection, _| {
        Box::pin(async move {
            connection.execute(waits).await?;
            Ok(())
        })
    });
    pool.connect(&cluster.nodes()[node].url()).await.expect("the node answers")
}

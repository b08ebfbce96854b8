//! Tests of two migrations at the same time, at two nodes: the lock that excludes them from each other exists on one
//! server only.

use std::{process::Output, thread, time::Duration};

use futures_util::future::join_all;
use tidegate_lab::{ClusterKind, MysqlCluster, RedisServer};
use tidegate_orders::schema;

use super::{Scene, reader_of};
use crate::fixture::Fixture;

impl Scene {
    /// A cluster without a schema.
    async fn bare(kind: ClusterKind) -> Self {
        let cluster = MysqlCluster::start(kind).expect("a cluster");
        let fixture = Fixture::on(RedisServer::start().expect("a Redis"), cluster).await;
        Self { workers: Vec::new(), fixture }
    }

    /// Migrates at all nodes at once.
    fn migrate_everywhere(&self) -> Vec<Output> {
        thread::scope(|scope| {
            let migrate = |at| move || self.tidegate(&self.node(at).url(), &["migrate", "--yes"]);
            let all = [0, 1, 2].map(|at| scope.spawn(migrate(at)));
            all.into_iter().map(|one| one.join().expect("it ends")).collect()
        })
    }

    async fn all_have_the_schema(&self) {
        for at in 0..3 {
            let pool = reader_of(&self.fixture.mysql, at).await;
            let state = schema::check(&pool).await.expect("the node answers");
            assert!(state.is_ready(), "node {at}: {state:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Galera; run `just clusters`"]
async fn migrations_at_all_nodes_of_galera_at_once_all_end_well() {
    let scene = Scene::bare(ClusterKind::Galera).await;
    for output in scene.migrate_everywhere() {
        assert!(output.status.success(), "{output:?}");
    }
    scene.all_have_the_schema().await;
    // If only the view is missing, all nodes would create it at the same moment: two such statements would block both
    // nodes for ever.
    let pools = [0, 1, 2].map(|at| reader_of(&scene.fixture.mysql, at));
    let pools = join_all(pools).await;
    for _ in 0..5 {
        let forget = "DROP VIEW tidegate_voucher_units; DELETE FROM tidegate_probe WHERE id = 2";
        sqlx::raw_sql(forget).execute(&pools[0]).await.expect("it is forgotten");
        let all = join_all(pools.iter().map(schema::migrate));
        let all = tokio::time::timeout(Duration::from_secs(60), all).await.expect("all end");
        let made: usize = all.into_iter().map(|one| one.expect("it ends well").applied.len()).sum();
        assert_eq!(made, 1, "one of them has made the view");
    }
    scene.all_have_the_schema().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MySQL 9; run `just clusters`"]
async fn migrations_at_all_primaries_of_a_group_at_once_are_made_by_one_and_the_group_lives() {
    let scene = Scene::bare(ClusterKind::MultiPrimary).await;
    let all = scene.migrate_everywhere();
    let done: Vec<usize> = (0..3).filter(|at| all[*at].status.success()).collect();
    let [done] = done[..] else { panic!("one of them: {all:?}") };
    let member = format!(":{}\n", scene.node(done).port());
    for (at, output) in all.iter().enumerate().filter(|(at, _)| *at != done) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("nothing was changed") && said.ends_with(&member), "node {at}: {said}");
    }
    scene.all_have_the_schema().await;
    // All migrations succeed if there is nothing left to do.
    for output in scene.migrate_everywhere() {
        assert!(output.status.success(), "{output:?}");
    }
}

//! Tests of two fleets on one Redis: one setting, `redis.prefix`, separates all their data.

use std::collections::BTreeMap;

use fred::interfaces::StreamsInterface;
use sqlx::MySqlPool;
use tidegate_lab::MysqlServer;
use tidegate_orders::{KeyTemplates, RedisStore};
use tidegate_stream::StreamNames;

use crate::{
    fixture::{
        DEAD, Fixture, GROUP, STREAM, WorkerPlan, invariants::none_is, redis_pool, stores::Stores, until,
    },
    program::{Program, Run},
};

const PREFIX: &str = "shop2:";

/// A second fleet, with a database of its own on the Redis of `fixture`.
struct Second<'a> {
    fixture: &'a Fixture,
    mysql: MysqlServer,
}

impl Second<'_> {
    fn run(&self, words: &str) -> Run {
        let (redis, mysql) = (self.fixture.redis.url(), self.mysql.url());
        let flags = ["--redis-url", &redis, "--mysql-url", &mysql, "--set", "redis.prefix=shop2:"];
        Program::with_flags(&flags).run(words)
    }

    async fn judge(&self) {
        let pool = MySqlPool::connect(&self.mysql.url()).await.expect("MySQL answers");
        let stores = Stores { client: &self.fixture.client, pool: &pool, prefix: PREFIX };
        none_is(&stores.mismatches(&[1], &BTreeMap::new()).await);
    }

    /// A worker with the same name as one of the first fleet.
    fn worker(&self) -> WorkerPlan {
        let plan = self.fixture.worker("w").log_as("second").set("REDIS_PREFIX", PREFIX);
        plan.set("MYSQL_URL", self.mysql.url())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_fleet_with_a_prefix_shares_nothing_with_the_first() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let second = Second { fixture: &fixture, mysql: MysqlServer::shared().expect("a database") };
    second.run("migrate --yes").expect(0);
    // In the other fleet, the same voucher, users and names of workers mean something else.
    second.run("voucher load --voucher 1 --stock 2").expect(0);
    let (first, other) = (fixture.worker("w").start(), second.worker().start());
    first.says("worker started").await;
    other.says("worker started").await;

    second.run("pause --workers --reason theirs --yes").expect(0);
    second.run("admit --voucher 1 --user 1").expect(0);
    fixture.admit(101, 1, 1, 1).await;
    fixture.add_poison().await;
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 1, "the first fleet is not paused");
    let length = async |key: String| fixture.client.xlen::<u64, _>(key).await.expect("Redis answers");
    assert_eq!((length(DEAD.to_owned()).await, length(format!("{PREFIX}{DEAD}")).await), (2, 0));
    assert_eq!(length(format!("{PREFIX}{STREAM}")).await, 1, "unread: its fleet is paused");
    second.run("resume --workers --yes").expect(0);
    until("the second fleet has written", || async {
        let shown = second.run("voucher show --voucher 1 --json").expect(0).json();
        shown["mysql"]["stock"] == 1 && shown["redis"]["stock"] == 1
    })
    .await;
    second.judge().await;
    assert_eq!(second.run("dead list --json").expect(0).json()["letters"], 0);
    let log = String::from_utf8(fixture.tidegate(&["log", "--json"]).stdout).expect("text");
    assert!(!log.contains("theirs"), "{log}");
    fixture.judge().await;
    let gate = RedisStore::new(
        redis_pool(&fixture.redis.url()).await,
        KeyTemplates::default().prefixed(PREFIX),
        StreamNames {
            stream: format!("{PREFIX}{STREAM}"),
            dead: format!("{PREFIX}{DEAD}"),
            group: GROUP.to_owned(),
        },
    );
    let state = gate.sales().read_voucher(1.try_into().expect("an id")).await.expect("Redis answers");
    assert_eq!((state.stock, state.buyers), (Some(1), 1));
    assert!(first.stop().await.success() && other.stop().await.success());
}

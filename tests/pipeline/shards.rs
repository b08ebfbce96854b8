//! Tests of partitions in two MySQL servers: a shard that is down stops only its partitions, and never counts as empty.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::Value as Json;
use sqlx::MySqlPool;
use tidegate_lab::MysqlServer;
use tidegate_orders::{
    KeyTemplates, Partition, RedisStore,
    scripts::{Admission, AdmitReply},
};

use crate::{
    browser::get,
    fixture::{
        DEADLINE, Fixture, WorkerPlan, invariants::none_is, redis_pool, stores::Stores, until, until_within,
    },
    program::Program,
};

const TAGS: [&str; 4] = ["0", "1", "2", "3"];
const BATCH: i64 = 100;
const LANES: i64 = 2;

/// Partitions 0 and 1 are in `fixture.mysql`, 2 and 3 in `second`; voucher n belongs to partition n.
struct ShardFixture {
    fixture: Fixture,
    second: MysqlServer,
    second_pool: MySqlPool,
    gates: Vec<RedisStore>,
    next: AtomicI64,
}

impl ShardFixture {
    async fn open() -> Self {
        let fixture = Fixture::bare().await;
        let second = MysqlServer::start().expect("a MySQL");
        let second_pool = MySqlPool::connect(&second.url()).await.expect("MySQL answers");
        let mut gates = Vec::new();
        for partition in Partition::all(&TAGS.map(str::to_owned)) {
            let keys = KeyTemplates::default().of_partition(&partition);
            gates.push(RedisStore::with_default_names(redis_pool(&fixture.redis.url()).await, keys));
        }
        let shards = Self { fixture, second, second_pool, gates, next: AtomicI64::new(1) };
        let migrated = shards.program().run("migrate --yes").expect(0);
        assert!(migrated.stdout.contains("{0,1}") && migrated.stdout.contains("{2,3}"), "{migrated:#?}");
        for voucher in 4..8 {
            shards.program().run(&format!("voucher load --voucher {voucher} --stock 1000000")).expect(0);
        }
        shards
    }

    fn map(&self) -> String {
        format!("2={0} 3={0}", self.second.url())
    }

    /// The program with these shards and an operator's flags.
    fn program_with(&self, shards: &str) -> Program {
        let (tags, shards) =
            (format!("stream.partitions={}", TAGS.join(",")), format!("mysql.shards={shards}"));
        Program::with_flags(&[
            "--redis-url",
            &self.fixture.redis.url(),
            "--mysql-url",
            &self.fixture.mysql.url(),
            "--set",
            &tags,
            "--set",
            &shards,
            "--set",
            "mysql.acquire_timeout_ms=1000",
        ])
    }

    fn program(&self) -> Program {
        self.program_with(&self.map())
    }

    fn worker_with(&self, name: &str, shards: &str) -> WorkerPlan {
        let plan =
            self.fixture.worker(name).set("STREAM_PARTITIONS", TAGS.join(",")).set("MYSQL_SHARDS", shards);
        plan.set("WORKER_LANES", LANES).set("WORKER_BATCH", BATCH).set("MYSQL_ACQUIRE_TIMEOUT_MS", 1_000)
    }

    async fn admit(&self, voucher: i64) -> i64 {
        let order = self.next.fetch_add(1, Relaxed);
        let admission = Admission {
            order: order.try_into().expect("an order id"),
            user: order.try_into().expect("a user id"),
            voucher: voucher.try_into().expect("a voucher id"),
            quantity: 1.try_into().expect("a quantity"),
            subjects: tidegate_orders::Subjects::none(),
            traceparent: None,
        };
        let reply =
            self.gates[usize::try_from(voucher % 4).expect("small")].admissions().admit(&admission).await;
        assert!(matches!(reply, Ok(AdmitReply::Admitted)), "{reply:?}");
        order
    }

    async fn admit_many(&self, voucher: i64, orders: usize) {
        join_all((0..orders).map(|_| self.admit(voucher))).await;
    }

    /// The number of a voucher's rows in its shard.
    async fn written(&self, voucher: i64) -> i64 {
        let sql = "SELECT COUNT(*) FROM tb_voucher_order WHERE voucher_id = ?";
        sqlx::query_scalar(sql).bind(voucher).fetch_one(self.pool_of(voucher)).await.expect("MySQL answers")
    }

    /// Checks both shards at a quiet moment.
    async fn judge(&self) {
        for (voucher, tag) in (4..8).zip(TAGS) {
            let (pool, prefix) = (self.pool_of(voucher), format!("{{{tag}}}:"));
            let stores = Stores { client: &self.fixture.client, pool, prefix: &prefix };
            until("it is quiet", || async { stores.open_entries().await == Some(0) }).await;
            none_is(&stores.mismatches(&[voucher], &BTreeMap::new()).await);
        }
    }

    fn pool_of(&self, voucher: i64) -> &MySqlPool {
        if voucher % 4 < 2 { &self.fixture.pool } else { &self.second_pool }
    }

    /// The time until this many more orders of a voucher are written.
    async fn drains(&self, voucher: i64, orders: usize) -> Duration {
        let goal = self.written(voucher).await + i64::try_from(orders).expect("few");
        let begun = Instant::now();
        self.admit_many(voucher, orders).await;
        until("they are written", || async { self.written(voucher).await >= goal }).await;
        begun.elapsed()
    }

    /// The status of each partition, by its tag.
    fn status(&self) -> Vec<Json> {
        let status = self.program().run("status --json").stdout;
        let all = serde_json::Deserializer::from_str(&status).into_iter::<Json>();
        all.map(|json| json.expect("JSON")).filter(|json| json.get("partition").is_some()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_away_stops_only_its_partitions_and_leaves_look_ups_unknown() {
    let fixture = ShardFixture::open().await;
    let program = fixture.program();
    let worker = fixture.worker_with("w", &fixture.map()).start();
    for voucher in 4..8 {
        fixture.drains(voucher, 500).await;
    }
    fixture.judge().await;
    // This id names no partition, like that of a producer with ids of its own.
    let order = (1..=60).find(|order| order % 64 > 3).expect("one").to_string();
    program.run(&format!("order show {order}")).expect(0);
    let before = fixture.drains(4, 5_000).await;

    fixture.second.kill9().expect("killed");
    fixture.admit_many(6, 3_000).await;
    fixture.admit_many(7, 3_000).await;
    let away = fixture.drains(4, 5_000).await;
    eprintln!("5000 orders of a healthy shard: {before:?} with both, {away:?} while the other is away");
    assert!(away < before * 3 + Duration::from_secs(1), "{before:?} {away:?}");
    worker.says("a store is unavailable").await;
    for own in fixture.status() {
        let (tag, pending) = (own["partition"].as_str().expect("a tag"), own["stream"]["pending"].as_i64());
        assert!(pending.expect("a number") <= LANES * BATCH, "bounded: {own}");
        assert_eq!(own["stream"]["undelivered"].as_i64() > Some(0), ["2", "3"].contains(&tag), "{own}");
    }
    let audit = program.run("audit").expect(12);
    let port = fixture.second.port().to_string();
    assert!(audit.stderr.contains(&port), "it names the shard: {audit:#?}");
    assert!(audit.stderr.contains("UNKNOWN: 2 of 4 partitions gave no answer: {2}, {3}"), "{audit:#?}");
    assert_eq!(audit.stdout.matches("It holds").count(), 2, "of the others: {audit:#?}");
    // Neither order is in the shard that answers, so the result is unknown. With its voucher, only the shard of that
    // voucher is read.
    for id in ["999937", "999999"] {
        let shown = program.run(&format!("order show {id}")).expect(12);
        assert!(shown.stderr.contains(&port), "{shown:#?}");
    }
    program.run("order show 999937 --voucher 5").expect(1);
    program.run("order wait 999937 --for 300ms").expect(12);
    let change = program.run("order event paid 999937 --user 4 --ref r --yes").expect(12);
    assert!(change.stderr.contains("nothing was changed"), "{change:#?}");
    program.run("migrate --yes").expect(3);

    fixture.second.restart().expect("back");
    until_within(DEADLINE, "it drains", || async {
        fixture.status().iter().all(|own| own["stream"]["pending"] == 0 && own["stream"]["undelivered"] == 0)
    })
    .await;
    assert_eq!((fixture.written(6).await, fixture.written(7).await), (3_500, 3_500));
    fixture.judge().await;
    let audit = program.run("audit").expect(0);
    assert_eq!(audit.stdout.matches("It holds").count(), 4, "{audit:#?}");
    program.run("order show 999999").expect(1);
    // The worker read only one shard: without the voucher, it does not answer that there is no such order.
    let page = get(&worker, "/orders/999937").await;
    assert!(page.status == 400 && page.text.contains("send `voucherId`"), "{page:?}");
    assert_eq!(get(&worker, "/orders/999937?voucherId=5").await.status, 404);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_pointed_to_another_shard_than_that_of_its_rows_is_refused() {
    let fixture = ShardFixture::open().await;
    let program = fixture.program();
    program.run("migrate").expect(0);
    let doctor = program.run("doctor");
    assert!(!doctor.stdout.contains("shard"), "{doctor:#?}");
    let refused = program.run("partitions change --to 0,1,2 --yes").expect(2);
    assert!(refused.stderr.contains("docs/shards.md"), "{refused:#?}");
    let empty = fixture.second.create_database("elsewhere").expect("a database");
    let second = fixture.second.url();
    let wrong = [
        // A partition is moved to the other shard, one is left out, some are in an empty database, and all are in one
        // shard.
        format!("1={second} 2={second} 3={second}"),
        format!("3={second}"),
        format!("2={empty} 3={empty}"),
        String::new(),
    ];
    for map in &wrong {
        let changed = fixture.program_with(map);
        let doctor = changed.run("doctor").expect(1);
        assert!(doctor.stdout.contains("docs/shards.md"), "{doctor:#?}");
        let audit = changed.run("audit").expect(2);
        assert!(audit.stderr.contains("docs/shards.md"), "{audit:#?}");
        changed.run("reconcile --repair --yes").expect(2);
        changed.run("replay --from -1h --to now --yes").expect(2);
        let mut worker = fixture.worker_with("w", map).start();
        assert_eq!(worker.ended().await.code(), Some(2), "{}", worker.log());
        if !map.is_empty() {
            let migrate = changed.run("migrate --yes").expect(2);
            assert!(migrate.stderr.contains("docs/shards.md"), "{migrate:#?}");
        }
    }
    // A worker that started while a shard was away checks the shard before it reads.
    fixture.second.kill9().expect("killed");
    let worker = fixture.worker_with("late", &wrong[0]).start();
    let mut ended = fixture.worker_with("early", &wrong[1]).start();
    assert_eq!(ended.ended().await.code(), Some(2), "partition 2 is pointed to the shard that answers");
    fixture.admit_many(5, 10).await;
    fixture.second.restart().expect("back");
    worker.says("mysql.shards also assigns partition").await;
    assert_eq!(fixture.written(5).await, 0);
    worker.kill9();

    let worker = fixture.worker_with("w", &fixture.map()).start();
    until("they are written", || async { fixture.written(5).await == 10 }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_were_moved_by_hand_are_looked_at_before_shards_say_what_they_serve() {
    let fixture = ShardFixture::open().await;
    let moved = format!("1={0} 2={0} 3={0}", fixture.second.url());
    for pool in [&fixture.fixture.pool, &fixture.second_pool] {
        sqlx::query("DELETE FROM tidegate_shard").execute(pool).await.expect("as docs/shards.md says");
    }
    let audit = fixture.program().run("audit").expect(2);
    assert!(audit.stderr.contains("tidegate migrate"), "{audit:#?}");
    let program = fixture.program_with(&moved);
    let refused = program.run("migrate --yes").expect(2);
    assert!(refused.stderr.contains("rows of voucher 5"), "{refused:#?}");
    let times = "SELECT CAST(begin_time AS CHAR), CAST(end_time AS CHAR) FROM tb_seckill_voucher WHERE voucher_id = 5";
    let (begin, end): (String, String) =
        sqlx::query_as(times).fetch_one(&fixture.fixture.pool).await.expect("the times of the sale");
    let insert = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time, initial_stock) \
                  VALUES (5, 1000000, ?, ?, 1000000)";
    let insert = sqlx::query(insert).bind(begin).bind(end);
    insert.execute(&fixture.second_pool).await.expect("moved");
    let delete = "DELETE FROM tb_seckill_voucher WHERE voucher_id = 5";
    sqlx::query(delete).execute(&fixture.fixture.pool).await.expect("moved");
    program.run("migrate --yes").expect(0);
    program.run("audit").expect(0);
    // One migration was killed when not all shards had the note: the next one continues.
    for (pool, sql) in [
        (&fixture.fixture.pool, "UPDATE tidegate_shard SET is_whole = 0"),
        (&fixture.second_pool, "DELETE FROM tidegate_shard"),
    ] {
        sqlx::query(sql).execute(pool).await.expect("done in part");
    }
    program.run("migrate --partition 2 --yes").expect(2);
    program.run("migrate --dry-run").expect(0);
    program.run("audit --partition 2").expect(2);
    program.run("migrate --yes").expect(0);
    program.run("audit").expect(0);
    fixture.program().run("audit --voucher 5").expect(2);
}

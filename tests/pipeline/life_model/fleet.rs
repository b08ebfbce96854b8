//! A fleet: names of its own in the shared Redis, a database of its own, and its workers.

use std::{
    collections::HashMap,
    process::{Command, Output},
};

use fred::interfaces::{HashesInterface, KeysInterface, StreamsInterface};
use sqlx::MySqlPool;
use tidegate_lab::MysqlServer;
use tidegate_orders::{
    Event, KeyTemplates, RedisStore,
    scripts::{Admission, AdmitReply, LoadReply, SaleWindow},
};
use tidegate_stream::{Entry, EntryId, StreamInspector, StreamNames};

use crate::{
    fixture::{Fixture, GROUP, STREAM, Worker, WorkerPlan, program, redis_pool, stores::Stores},
    rolling::Callers,
};

pub struct Fleet<'a> {
    pub fixture: &'a Fixture,
    prefix: &'static str,
    mysql: MysqlServer,
    pub pool: MySqlPool,
    pub store: RedisStore,
    inspector: StreamInspector,
    /// The callers that are other programs. None: this process itself admits and reports.
    pub callers: Option<Callers>,
}

impl<'a> Fleet<'a> {
    pub async fn open(fixture: &'a Fixture, prefix: &'static str) -> Self {
        let fleet = Self::bare(fixture, prefix).await;
        tidegate_orders::schema::migrate(&fleet.pool).await.expect("the schema is made");
        fleet
    }

    /// Opens a fleet like [`Fleet::open`], with an empty database.
    pub async fn bare(fixture: &'a Fixture, prefix: &'static str) -> Self {
        let mysql = MysqlServer::shared().expect("a database");
        let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
        let stream = format!("{prefix}{STREAM}");
        let store = fixture.store_with(KeyTemplates::default().prefixed(prefix), &stream).await;
        let names = StreamNames { stream, dead: format!("{prefix}{STREAM}.dead"), group: GROUP.into() };
        let inspector = StreamInspector::new(redis_pool(&fixture.redis.url()).await, names);
        Self { fixture, prefix, mysql, pool, store, inspector, callers: None }
    }

    /// Starts a worker of this fleet that quickly takes over from killed ones.
    pub fn worker(&self, at: usize) -> Worker {
        // Each worker has its own name, because a worker waits for the name of a killed one.
        self.plan(&format!("w{at}")).start()
    }

    /// The plan of a worker or gate of this fleet, like [`Fleet::worker`].
    pub fn plan(&self, name: &str) -> WorkerPlan {
        let plan = self.fixture.worker(name).log_as(&format!("{}{name}", self.prefix));
        let plan = plan.set("MYSQL_URL", self.mysql.url()).set("REDIS_PREFIX", self.prefix);
        let plan = plan.set("WORKER_LANES", 3).set("WORKER_BATCH", 50);
        plan.set("WORKER_CLAIM_IDLE_MS", 600)
            .set("WORKER_CLAIM_EVERY_MS", 100)
            .set("WORKER_LOCK_LEASE_MS", 500)
    }

    /// Runs the program to its end, and checks that it succeeds.
    pub async fn tidegate(&self, args: &[&str]) {
        let output = self.run(args).await;
        assert!(output.status.success(), "tidegate {}: {output:?}", args.join(" "));
    }

    /// Runs the program to its end. Its exit code must be 0 or 1, which means no, or that a part is left.
    pub async fn tidegate_tries(&self, args: &[&str]) {
        let output = self.run(args).await;
        assert!(matches!(output.status.code(), Some(0 | 1)), "tidegate {}: {output:?}", args.join(" "));
    }

    /// Runs the program to its end, with any exit code.
    pub async fn run(&self, args: &[&str]) -> Output {
        self.run_of(program(), args).await
    }

    /// Runs this program like [`Fleet::run`]. It may be another version.
    pub async fn run_of(&self, program: Command, args: &[&str]) -> Output {
        let mut command = tokio::process::Command::from(self.fixture.command_of(program, args));
        command.env("TIDEGATE_MYSQL_URL", self.mysql.url()).env("TIDEGATE_REDIS_PREFIX", self.prefix);
        command.output().await.expect("the program runs")
    }

    /// Puts a voucher on sale on both sides. Its orders have to be paid within this many seconds.
    pub async fn load(&self, voucher: i64, stock: i64, pay_within: Option<u32>) {
        let insert = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time, initial_stock, pay_within) \
                      VALUES (?, ?, NOW(), '2037-12-31 23:59:59', ?, ?)";
        let row = sqlx::query(insert).bind(voucher).bind(stock).bind(stock).bind(pay_within);
        row.execute(&self.pool).await.expect("the voucher is inserted");
        let (voucher, stock) = (voucher.try_into().expect("a voucher"), stock.unsigned_abs());
        let loaded =
            self.store.sales().load(voucher, stock, SaleWindow::default()).await.expect("Redis answers");
        assert_eq!(loaded, LoadReply::Loaded);
    }

    /// Whether the journal holds every movement, so that its sum can be judged.
    pub async fn has_complete_journal(&self, voucher: i64) -> bool {
        let key = format!("{}seckill:journal:{voucher}", self.prefix);
        self.fixture.client.hexists(key, "#complete").await.expect("Redis answers")
    }

    /// Requests an order: `(order, user, voucher)`.
    pub async fn admit(&self, (order, user, voucher): (i64, i64, i64), quantity: i64) -> AdmitReply {
        match &self.callers {
            Some(callers) => callers.admit(self, (order, user, voucher), quantity).await,
            None => self.admit_here((order, user, voucher), quantity).await,
        }
    }

    /// Requests an order like [`Fleet::admit`], by the script of this process.
    pub async fn admit_here(&self, (order, user, voucher): (i64, i64, i64), quantity: i64) -> AdmitReply {
        let admission = Admission {
            order: order.try_into().expect("an order id"),
            user: user.try_into().expect("a user id"),
            voucher: voucher.try_into().expect("a voucher id"),
            quantity: quantity.try_into().expect("a quantity"),
            subjects: tidegate_orders::Subjects::none(),
            traceparent: None,
        };
        self.store.admissions().admit(&admission).await.expect("the store answers")
    }

    pub async fn append(&self, event: &Event) {
        match &self.callers {
            Some(callers) => callers.report(self, event).await,
            None => self.add_event(event).await,
        }
    }

    /// Appends an event by XADD.
    pub async fn add_event(&self, event: &Event) {
        let fields = tidegate_orders::wire::event_fields(event);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        let stream = self.inspector.names().stream.clone();
        let _entry: String =
            self.fixture.client.xadd(stream, false, None, "*", fields).await.expect("it is appended");
    }

    /// All entries of the stream.
    pub async fn entries(&self) -> Vec<Entry> {
        let all = (EntryId::MIN, EntryId::MAX);
        let mut pages = self.inspector.entry_pages(&self.inspector.names().stream, all, 1_000);
        let mut entries = Vec::new();
        while let Some(page) = pages.next(u64::MAX).await.expect("Redis answers") {
            entries.extend(page);
        }
        entries
    }

    /// The entries that wrote the rows of orders, by order.
    pub async fn written(&self) -> HashMap<i64, String> {
        let sql = "SELECT CAST(id AS SIGNED), entry_id FROM tb_voucher_order";
        let rows: Vec<(i64, String)> =
            sqlx::query_as(sql).fetch_all(&self.pool).await.expect("MySQL answers");
        rows.into_iter().collect()
    }

    pub async fn dead_letters(&self) -> i64 {
        let dead = self.inspector.names().dead.clone();
        self.fixture.client.xlen(dead).await.expect("Redis answers")
    }

    /// Whether no entry is undelivered or pending.
    pub async fn is_settled(&self) -> bool {
        self.stores().open_entries().await == Some(0)
    }

    /// A reader of both stores.
    pub fn stores(&self) -> Stores<'_> {
        Stores { client: &self.fixture.client, pool: &self.pool, prefix: self.prefix }
    }

    /// Whether no order has a time limit for payment any more.
    pub async fn none_is_due(&self) -> bool {
        let sql = "SELECT COUNT(*) FROM tidegate_unpaid_order";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&self.pool).await.expect("MySQL answers") == 0
    }

    /// The number of orders and events with a row.
    pub async fn done(&self) -> i64 {
        let sql = "SELECT (SELECT COUNT(*) FROM tb_voucher_order) + (SELECT COUNT(*) FROM tidegate_event)";
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.expect("MySQL answers")
    }

    /// The units that were loaded and added, the units left in MySQL, and those left in Redis.
    pub async fn stocks(&self, voucher: i64) -> (i64, i64, Option<i64>) {
        let sql = "SELECT CAST(initial_stock AS SIGNED), CAST(stock AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = ?";
        let row: (i64, i64) =
            sqlx::query_as(sql).bind(voucher).fetch_one(&self.pool).await.expect("MySQL answers");
        let in_redis = self.fixture.client.get(self.stock_key(voucher)).await.expect("Redis answers");
        (row.0, row.1, in_redis)
    }

    fn stock_key(&self, voucher: i64) -> String {
        format!("{}{}", self.prefix, crate::fixture::stock_key(voucher))
    }
}

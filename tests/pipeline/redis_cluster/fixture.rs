//! A system with partitions on a Redis Cluster: its nodes, a database, gates, and a log of the answers to callers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use fred::{
    clients::{Client, Pool},
    interfaces::{ClientLike, KeysInterface, StreamsInterface},
    types::CustomCommand,
};
use sqlx::MySqlPool;
use tidegate_lab::{MysqlServer, RedisCluster};
use tidegate_orders::{KeyTemplates, Partition, RedisStore, scripts::Admission};
use tidegate_stream::{RedisCluster as Cluster, RedisConnectionSettings, connect_pool};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    fixture::{
        DEAD, WorkerPlan, connect,
        invariants::{Ends, fates, none_is},
        rush::{CallerLog, Wanted, Way},
        stores::Stores,
        until_within, worker_plan,
    },
    program::Program,
};

/// The tags of the documents, which spread evenly over three masters.
pub const TAGS: [&str; 12] = ["10", "3", "43", "11", "2", "42", "12", "1", "41", "13", "0", "40"];
/// The vouchers, one in each partition. The first tags belong to the highest numbers.
const VOUCHERS: std::ops::RangeInclusive<i64> = 1..=12;
/// The time within which workers write again once the cluster is whole.
pub const AT_WORK_WITHIN: Duration = Duration::from_secs(10);

/// The servers, and the helpers of a test.
pub struct ClusterFixture {
    pub cluster: RedisCluster,
    pub mysql: MysqlServer,
    pub pool: MySqlPool,
    gates: Arc<Vec<RedisStore>>,
    next: Arc<AtomicI64>,
    /// The requests of callers, and the answers that they got.
    pub caller_log: Arc<CallerLog>,
    folder: tempfile::TempDir,
}

impl ClusterFixture {
    /// Opens the fixture on this cluster, with the schema, and a voucher on sale in each partition.
    pub async fn open(cluster: RedisCluster) -> Self {
        let mysql = MysqlServer::shared().expect("a database");
        let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
        tidegate_orders::schema::migrate(&pool).await.expect("the schema is made");
        let known = Cluster::new(&cluster.url()).expect("a URL of a cluster");
        let mut gates = Vec::new();
        for partition in Partition::all(&TAGS.map(str::to_owned)) {
            let stream = format!("{}stream.orders", partition.prefix());
            let pool: Pool = connect_pool(&RedisConnectionSettings {
                master: Some(known.master_of(&stream)),
                connections: 1,
                command_timeout: Duration::from_secs(2),
                ..RedisConnectionSettings::new(cluster.url())
            })
            .await
            .expect("the cluster answers")
            .into();
            gates
                .push(RedisStore::with_default_names(pool, KeyTemplates::default().of_partition(&partition)));
        }
        let fixture = Self {
            cluster,
            mysql,
            pool,
            gates: Arc::new(gates),
            next: Arc::new(AtomicI64::new(1)),
            caller_log: Arc::default(),
            folder: tempfile::tempdir().expect("a folder"),
        };
        for voucher in VOUCHERS {
            fixture.program().run(&format!("voucher load --voucher {voucher} --stock 1000000")).expect(0);
        }
        fixture
    }

    fn flags(&self) -> [String; 6] {
        let partitions = format!("stream.partitions={}", TAGS.join(","));
        let own =
            ["--redis-url", &self.cluster.url(), "--mysql-url", &self.mysql.url(), "--set", &partitions];
        own.map(str::to_owned)
    }

    /// The program with an operator's flags.
    pub fn program(&self) -> Program {
        // The timeout for a partition that is away is shorter than the default.
        let own = self.flags();
        let mut flags: Vec<&str> = own.iter().map(String::as_str).collect();
        flags.extend(["--set", "redis.command_timeout_ms=1000"]);
        Program::with_flags(&flags)
    }

    /// The plan of a worker process, which a test can configure and start.
    pub fn worker(&self, name: &str) -> WorkerPlan {
        let plan = worker_plan(&self.cluster.url(), &self.mysql.url(), name, self.folder.path());
        plan.set("STREAM_PARTITIONS", TAGS.join(",")).set("WORKER_LANES", "1").set("LOG_LEVEL", "info")
    }

    /// Admits an order of this voucher for a new user. None: the gate gave no answer, and the order may be admitted or
    /// not.
    pub async fn admit(&self, voucher: i64) -> Option<i64> {
        admit(&self.gates, &self.next, &self.caller_log, voucher).await
    }

    /// Starts sellers that admit orders of all vouchers until they are stopped. A request without an answer is given
    /// up, as a caller would do.
    pub fn sell(&self) -> Sale {
        let stop = CancellationToken::new();
        let sellers = VOUCHERS.map(|voucher| {
            let (gates, next, caller_log) = (self.gates.clone(), self.next.clone(), self.caller_log.clone());
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let _admitted = admit(&gates, &next, &caller_log, voucher).await;
                    sleep(Duration::from_millis(5)).await;
                }
            })
        });
        Sale { sellers: sellers.collect(), stop }
    }

    /// Whether MySQL has this order.
    pub async fn has(&self, order: i64) -> bool {
        let sql = "SELECT COUNT(*) FROM tb_voucher_order WHERE id = ?";
        let count: i64 =
            sqlx::query_scalar(sql).bind(order).fetch_one(&self.pool).await.expect("MySQL answers");
        count == 1
    }

    /// Waits until one more order of each of these vouchers is admitted and written, within this time.
    pub async fn sells_on(&self, vouchers: impl IntoIterator<Item = i64>, within: Duration) {
        for voucher in vouchers {
            until_within(within, &format!("an order of voucher {voucher} is written"), || async move {
                match self.admit(voucher).await {
                    Some(order) => self.is_written_soon(order).await,
                    None => false,
                }
            })
            .await;
        }
    }

    async fn is_written_soon(&self, order: i64) -> bool {
        for _ in 0..100 {
            if self.has(order).await {
                return true;
            }
            sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// The vouchers whose partitions have this node as their master.
    pub fn vouchers_of(&self, master: &tidegate_lab::RedisNode) -> Vec<i64> {
        let tag = |voucher: &i64| Self::tag_of(*voucher);
        let is_own =
            |voucher: &i64| self.cluster.master_of(tag(voucher)).expect("a master").id() == master.id();
        VOUCHERS.filter(is_own).collect()
    }

    /// The tag of a voucher's partition.
    pub fn tag_of(voucher: i64) -> &'static str {
        TAGS[usize::try_from(voucher % 12).expect("small")]
    }

    /// Begins a risk: from now on, a failover may lose answered orders. The replicas have all earlier ones.
    pub async fn begin_risk(&self) {
        self.caller_log.begin_risk();
        for tag in TAGS {
            let client = self.client(tag).await;
            // WAIT covers only the writes of its own connection.
            let probe = format!("{{{tag}}}:probe");
            client.set::<(), _, _>(&probe, 1, None, None, false).await.expect("it is written");
            client.del::<(), _>(&probe).await.expect("it is removed");
            let wait = CustomCommand::new("WAIT", None, false);
            let replicas: i64 = client.custom(wait, vec!["1", "10000"]).await.expect("Redis answers");
            assert_eq!(replicas, 1, "the replica of {tag} has it all");
            client.quit().await.expect("it ends");
        }
    }

    /// Ends the risk, once all nodes work again and the replicas are in step.
    pub fn end_risk(&self) {
        self.caller_log.end_risk();
    }

    /// Repairs the losses of a failover and checks the result. Every order that a caller was told about is written
    /// once. Orders from the time of the failover are written or have left nothing.
    pub async fn adds_up(&self) {
        self.is_quiet("every entry is handled").await;
        let program = self.program();
        let repaired = program.run("reconcile --repair --yes");
        assert!([0, 1].contains(&repaired.code), "{repaired:#?}");
        self.is_quiet("what was repaired is written").await;
        let mut wrong = fates(&self.caller_log.read(), &Ends::read(&self.pool).await);
        wrong.extend(self.mismatches(&TAGS).await);
        none_is(&wrong);
    }

    /// The differences between both stores in a system with these tags, and all dead letters, because these drills bury
    /// nothing.
    pub async fn mismatches(&self, tags: &[&str]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (at, tag) in tags.iter().enumerate() {
            let client = self.client(tag).await;
            let prefix = format!("{{{tag}}}:");
            let stores = Stores { client: &client, pool: &self.pool, prefix: &prefix };
            let is_own = |voucher: &i64| usize::try_from(*voucher).expect("small") % tags.len() == at;
            let vouchers: Vec<i64> = VOUCHERS.filter(is_own).collect();
            wrong.extend(stores.mismatches(&vouchers, &BTreeMap::new()).await);
            let letters: i64 = client.xlen(format!("{prefix}{DEAD}")).await.expect("Redis answers");
            if letters > 0 {
                wrong.push(format!("{tag}: {letters} dead letters"));
            }
        }
        wrong
    }

    /// A connection to the master of a tag.
    async fn client(&self, tag: &str) -> Client {
        connect(&self.cluster.master_of(tag).expect("a master").url()).await
    }

    /// Waits until nothing is pending or undelivered in any partition.
    pub async fn is_quiet(&self, what: &str) {
        for tag in TAGS {
            let (client, prefix) = (self.client(tag).await, format!("{{{tag}}}:"));
            let stores = Stores { client: &client, pool: &self.pool, prefix: &prefix };
            until_within(Duration::from_secs(60), what, || async { stores.open_entries().await == Some(0) })
                .await;
        }
    }
}

/// The running sellers.
pub struct Sale {
    sellers: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Sale {
    /// Stops the sellers.
    pub async fn end(self) {
        self.stop.cancel();
        for seller in self.sellers {
            seller.await.expect("a seller does not break");
        }
    }
}

async fn admit(gates: &[RedisStore], next: &AtomicI64, caller_log: &CallerLog, voucher: i64) -> Option<i64> {
    let order = next.fetch_add(1, Relaxed);
    let admission = Admission {
        order: order.try_into().expect("an order id"),
        user: order.try_into().expect("a user id"),
        voucher: voucher.try_into().expect("a voucher id"),
        quantity: 1.try_into().expect("a quantity"),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    };
    let gate = &gates[usize::try_from(voucher % 12).expect("small")];
    let asked = caller_log.ask(order, Wanted { user: order, voucher, quantity: 1, way: Way::Gate });
    match gate.admissions().admit(&admission).await {
        Ok(reply) if reply.is_admitted() => {
            caller_log.told(&asked);
            Some(order)
        }
        Ok(other) => panic!("order {order}: {other:?}"),
        Err(_) => None,
    }
}

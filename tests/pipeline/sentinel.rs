//! Tests of Redis behind a Sentinel: the master dies, a replica takes over, and workers and commands follow by
//! themselves.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use fred::{
    clients::Client,
    interfaces::{ClientLike, LuaInterface},
    types::{InfoKind, Value, config::Config},
};
use tidegate_lab::{Proxy, RedisSentinel, RedisServer};
use tidegate_orders::{
    KeyTemplates, RedisStore,
    scripts::{Admission, AdmitReply},
};

use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    fixture::{
        DEAD, Fixture, GROUP, STREAM, connect,
        invariants::{Ends, fates, none_is},
        redis_pool,
        rush::{CallerLog, PLENTY, SHORT, Wanted, Way},
        stores::Stores,
        until, until_within,
    },
    program::Program,
};

#[tokio::test(flavor = "multi_thread")]
async fn when_the_master_dies_its_replica_takes_over_and_no_order_is_lost() {
    let fixture = Fixture::open().await;
    let master = fixture.redis.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &master]).start().expect("a replica");
    let sentinel = RedisSentinel::watch(&fixture.redis).expect("a Sentinel");
    let watched = connect(&format!("redis://127.0.0.1:{}", sentinel.port())).await;
    until("the Sentinel knows the replica", || async {
        let master: Vec<Value> = call(&watched, "SENTINEL REPLICAS shop").await.into_array();
        !master.is_empty()
    })
    .await;

    fixture.open_sale().await;
    let worker = fixture.worker("w").set("REDIS_URL", sentinel.url()).start();
    fixture.rush(1_000, 300).await;
    fixture.settled().await;
    // These orders are admitted and not written: what the replica does not have is lost with the master.
    worker.signal(nix::sys::signal::Signal::SIGSTOP);
    fixture.plain_rush(2_000, 300).await;
    let replicas = fixture.call("WAIT 1 10000").await;
    assert_eq!(replicas.as_u64(), Some(1), "the replica has it all");
    fixture.redis.kill9().expect("the master is killed");
    worker.signal(nix::sys::signal::Signal::SIGCONT);

    let client = connect(&replica.url()).await;
    until("the replica is the master", || async {
        let role = call(&client, "ROLE").await.into_array();
        role.first().and_then(Value::as_string).as_deref() == Some("master")
    })
    .await;
    let program = Program::with_flags(&["--redis-url", &sentinel.url(), "--mysql-url", &fixture.mysql.url()]);
    let stores = Stores { client: &client, pool: &fixture.pool, prefix: "" };
    until("nothing is on its way", || async { stores.open_entries().await == Some(0) }).await;
    let (pages, ends) = (fixture.caller_log.read(), Ends::read(&fixture.pool).await);
    let mut wrong = fates(&pages, &ends);
    wrong.extend(stores.mismatches(&[PLENTY, SHORT], &pages.loaded).await);
    none_is(&wrong);
    assert_eq!(call(&client, &format!("XLEN {DEAD}")).await.as_u64(), Some(0), "nothing is buried");
    program.run("admit --voucher 1 --user 9001").expect(0);
    program.run("doctor").expect(0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lacked_the_last_second_is_promoted_and_one_command_repairs_it() {
    let fixture = Fixture::open().await;
    let master = fixture.redis.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &master]).start().expect("a replica");
    let sentinel = RedisSentinel::watch(&fixture.redis).expect("a Sentinel");
    let watched = connect(&format!("redis://127.0.0.1:{}", sentinel.port())).await;
    until("the Sentinel knows the replica", || async {
        !call(&watched, "SENTINEL REPLICAS shop").await.into_array().is_empty()
    })
    .await;
    let program = Program::with_flags(&["--redis-url", &sentinel.url(), "--mysql-url", &fixture.mysql.url()]);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    let worker = fixture.worker("w").set("REDIS_URL", sentinel.url()).start();
    for order in 1..=20 {
        fixture.admit(order, order, 7, 2).await;
    }
    // These ids are from the counter: one order is written, and one is refused.
    program.run("admit --voucher 7 --user 500").expect(0);
    program.run("admit --voucher 7 --user 500").expect(1);
    fixture.settled().await;

    // From here on, the replica receives nothing, and cannot reconnect, because the master does not permit it.
    has_it_all(&fixture, &replica).await;
    let client = connect(&replica.url()).await;
    fixture.call("ACL SETUSER default -psync -sync").await;
    call(&client, "CLIENT KILL TYPE master").await;
    for order in 21..=30 {
        fixture.admit(order, order, 7, 1).await;
    }
    fixture.settled().await;
    program.run("order event paid 25 --user 25 --ref p25 --yes").expect(0);
    program.run("order event cancelled 30 --user 30 --yes").expect(0);
    fixture.settled().await;
    worker.signal(nix::sys::signal::Signal::SIGSTOP);
    until("no reply is on its way to the worker", || async {
        let clients = fixture.call("INFO clients").await.as_string().unwrap_or_default();
        clients.contains("blocked_clients:0")
    })
    .await;
    // These orders are admitted, and unknown afterwards.
    for order in 31..=33 {
        fixture.admit(order, order, 7, 1).await;
    }
    fixture.redis.kill9().expect("the master is killed");
    worker.signal(nix::sys::signal::Signal::SIGCONT);
    until("the Sentinel names the replica as the master", || async {
        let master = call(&watched, "SENTINEL GET-MASTER-ADDR-BY-NAME shop").await.into_array();
        master.last().and_then(Value::as_u64) == Some(replica.port().into())
    })
    .await;
    assert_eq!(call(&client, "GET seckill:stock:7").await.as_i64(), Some(59), "it knows 21 orders of 30");
    // The sale continues, and admits orders of users who have one.
    let store = RedisStore::with_default_names(redis_pool(&replica.url()).await, KeyTemplates::default());
    for (order, user) in [(41, 21), (42, 42)] {
        assert_eq!(ask(&store, order, user, 1).await, AdmitReply::Admitted);
    }
    // One command has to repair this damage.
    program.run("reconcile").expect(1);
    let done = program.run("rebuild --all --yes").expect(0);
    assert!(done.stdout.contains("voucher 7: rebuilt with"), "{done:?}");
    assert!(done.stdout.contains("1 order id of today that no store knows"), "{done:?}");
    until("nothing is on its way", || async {
        let stream = &program.run("status --json").expect(0).json()["stream"];
        stream["pending"] == 0 && stream["undelivered"] == 0
    })
    .await;
    let stores = Stores { client: &client, pool: &fixture.pool, prefix: "" };
    none_is(&stores.mismatches(&[7], &BTreeMap::new()).await);
    let left = 100 - 20 * 2 - 1 - 9 - 1;
    assert_eq!(fixture.mysql_stock(7).await, left);
    assert_eq!(call(&client, "GET seckill:stock:7").await.as_i64(), Some(left));
    for order in 21..=29 {
        assert_eq!(ask(&store, order, order, 1).await, AdmitReply::AdmittedBefore);
    }
    assert_eq!(ask(&store, 30, 30, 1).await, AdmitReply::Released);
    assert_eq!(ask(&store, 41, 21, 1).await, AdmitReply::Released, "its user had an order");
    let paid = "SELECT CAST(status AS SIGNED) FROM tb_voucher_order WHERE id = 25";
    let paid: i64 = sqlx::query_scalar(paid).fetch_one(&fixture.pool).await.expect("MySQL answers");
    assert_eq!(paid, 2);
    // No store has this order, so it is admitted as a new one.
    assert_eq!(ask(&store, 31, 31, 1).await, AdmitReply::Admitted);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_in_progress_while_the_master_dies_settles_nothing_of_its_replica() {
    let fixture = Fixture::open().await;
    let master = fixture.redis.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &master]).start().expect("a replica");
    let sentinel = RedisSentinel::watch(&fixture.redis).expect("a Sentinel");
    let watched = connect(&format!("redis://127.0.0.1:{}", sentinel.port())).await;
    until("the Sentinel knows the replica", || async {
        !call(&watched, "SENTINEL REPLICAS shop").await.into_array().is_empty()
    })
    .await;
    fixture.load(7, 100).await;
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let worker = fixture
        .worker("w")
        .set("REDIS_URL", sentinel.url())
        .set("MYSQL_URL", mysql.url_for(&fixture.mysql))
        .set("WORKER_CLAIM_IDLE_MS", 3_000)
        .set("WORKER_LANES", 1)
        .start();
    worker.says("worker started").await;
    has_it_all(&fixture, &replica).await;
    let client = connect(&replica.url()).await;
    fixture.call("ACL SETUSER default -psync -sync").await;
    call(&client, "CLIENT KILL TYPE master").await;

    // Both servers give the same ids to different orders.
    let commit = mysql.hold_when("COMMIT");
    add_with_same_ids(&fixture.client, 1).await;
    commit.reached().await.expect("the worker has them in progress");
    fixture.redis.kill9().expect("the master is killed");
    until("the replica is the master", || async {
        let role = call(&client, "ROLE").await.into_array();
        role.first().and_then(Value::as_string).as_deref() == Some("master")
    })
    .await;
    add_with_same_ids(&client, 101).await;
    // These entries are delivered to another worker, which has died.
    call(&client, &format!("XREADGROUP GROUP {GROUP} dead COUNT 5 STREAMS {STREAM} >")).await;
    commit.release();
    until("the orders of both sides are written", || async {
        let orders = fixture.orders().await;
        (1..=5).chain(101..=105).all(|id| orders.iter().any(|order| order.id == id))
    })
    .await;
    assert!(worker.stop().await.success());
}

/// A master and its replica with a Sentinel, and a running sale.
struct Watched {
    fixture: Fixture,
    replica: RedisServer,
    sentinel: RedisSentinel,
    next: Arc<AtomicI64>,
    store: RedisStore,
    /// The requests of callers, and the answers that they got.
    caller_log: Arc<CallerLog>,
}

impl Watched {
    async fn open() -> Self {
        let fixture = Fixture::open().await;
        let master = fixture.redis.port().to_string();
        let replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &master]).start();
        let (replica, sentinel) =
            (replica.expect("a replica"), RedisSentinel::watch(&fixture.redis).expect("a Sentinel"));
        let watched = connect(&format!("redis://127.0.0.1:{}", sentinel.port())).await;
        until("the Sentinel knows the replica", || async {
            !call(&watched, "SENTINEL REPLICAS shop").await.into_array().is_empty()
        })
        .await;
        let program =
            Program::with_flags(&["--redis-url", &sentinel.url(), "--mysql-url", &fixture.mysql.url()]);
        program.run("voucher load --voucher 7 --stock 1000000").expect(0);
        has_it_all(&fixture, &replica).await;
        let store =
            RedisStore::with_default_names(redis_pool(&sentinel.url()).await, KeyTemplates::default());
        Self {
            fixture,
            replica,
            sentinel,
            next: Arc::new(AtomicI64::new(1)),
            store,
            caller_log: Arc::default(),
        }
    }

    /// Starts a sale that runs until it is ended. A request without an answer is given up.
    fn sell(&self) -> Sale {
        let (store, next, caller_log) =
            (self.store.clone(), Arc::clone(&self.next), Arc::clone(&self.caller_log));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let seller = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                let _told = admit(&store, &next, &caller_log).await;
                sleep(Duration::from_millis(5)).await;
            }
        });
        Sale { seller, stop }
    }

    /// Waits until one more order is admitted and written, within the time that a failover may delay workers.
    async fn sells_on(&self) {
        until_within(Duration::from_secs(10), "one more order is written", || async {
            let Some(order) = admit(&self.store, &self.next, &self.caller_log).await else { return false };
            for _ in 0..100 {
                if self.fixture.orders().await.iter().any(|row| row.id == order) {
                    return true;
                }
                sleep(Duration::from_millis(10)).await;
            }
            false
        })
        .await;
    }

    /// Begins a risk: from now on, a failover may lose answered orders. The replica has all earlier ones.
    async fn begin_risk(&self) {
        self.caller_log.begin_risk();
        // WAIT covers only the writes of its own connection.
        self.fixture.call("SET probe 1").await;
        self.fixture.call("DEL probe").await;
        has_it_all(&self.fixture, &self.replica).await;
    }

    /// The server that reports to be the master and that the other one follows.
    async fn master(&self) -> &RedisServer {
        if is_replica_in_step(&self.replica).await { &self.fixture.redis } else { &self.replica }
    }

    /// Repairs the losses of the failover and checks the result. Every order that a caller was told about is written
    /// once. Orders from the time of the failover are written or have left nothing.
    async fn adds_up(&self) {
        let flags = ["--redis-url", &self.sentinel.url(), "--mysql-url", &self.fixture.mysql.url()];
        let program = Program::with_flags(&flags);
        let client = connect(&self.master().await.url()).await;
        let stores = Stores { client: &client, pool: &self.fixture.pool, prefix: "" };
        let is_quiet = || async { stores.open_entries().await == Some(0) };
        until_within(Duration::from_secs(30), "every entry is handled", is_quiet).await;
        let repaired = program.run("reconcile --repair --yes");
        assert!([0, 1].contains(&repaired.code), "{repaired:#?}");
        until_within(Duration::from_secs(30), "what was repaired is written", is_quiet).await;
        let mut wrong = fates(&self.caller_log.read(), &Ends::read(&self.fixture.pool).await);
        wrong.extend(stores.mismatches(&[7], &BTreeMap::new()).await);
        none_is(&wrong);
        assert_eq!(call(&client, &format!("XLEN {DEAD}")).await.as_u64(), Some(0), "nothing is buried");
    }
}

/// A running seller.
struct Sale {
    seller: JoinHandle<()>,
    stop: CancellationToken,
}

impl Sale {
    /// Ends the sale once the last caller has an answer or gives up.
    async fn end(self) {
        self.stop.cancel();
        self.seller.await.expect("the seller does not break");
    }
}

/// Admits one order for a new user. None: the gate gave no answer.
async fn admit(store: &RedisStore, next: &AtomicI64, caller_log: &CallerLog) -> Option<i64> {
    let order = next.fetch_add(1, Ordering::Relaxed);
    let admission = Admission {
        order: order.try_into().expect("an order id"),
        user: order.try_into().expect("a user id"),
        voucher: 7.try_into().expect("a voucher id"),
        quantity: 1.try_into().expect("a quantity"),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    };
    let asked = caller_log.ask(order, Wanted { user: order, voucher: 7, quantity: 1, way: Way::Gate });
    match store.admissions().admit(&admission).await {
        Ok(reply) if reply.is_admitted() => {
            caller_log.told(&asked);
            Some(order)
        }
        Ok(other) => panic!("order {order}: {other:?}"),
        Err(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_master_is_replaced_and_follows_when_it_wakes() {
    let watched = Watched::open().await;
    let worker = watched.fixture.worker("w").set("REDIS_URL", watched.sentinel.url()).start();
    let sale = watched.sell();
    watched.sells_on().await;
    watched.begin_risk().await;
    watched.fixture.redis.stop().expect("frozen");
    let new = connect(&watched.replica.url()).await;
    until_within(Duration::from_secs(30), "the replica is the master", || async {
        let role = call(&new, "ROLE").await.into_array();
        role.first().and_then(Value::as_string).as_deref() == Some("master")
    })
    .await;
    watched.sells_on().await;
    watched.fixture.redis.cont().expect("awake");
    until_within(Duration::from_secs(60), "the old master follows", || async {
        is_replica_in_step(&watched.fixture.redis).await
    })
    .await;
    watched.caller_log.end_risk();
    watched.sells_on().await;
    sale.end().await;
    watched.adds_up().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_sentinel_are_all_killed_and_started_again_and_the_sale_goes_on() {
    let watched = Watched::open().await;
    let worker = watched.fixture.worker("w").set("REDIS_URL", watched.sentinel.url()).start();
    let sale = watched.sell();
    watched.sells_on().await;
    watched.begin_risk().await;
    watched.sentinel.kill9().expect("killed");
    watched.replica.kill9().expect("killed");
    watched.fixture.redis.kill9().expect("killed");
    watched.fixture.redis.restart().expect("back");
    watched.replica.restart().expect("back");
    watched.sentinel.restart().expect("back");
    watched.sells_on().await;
    until_within(Duration::from_secs(60), "one follows the other", || async {
        is_replica_in_step(&watched.replica).await || is_replica_in_step(&watched.fixture.redis).await
    })
    .await;
    watched.caller_log.end_risk();
    watched.sells_on().await;
    sale.end().await;
    watched.adds_up().await;
    assert!(worker.stop().await.success());
}

/// Waits until the replica has all data of the fixture's Redis. Valkey also counts a replica that is still getting its
/// first copy.
async fn has_it_all(fixture: &Fixture, replica: &RedisServer) {
    until_within(Duration::from_secs(60), "the replica is in step", || is_replica_in_step(replica)).await;
    assert_eq!(fixture.call("WAIT 1 10000").await.as_u64(), Some(1), "the replica has it all");
}

async fn is_replica_in_step(server: &RedisServer) -> bool {
    let client = Client::new(Config::from_url(&server.url()).expect("a URL"), None, None, None);
    // A server that becomes a replica closes its connections.
    let said = async {
        client.init().await?;
        client.info::<String>(Some(InfoKind::Replication)).await
    };
    // If a client loses its connection in between, it can wait for ever.
    let said = tokio::time::timeout(Duration::from_secs(2), said).await;
    said.is_ok_and(|said| {
        said.is_ok_and(|said| said.contains("role:slave") && said.contains("master_link_status:up"))
    })
}

/// Adds five orders in one step, from `first` on. Their entries have the ids 9000000000000-1 to 9000000000000-5.
async fn add_with_same_ids(client: &Client, first: i64) {
    let lua = "for at = 1, 5 do
        local order = ARGV[1] + at - 1
        redis.call('XADD', KEYS[1], '9000000000000-' .. at, 'id', order, 'userId', order, 'voucherId', 7)
    end";
    client.eval::<(), _, _, _>(lua, STREAM, first).await.expect("they are added");
}

async fn ask(store: &RedisStore, order: i64, user: i64, quantity: i64) -> AdmitReply {
    let admission = Admission {
        order: order.try_into().expect("an order id"),
        user: user.try_into().expect("a user id"),
        voucher: 7.try_into().expect("a voucher id"),
        quantity: quantity.try_into().expect("a quantity"),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    };
    store.admissions().admit(&admission).await.expect("the store answers")
}

async fn call(client: &Client, words: &str) -> Value {
    let mut words = words.split(' ');
    let name = words.next().expect("a command").to_owned();
    let command = fred::types::CustomCommand::new(name, None, false);
    client.custom(command, words.map(str::to_owned).collect::<Vec<_>>()).await.expect("it answers")
}

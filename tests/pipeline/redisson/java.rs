//! Tests with Redisson itself, in a JVM beside workers. `just redisson` builds the program in `tests/redisson` with each
//! version of Redisson.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sqlx::{AssertSqlSafe, MySqlPool, Row};
use tidegate_lab::RedisCluster;
use tidegate_orders::{KeyTemplates, LockLayout, RedisStore, UserId, UserLocks};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{sleep, timeout},
};

use super::{lock, median, unlock, written};
use crate::{
    fixture::{Fixture, Worker, redis_pool, until, until_within},
    redis_cluster::fixture::ClusterFixture,
};

const USERS: i64 = 50;
/// The critical sections of each side.
const SECTIONS: i64 = 5_000;
/// The lease of locks in the drill: longer than any wait of a busy machine.
const LEASE_MS: u64 = 8_000;
const WITHIN: Duration = Duration::from_secs(60);

/// The folders with the program, each built with the version of Redisson that is the folder's name.
fn builds() -> Vec<PathBuf> {
    let folders =
        std::env::var("TIDEGATE_TEST_REDISSON").expect("TIDEGATE_TEST_REDISSON: run `just redisson`");
    let folders: Vec<PathBuf> = folders.split_whitespace().map(PathBuf::from).collect();
    assert!(!folders.is_empty(), "nothing is built");
    folders
}

fn version_of(build: &Path) -> String {
    build.file_name().expect("a version").to_string_lossy().into_owned()
}

/// A JVM that locks users with Redisson.
struct Java {
    child: Child,
    input: ChildStdin,
    lines: UnboundedReceiver<String>,
}

impl Java {
    /// Starts a JVM with this build on the servers.
    async fn start(build: &Path, redis: &[&str], lock: &str, watchdog_ms: u64, mysql: &str) -> Self {
        let libraries = fs::read_to_string(build.join("classpath")).expect("it is built");
        let classes = format!("{}:{}", build.join("classes").display(), libraries.trim());
        let mut command = Command::new("java");
        // Redisson reads more of the JDK than JDK 17 shows by default.
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED"]);
        command.arg("-Dslf4j.internal.verbosity=ERROR");
        command.args(["-cp", &classes, "Locks"]).args(redis);
        command.args([lock, &watchdog_ms.to_string(), &jdbc(mysql)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("java starts");
        let (input, output) =
            (child.stdin.take().expect("an input"), child.stdout.take().expect("an output"));
        let (sender, lines) = unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _closed = sender.send(line);
            }
        });
        let mut java = Self { child, input, lines };
        java.answers("ready").await;
        java
    }

    /// Starts a JVM on the servers of a fixture.
    async fn beside(fixture: &Fixture, build: &Path, watchdog_ms: u64) -> Self {
        let url = fixture.redis.url();
        let url = url.trim_end_matches("/0");
        Self::start(build, &[url], "lock:order:", watchdog_ms, &fixture.mysql.url()).await
    }

    fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}").and_then(|()| self.input.flush()).expect("the JVM reads");
    }

    /// Waits for the answer that begins with these words, and returns the rest of it.
    async fn answers(&mut self, words: &str) -> String {
        let line = timeout(WITHIN, self.lines.recv()).await;
        let line = line.unwrap_or_else(|_| panic!("no answer: {words}")).expect("the JVM lives");
        line.strip_prefix(words).unwrap_or_else(|| panic!("{words}: {line}")).trim().to_owned()
    }

    async fn asks(&mut self, command: &str, words: &str) -> String {
        self.send(command);
        self.answers(words).await
    }

    fn kill9(mut self) {
        self.child.kill().expect("the JVM is killed");
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The URL of a database for the driver of Java.
fn jdbc(url: &str) -> String {
    let url = url.trim_start_matches("mysql://").split('?').next().expect("a URL");
    let (user, rest) = url.split_once('@').expect("a user");
    format!("jdbc:mariadb://{rest}?user={user}&sslMode=disable")
}

fn micros_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("a time")
}

async fn sql(pool: &MySqlPool, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.expect("the statement works");
}

/// A counter for each user. Java reads a counter, and writes one more; each order adds one. Both do so under the user's
/// lock, so a counter is too low if both were in their sections at the same time.
async fn create_counters(fixture: &Fixture) {
    sql(&fixture.pool, "CREATE TABLE counter (user BIGINT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB")
        .await;
    sql(
        &fixture.pool,
        "CREATE TABLE section (id INT AUTO_INCREMENT PRIMARY KEY, user BIGINT NOT NULL) ENGINE = InnoDB",
    )
    .await;
    let rows: Vec<String> = (1..=USERS).map(|user| format!("({user}, 0)")).collect();
    sql(&fixture.pool, format!("INSERT INTO counter VALUES {}", rows.join(", "))).await;
    let trigger = "CREATE TRIGGER count_order AFTER INSERT ON tb_voucher_order FOR EACH ROW \
                   UPDATE counter SET n = n + 1 WHERE user = NEW.user_id";
    sql(&fixture.pool, trigger).await;
}

/// The number of each user in the result of a query.
async fn by_user(fixture: &Fixture, query: &'static str) -> BTreeMap<i64, i64> {
    let rows = sqlx::query(query).fetch_all(&fixture.pool).await.expect("the query works");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn counters(fixture: &Fixture) -> BTreeMap<i64, i64> {
    by_user(fixture, "SELECT user, CAST(n AS SIGNED) FROM counter").await
}

/// What each counter must be: the sections that Java committed, and the orders.
async fn sections(fixture: &Fixture) -> BTreeMap<i64, i64> {
    let mut all = by_user(fixture, "SELECT user, COUNT(*) FROM section GROUP BY user").await;
    for (user, orders) in
        by_user(fixture, "SELECT CAST(user_id AS SIGNED), COUNT(*) FROM tb_voucher_order GROUP BY user_id")
            .await
    {
        *all.entry(user).or_default() += orders;
    }
    all
}

fn worker(fixture: &Fixture, name: &str) -> Worker {
    let plan = fixture.worker(name).set("LOCK_LAYOUT", "redisson").set("WORKER_BATCH", 8);
    let plan = plan.set("WORKER_LOCK_LEASE_MS", LEASE_MS).set("WORKER_CLAIM_IDLE_MS", LEASE_MS + 1_000);
    plan.set("LOG_LEVEL", "info").start()
}

/// Waits until Java has committed this many sections.
async fn until_sections(fixture: &Fixture, count: i64) {
    until_within(WITHIN, "Java is at work", || async {
        let done =
            sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM section").fetch_one(&fixture.pool).await;
        done.expect("a count") >= count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: run `just redisson`"]
async fn ten_thousand_critical_sections_of_both_sides_never_overlap_although_both_are_killed() {
    for build in builds() {
        let version = version_of(&build);
        let fixture = Fixture::open().await;
        create_counters(&fixture).await;
        let vouchers = SECTIONS / USERS;
        for voucher in 1..=vouchers {
            fixture.load(voucher, USERS).await;
        }
        let (first, second) = (worker(&fixture, "a"), worker(&fixture, "b"));
        let mut java = Java::beside(&fixture, &build, LEASE_MS).await;
        java.send(&format!("sections {SECTIONS} {USERS}"));
        let orders = async {
            for order in 0..SECTIONS {
                let (voucher, user) = (1 + order / USERS, 1 + order % USERS);
                fixture.add_order(1 + order, user, voucher).await;
            }
        };
        let faults = async {
            until_sections(&fixture, SECTIONS / 5).await;
            first.kill9();
            until_sections(&fixture, SECTIONS * 2 / 5).await;
            java.kill9();
            let first = worker(&fixture, "a");
            let java = Java::beside(&fixture, &build, LEASE_MS).await;
            (first, java)
        };
        let ((), (first, mut java)) = tokio::join!(orders, faults);
        let done: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM section")
            .fetch_one(&fixture.pool)
            .await
            .expect("a count");
        let left = SECTIONS - done;
        java.asks(&format!("sections {left} {USERS}"), "sections").await;
        fixture.settled().await;
        let all = sections(&fixture).await;
        assert_eq!(all.values().sum::<i64>(), 2 * SECTIONS, "Redisson {version}");
        assert_eq!(counters(&fixture).await, all, "Redisson {version}: sections of both sides overlapped");
        for worker in [first, second] {
            assert!(worker.stop().await.success());
        }
    }
}

/// Without a common lock, the counters are wrong: so the test above would notice.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: run `just redisson`"]
async fn sections_of_both_sides_overlap_under_different_locks() {
    let fixture = Fixture::open().await;
    create_counters(&fixture).await;
    let _worker = fixture.worker("a").set("WORKER_BATCH", 1).set("KEYS_LOCK", "other:<user>").start();
    let mut java = Java::beside(&fixture, &builds()[0], LEASE_MS).await;
    for voucher in 1..=100 {
        fixture.load(voucher, USERS).await;
        java.send("sections 100 5");
        for user in 1..=5 {
            fixture.add_order(voucher * USERS + user, user, voucher).await;
        }
        java.answers("sections").await;
        fixture.settled().await;
        if counters(&fixture).await.values().sum::<i64>() < sections(&fixture).await.values().sum::<i64>() {
            return;
        }
    }
    panic!("the counters are right without a common lock");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: run `just redisson`"]
async fn the_watchdogs_of_both_sides_keep_a_lock_for_as_long_as_its_holder_works() {
    for build in builds() {
        let version = version_of(&build);
        let fixture = Fixture::open().await;
        fixture.load(1, 100).await;
        fixture.load(2, 100).await;
        // The insert of an order of voucher 2 takes three leases.
        let slow = "CREATE TRIGGER slow AFTER INSERT ON tb_voucher_order FOR EACH ROW \
                    BEGIN IF NEW.voucher_id = 2 THEN DO SLEEP(4.5); END IF; END";
        sql(&fixture.pool, slow).await;
        let plan = fixture.worker("w").set("LOCK_LAYOUT", "redisson").set("WORKER_LOCK_LEASE_MS", 1_500);
        let _worker =
            plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 20_000).set("ADMIN_STUCK_AFTER_MS", 40_000).start();
        let mut java = Java::beside(&fixture, &build, 1_500).await;

        // Java works for three times its watchdog's time.
        java.asks("lock 1 0", "lock 1").await;
        fixture.admit(101, 1, 1, 1).await;
        sleep(Duration::from_millis(4_500)).await;
        assert_eq!(fixture.orders().await.len(), 0, "Redisson {version}: the lock was ignored");
        java.asks("unlock 1", "unlock 1").await;
        written(&fixture, 1).await;

        // The worker writes for three times its lease.
        let began = Instant::now();
        fixture.admit(202, 2, 2, 1).await;
        until("the user is locked", || async { is_locked(&fixture, 2).await }).await;
        while fixture.orders().await.len() < 2 {
            let got = java.asks("try 2", "try 2").await;
            let is_over = fixture.orders().await.len() == 2;
            assert!(got == "false" || is_over, "Redisson {version}: {:?}", began.elapsed());
            sleep(Duration::from_millis(100)).await;
        }
        assert!(began.elapsed() > Duration::from_millis(4_000));
        until("the lock has ended", || async { !is_locked(&fixture, 2).await }).await;
        assert_eq!(java.asks("try 2", "try 2").await, "true");
        fixture.settled().await;
    }
}

/// Whether the lock of a user exists.
async fn is_locked(fixture: &Fixture, user: i64) -> bool {
    fixture.redis_says(&["EXISTS", &format!("lock:order:{user}")]).await.as_i64() == Some(1)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: run `just redisson`"]
async fn both_sides_wake_within_twenty_milliseconds_of_the_end_of_the_others_lock() {
    for build in builds() {
        let version = version_of(&build);
        let fixture = Fixture::open().await;
        fixture.load(1, 1_000).await;
        let _worker = worker(&fixture, "w");
        let mut java = Java::beside(&fixture, &build, LEASE_MS).await;
        let pool = redis_pool(&fixture.redis.url()).await;
        let store = RedisStore::with_default_names(pool, KeyTemplates::default());
        let ours = UserLocks::new(store, Duration::from_secs(30), LockLayout::Redisson);
        let (mut to_worker, mut to_java) = (Vec::new(), Vec::new());
        for user in 1..=11 {
            java.asks(&format!("lock {user} 0"), &format!("lock {user}")).await;
            fixture.admit(100 + user, user, 1, 1).await;
            // By now the worker has seen that the user is locked, and tries every two seconds.
            let name = super::channel(user);
            until("the worker listens", || async {
                let listeners = fixture.redis_says(&["PUBSUB", "NUMSUB", &name]).await.into_array();
                listeners[1].as_i64() == Some(1)
            })
            .await;
            sleep(Duration::from_millis(700)).await;
            let ended: u64 = java
                .asks(&format!("unlock {user}"), &format!("unlock {user}"))
                .await
                .parse()
                .expect("a time");
            written(&fixture, user).await;
            to_worker.push(Duration::from_micros(micros_now() - ended));

            let other = UserId::try_from(1_000 + user).expect("a user");
            let locked = ours.lock([other]).await.expect("Redis answers");
            java.send(&format!("lock {other} 0"));
            sleep(Duration::from_millis(300)).await;
            let ended = micros_now();
            ours.unlock(locked).await;
            let got: u64 = java.answers(&format!("lock {other}")).await.parse().expect("a time");
            to_java.push(Duration::from_micros(got - ended));
        }
        println!(
            "Redisson {version}: median from its unlock to the written order {:?}, from ours to its lock {:?}",
            median(to_worker.clone()),
            median(to_java.clone())
        );
        for times in [to_worker, to_java] {
            assert!(median(times.clone()) < Duration::from_millis(20), "Redisson {version}: {times:?}");
        }
        fixture.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: run `just redisson`"]
async fn a_lock_that_never_expires_is_waited_for_on_both_sides() {
    for build in builds() {
        let version = version_of(&build);
        let fixture = Fixture::open().await;
        fixture.load(1, 100).await;
        let _worker = worker(&fixture, "w");
        let mut java = Java::beside(&fixture, &build, LEASE_MS).await;
        java.asks("lock 1 0", "lock 1").await;
        // The watchdog sets an expiry again, but not before a third of its time.
        fixture.redis_says(&["PERSIST", "lock:order:1"]).await;
        fixture.admit(101, 1, 1, 1).await;
        sleep(Duration::from_secs(1)).await;
        assert!(fixture.orders().await.is_empty(), "Redisson {version}");
        java.asks("unlock 1", "unlock 1").await;
        written(&fixture, 1).await;

        // Java waits without a limit for a lock without an expiry. The worker's own locks always have one.
        lock(&fixture, 2, None).await;
        java.send("lock 2 0");
        fixture.admit(102, 2, 1, 1).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(fixture.orders().await.len(), 1, "Redisson {version}");
        unlock(&fixture, 2).await;
        java.answers("lock 2").await;
        java.asks("unlock 2", "unlock 2").await;
        written(&fixture, 2).await;
        fixture.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java: run `just redisson`"]
async fn on_a_cluster_both_sides_exclude_and_wake_each_other() {
    for build in builds() {
        let version = version_of(&build);
        let cluster = RedisCluster::start().expect("a cluster");
        let fixture = ClusterFixture::open(cluster).await;
        let _worker = fixture.worker("w").set("LOCK_LAYOUT", "redisson").start();
        let nodes: Vec<String> = fixture
            .cluster
            .nodes()
            .iter()
            .map(|node| format!("redis://127.0.0.1:{}", node.server().port()))
            .collect();
        let prefix = format!("{{{}}}:lock:order:", ClusterFixture::tag_of(1));
        let nodes = nodes.join(",");
        let mut java = Java::start(&build, &["cluster", &nodes], &prefix, 20_000, &fixture.mysql.url()).await;
        let mut times = Vec::new();
        for user in 1..=7 {
            java.asks(&format!("lock {user} 0"), &format!("lock {user}")).await;
            assert_eq!(fixture.admit(1).await, Some(user), "the order and its user have one number");
            sleep(Duration::from_millis(1_500)).await;
            assert!(!fixture.has(user).await, "Redisson {version}: the lock was ignored");
            let ended: u64 = java
                .asks(&format!("unlock {user}"), &format!("unlock {user}"))
                .await
                .parse()
                .expect("a time");
            while !fixture.has(user).await {
                assert!(micros_now() - ended < 30_000_000, "Redisson {version}: the order is not written");
                sleep(Duration::from_millis(1)).await;
            }
            times.push(Duration::from_micros(micros_now() - ended));
        }
        println!(
            "Redisson {version} on a cluster: median from its unlock to the written order {:?}",
            median(times.clone())
        );
        assert!(median(times.clone()) < Duration::from_millis(200), "Redisson {version}: {times:?}");
    }
}

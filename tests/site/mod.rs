//! A site to test on: private servers, a database with the schema, and workers that are the real program.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod invariants;
mod judge;
pub mod rush;
pub mod stores;
mod users;

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use fred::{
    clients::{Client, Pool},
    interfaces::{ClientLike, HashesInterface, KeysInterface, StreamsInterface},
    prelude::{Builder, Config},
    types::{CustomCommand, Value},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use tempfile::TempDir;
use tidegate_lab::{Endpoint, MysqlServer, RedisOptions, RedisServer};
use tidegate_orders::{KeyTemplates, RedisStore};
use tidegate_stream::{RedisConnectionSettings, StreamNames, connect_pool};
use tokio::time::sleep;

use rush::{Book, Wanted, Way};
use stores::Stores;

pub const STREAM: &str = "stream.orders";
pub const DEAD: &str = "stream.orders.dead";
pub const GROUP: &str = "g1";
/// Longer than anything here takes on a busy machine; waiting ends as soon as the thing is so.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A Redis of its own, a database, and what a test needs to work with them.
pub struct Site<M = MysqlServer> {
    pub redis: RedisServer,
    pub mysql: M,
    pub client: Client,
    pub pool: MySqlPool,
    connections: Pool,
    own_gate: RedisStore,
    /// What was put in, for [`Site::invariants`].
    pub book: Book,
    folder: TempDir,
}

/// A row of `tb_voucher_order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRow {
    pub id: i64,
    pub user: i64,
    pub voucher: i64,
    pub quantity: i64,
}

impl Site {
    /// Starts a Redis that loses nothing when it is killed, and makes the schema in a database of its own, on a MySQL
    /// that tests share.
    pub async fn open() -> Self {
        Self::bare().await.migrated().await
    }

    /// As [`Site::open`], with an empty database.
    pub async fn bare() -> Self {
        let redis = durable_redis().start().expect("a Redis");
        Self::on(redis, MysqlServer::shared().expect("a database")).await
    }

    /// As [`Site::open`], on a MySQL that may be broken and set up, and whose users and sessions are this test's alone.
    pub async fn with_own_mysql() -> Self {
        Self::bare_with_own_mysql().await.migrated().await
    }

    /// As [`Site::with_own_mysql`], with an empty database.
    pub async fn bare_with_own_mysql() -> Self {
        let redis = durable_redis().start().expect("a Redis");
        Self::on(redis, MysqlServer::start().expect("a MySQL")).await
    }
}

/// A Redis that loses nothing when it is killed.
pub fn durable_redis() -> RedisOptions {
    let durable = ["--appendfsync", "always"].map(str::to_owned);
    RedisServer::options().args(durable).args(users::redis_options())
}

impl<M: Endpoint> Site<M> {
    /// With the schema in place.
    pub async fn migrated(self) -> Self {
        tidegate_orders::schema::migrate(&self.pool).await.expect("the schema is made");
        self
    }

    /// As [`Site::bare`], on these servers.
    pub async fn on(redis: RedisServer, mysql: M) -> Self {
        let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
        let client = connect(&redis.url()).await;
        let connections = redis_pool(&redis.url()).await;
        let own_gate = RedisStore::with_default_names(connections.clone(), KeyTemplates::default());
        let folder = TempDir::new().expect("a folder");
        Self { redis, mysql, client, pool, connections, own_gate, book: Book::default(), folder }
    }

    /// Puts a voucher on sale: a row in MySQL, a stock in Redis.
    pub async fn load(&self, voucher: i64, stock: i64) {
        let insert = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time, initial_stock) \
                      VALUES (?, ?, NOW(), NOW() + INTERVAL 1 DAY, ?)";
        let row = sqlx::query(insert).bind(voucher).bind(stock).bind(stock);
        row.execute(&self.pool).await.expect("the voucher is inserted");
        let _: Value =
            self.client.set(stock_key(voucher), stock, None, None, false).await.expect("the stock is set");
        self.book.write(|pages| _ = pages.loaded.insert(voucher, stock));
    }

    /// The gate itself, with these names of keys.
    pub async fn gate_with(&self, keys: KeyTemplates, stream: &str) -> RedisStore {
        let (stream, dead) = (stream.to_owned(), format!("{stream}.dead"));
        let names = StreamNames { stream, dead, group: GROUP.to_owned() };
        RedisStore::new(redis_pool(&self.redis.url()).await, keys, names)
    }

    /// The gate itself.
    pub async fn gate(&self) -> RedisStore {
        self.gate_with(KeyTemplates::default(), STREAM).await
    }

    /// Sends a command as it would be typed.
    pub async fn redis_says(&self, words: &[&str]) -> Value {
        let (name, args) = words.split_first().expect("a command");
        let command = CustomCommand::new(*name, None, false);
        self.client.custom(command, args.to_vec()).await.expect("Redis answers")
    }

    /// Hands new entries over to a consumer that does nothing with them.
    pub async fn hand_over(&self, consumer: &str, count: usize) {
        let count = count.to_string();
        self.redis_says(&["XREADGROUP", "GROUP", GROUP, consumer, "COUNT", &count, "STREAMS", STREAM, ">"])
            .await;
    }

    /// Adds an entry with these fields; returns its id.
    pub async fn add(&self, fields: &[(&str, &str)]) -> String {
        let fields: Vec<(&str, &str)> = fields.to_vec();
        self.client.xadd(STREAM, false, None, "*", fields).await.expect("the entry is added")
    }

    /// Adds an order as the tutorial's script does; returns the entry id.
    pub async fn add_order(&self, id: i64, user: i64, voucher: i64) -> String {
        self.book.note(id, Wanted { user, voucher, quantity: 1, way: Way::Xadd });
        let (id, user, voucher) = (id.to_string(), user.to_string(), voucher.to_string());
        self.add(&[("userId", &user), ("voucherId", &voucher), ("id", &id)]).await
    }

    /// A worker process, to be configured and started.
    pub fn worker(&self, name: &str) -> WorkerPlan {
        worker_plan(&self.redis.url(), &self.mysql.url(), name, self.folder.path())
    }

    /// Writes a file; it is gone with the site.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("the file is written");
        path
    }

    /// Runs the program to its end.
    pub fn tidegate(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    /// The program with these words, to be run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.env("TIDEGATE_REDIS_URL", self.redis.url()).env("TIDEGATE_MYSQL_URL", self.mysql.url());
        command.args(args);
        command
    }

    /// Waits until nothing is pending or undelivered.
    pub async fn settled(&self) {
        until("the stream is settled", || async { self.open_entries().await == Some(0) }).await;
    }

    /// Entries that are pending or undelivered; None while the group does not exist.
    pub async fn open_entries(&self) -> Option<usize> {
        self.stores("").open_entries().await
    }

    /// What the tests read of both stores, where names in Redis begin with this.
    pub fn stores<'a>(&'a self, prefix: &'a str) -> Stores<'a> {
        Stores { client: &self.client, pool: &self.pool, prefix }
    }

    /// All orders, by id.
    pub async fn orders(&self) -> Vec<OrderRow> {
        self.order_rows("TRUE").await
    }

    /// Orders that count, by id.
    pub async fn live_orders(&self) -> Vec<OrderRow> {
        self.order_rows("slot IS NOT NULL").await
    }

    /// Rows that keep their orders from being written, or orders that a service has cancelled; by id.
    pub async fn cancelled_orders(&self) -> Vec<OrderRow> {
        self.order_rows("slot IS NULL AND status = 4").await
    }

    async fn order_rows(&self, condition: &str) -> Vec<OrderRow> {
        let sql = format!(
            "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
             CAST(quantity AS SIGNED) FROM tb_voucher_order WHERE {condition} ORDER BY id"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.pool).await.expect("MySQL answers");
        let row = |row: sqlx::mysql::MySqlRow| OrderRow {
            id: row.get(0),
            user: row.get(1),
            voucher: row.get(2),
            quantity: row.get(3),
        };
        rows.into_iter().map(row).collect()
    }

    /// Units left in MySQL.
    pub async fn mysql_stock(&self, voucher: i64) -> i64 {
        let sql = "SELECT CAST(stock AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = ?";
        sqlx::query_scalar(sql).bind(voucher).fetch_one(&self.pool).await.expect("MySQL answers")
    }

    /// Units left in Redis.
    pub async fn redis_stock(&self, voucher: i64) -> Option<i64> {
        self.client.get(stock_key(voucher)).await.expect("Redis answers")
    }

    /// Journal entries of a voucher, by order id.
    pub async fn journal(&self, voucher: i64) -> BTreeMap<String, String> {
        self.client.hgetall(format!("seckill:journal:{voucher}")).await.expect("Redis answers")
    }

    /// Dead letters, oldest first: field by name (the last, where a name repeats).
    pub async fn dead(&self) -> Vec<BTreeMap<String, String>> {
        let letters: Vec<(String, Vec<(String, String)>)> =
            self.client.xrange(DEAD, "-", "+", None).await.unwrap_or_default();
        letters.into_iter().map(|(_, fields)| fields.into_iter().collect()).collect()
    }
}

/// Name of the key that holds the stock.
pub fn stock_key(voucher: i64) -> String {
    format!("seckill:stock:{voucher}")
}

/// Connections as the program opens them.
pub async fn redis_pool(url: &str) -> Pool {
    let settings = RedisConnectionSettings {
        master: None,
        sentinels: None,
        url: url.to_owned(),
        connections: 2,
        command_timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
    };
    connect_pool(&settings).await.expect("Redis answers").into()
}

/// A client of the tests' own, which never gives up.
pub async fn connect(url: &str) -> Client {
    let mut config = Config::from_url(url).expect("a URL");
    // As the program: it is there already, and not everybody may SELECT.
    config.database = config.database.filter(|database| *database != 0);
    let client = Builder::from_config(config)
        .set_policy(fred::prelude::ReconnectPolicy::new_constant(0, 50))
        .build()
        .expect("a client");
    client.init().await.expect("Redis answers");
    client
}

/// The program, with nothing of the environment that configures it.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    // As it is typed where it is in a folder of PATH.
    command.arg0("tidegate");
    for (name, _) in std::env::vars() {
        if name.starts_with("TIDEGATE_") || name.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Polls until it is so.
///
/// # Panics
/// When it is not so by the deadline.
pub async fn until<F: Future<Output = bool>>(what: &str, is_so: impl FnMut() -> F) {
    until_within(DEADLINE, what, is_so).await;
}

/// As [`until`], where thousands of entries may have to be handled one by one.
pub async fn until_within<F: Future<Output = bool>>(
    deadline: Duration,
    what: &str,
    mut is_so: impl FnMut() -> F,
) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < deadline, "waited in vain until {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A worker process on these stores, with times that suit tests, to be configured and started. Its log is in this folder.
pub fn worker_plan(redis_url: &str, mysql_url: &str, name: &str, folder: &Path) -> WorkerPlan {
    let mut env = BTreeMap::new();
    for (key, value) in [
        ("TIDEGATE_REDIS_URL", redis_url),
        ("TIDEGATE_MYSQL_URL", mysql_url),
        ("TIDEGATE_WORKER_NAME", name),
        ("TIDEGATE_WORKER_BLOCK_MS", "200"),
        ("TIDEGATE_WORKER_LOCK_LEASE_MS", "2000"),
        ("TIDEGATE_WORKER_CLAIM_IDLE_MS", "3000"),
        ("TIDEGATE_WORKER_CLAIM_EVERY_MS", "200"),
        ("TIDEGATE_WORKER_HEARTBEAT_TTL_MS", "2000"),
        ("TIDEGATE_ADMIN_LISTEN", "127.0.0.1:0"),
        ("TIDEGATE_GATE_LEAVE_MS", "0"),
        ("TIDEGATE_LOG_FORMAT", "text"),
        ("TIDEGATE_LOG_LEVEL", "debug,sqlx=info,fred=info"),
    ] {
        env.insert(key.to_owned(), value.to_owned());
    }
    WorkerPlan { env, log: folder.join(format!("{name}.log")) }
}

/// Half of the usual stack of a process, and three quarters of that of its threads: what is not optimised takes more than what is
/// shipped, and is to be far from an overflow, too.
const STACK: &str = "ulimit -s 4096; export RUST_MIN_STACK=1572864";

/// A worker process that is not started yet.
pub struct WorkerPlan {
    env: BTreeMap<String, String>,
    log: PathBuf,
}

impl WorkerPlan {
    /// Sets a setting, by the name of its variable without `TIDEGATE_`.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.env.insert(format!("TIDEGATE_{name}"), value.to_string());
        self
    }

    /// Sets a variable that is no setting.
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.env.insert(name.to_owned(), value.to_string());
        self
    }

    /// Logs to a file of another name, beside that of a worker with the same name.
    pub fn log_as(mut self, name: &str) -> Self {
        self.log.set_file_name(format!("{name}.log"));
        self
    }

    /// Starts it. It is killed when dropped.
    pub fn start(self) -> Worker {
        self.start_with(&["worker"])
    }

    /// As [`WorkerPlan::start`], another service of the program.
    pub fn start_as(self, role: &str) -> Worker {
        self.start_with(&[role])
    }

    /// As [`WorkerPlan::start`], with these words behind the program's name.
    pub fn start_with(self, words: &[&str]) -> Worker {
        self.start_within("", words)
    }

    /// As [`WorkerPlan::start_with`], where a process may have so many files open.
    pub fn start_with_files(self, files: u32, words: &[&str]) -> Worker {
        self.start_within(&format!("ulimit -n {files}"), words)
    }

    /// Starts it within limits that a shell sets.
    fn start_within(self, limits: &str, words: &[&str]) -> Worker {
        let program = program();
        let folder = Path::new(program.get_program()).parent().expect("a folder");
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let log = File::create(&self.log).expect("a log file");
        let child = tidegate_lab::spawn_with_owner("sh", |command| {
            command.args(["-c", &format!("set -e; {STACK}; {limits}\nexec tidegate \"$@\""), "sh"]);
            for (name, _) in program.get_envs() {
                command.env_remove(name);
            }
            command
                .args(words)
                .env("PATH", path)
                .envs(&self.env)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
        });
        Worker { child: child.expect("the worker starts"), log: self.log }
    }
}

/// A worker process.
pub struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. After SIGSTOP, none of its threads runs any more.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")), signal)
            .expect("the worker is there");
        let began = Instant::now();
        while signal == Signal::SIGSTOP && !self.is_stopped() {
            assert!(began.elapsed() < DEADLINE, "the worker does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it has threads");
        threads.flatten().all(|thread| {
            // The state stands behind the name, which is in parentheses. A thread that is gone runs no more.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Kills it as the kernel would, and waits until it is gone.
    pub fn kill9(mut self) {
        self.child.kill().expect("the worker is there");
        self.child.wait().expect("the worker is gone");
    }

    /// Asks it to stop, and waits for its end.
    pub async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the worker is our child") {
                return status;
            }
            assert!(began.elapsed() < DEADLINE, "the worker does not end; its log:\n{}", self.log());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its log holds a text.
    pub async fn says(&self, text: &str) {
        until(&format!("the worker says {text:?}"), || async { self.log().contains(text) }).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), shortened(&self.log()));
        }
    }
}

/// Of a log, the last lines, and of those before them what is no detail.
fn shortened(log: &str) -> String {
    const WHOLE: usize = 30;
    let lines: Vec<&str> = log.lines().collect();
    let (early, late) = lines.split_at(lines.len().saturating_sub(WHOLE));
    let kept = early.iter().filter(|line| !line.contains(" DEBUG ") && !line.contains(" TRACE "));
    kept.chain(late).copied().collect::<Vec<_>>().join("\n")
}

//! The private Redis and MySQL of the benchmark, with the databases of everything that is compared.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};
use tidegate_lab::{MysqlFlavour, MysqlServer, RedisFlavour, RedisServer};
use tidegate_orders::is_missing_table;
use tokio::time::sleep;

use super::{
    orders::{Numbers, Orders},
    resp::Resp,
    results::ServerInfo,
};

pub const STREAM: &str = "stream.orders";
pub const GROUP: &str = "g1";
/// The stock of each voucher in MySQL.
pub const STOCK: i64 = 1_000_000_000;
/// The tables that a measurement leaves data in, in addition to orders. A restore counter that Redis has lost would
/// keep orders from expiring.
const OURS: [&str; 4] =
    ["tidegate_refusal", "tidegate_event", "tidegate_unpaid_order", "tidegate_fleet_mark"];
const AFTER_CLEARING: Duration = Duration::from_millis(200);

/// More memory and redo log than the lab's tests give a server, as on a small production server.
const MARIADB: [&str; 2] = ["--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M"];
const MYSQL: [&str; 2] = ["--innodb-buffer-pool-size=1G", "--innodb-redo-log-capacity=512M"];
/// The options of Redis. A rewrite of the append-only file would fall into one measurement and not into the next. The
/// rest concerns the replica that latencies are read from.
const REDIS: [&str; 6] =
    ["--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync", "no", "--repl-timeout", "3600"];

/// The tables of the tutorial, then the key that it lacks.
pub const TUTORIAL_TABLES: [&str; 3] = [
    include_str!("../../../../migrations/0001_seckill_voucher_table.sql"),
    include_str!("../../../../migrations/0002_voucher_order_table.sql"),
    "ALTER TABLE tb_voucher_order ADD UNIQUE KEY uk_user_voucher (user_id, voucher_id)",
];

/// The tables that a measurement writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// The tutorial's tables, with `UNIQUE(user_id, voucher_id)`; emptied before each measurement.
    Tutorial,
    /// Tidegate's tables, emptied before each measurement.
    Fresh,
    /// Tidegate's tables, with the orders of earlier sales (see `existing.rs`); they grow with each measurement.
    Grown,
}

pub struct Fixture {
    pub redis_server: RedisServer,
    pub redis: Resp,
    pub mysql_pid: u32,
    pub mysql: MySqlConnection,
    pub program: PathBuf,
    pub numbers: Numbers,
    urls: [String; 3],
    _mysql_server: MysqlServer,
}

impl Fixture {
    /// Starts the servers and creates the tables; Tidegate's tables by the migrations of `program`, which may be an
    /// older one.
    pub async fn open(flavour: MysqlFlavour, program: PathBuf) -> Result<Self> {
        let redis_server = RedisServer::options().flavour(RedisFlavour::from_env()?).args(REDIS).start()?;
        let args = if flavour == MysqlFlavour::MariaDb { MARIADB } else { MYSQL };
        let server = MysqlServer::options().flavour(flavour).args(args).start()?;
        let [tutorial, fresh, grown] =
            ["tutorial", "fresh", "grown"].map(|name| server.create_database(name));
        let mut fixture = Self {
            redis: Resp::connect(redis_server.port()).await?,
            redis_server,
            mysql_pid: server.pid().context("MySQL has just started")?,
            mysql: MySqlConnection::connect(&server.url()).await?,
            program,
            numbers: Numbers::new(),
            urls: [tutorial?, fresh?, grown?],
            _mysql_server: server,
        };
        fixture.make_tables().await?;
        Ok(fixture)
    }

    async fn make_tables(&mut self) -> Result<()> {
        let mut tutorial = self.connect(Tables::Tutorial).await?;
        for sql in TUTORIAL_TABLES {
            sqlx::raw_sql(sql).execute(&mut tutorial).await?;
        }
        self.migrate(Tables::Fresh)
    }

    /// Runs the migrations of the program. It asks before it changes existing tables, such as grown ones; the oldest
    /// programs do not know `--yes`.
    pub fn migrate(&self, tables: Tables) -> Result<()> {
        let words = if tables == Tables::Grown { &["migrate", "--yes"][..] } else { &["migrate"] };
        let program = || format!("Failed to start {}", self.program.display());
        let migrated = self.command(tables, words).output().with_context(program)?;
        let said = String::from_utf8_lossy(&migrated.stderr);
        ensure!(migrated.status.success(), "`tidegate migrate` ended with {}: {said}", migrated.status);
        Ok(())
    }

    /// A command of the program, for these tables.
    pub fn command(&self, tables: Tables, words: &[&str]) -> Command {
        let mut command = crate::program::command(&self.program);
        command.args(words).env("TIDEGATE_REDIS_URL", self.redis_server.url());
        command.env("TIDEGATE_MYSQL_URL", self.url(tables)).stdin(Stdio::null());
        command
    }

    pub fn url(&self, tables: Tables) -> &str {
        &self.urls[tables as usize]
    }

    /// Opens a session at READ COMMITTED, as Tidegate does.
    pub async fn connect(&self, tables: Tables) -> Result<MySqlConnection> {
        let mut session = MySqlConnection::connect(self.url(tables)).await?;
        sqlx::raw_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").execute(&mut session).await?;
        Ok(session)
    }

    /// Puts vouchers 1 ..= `vouchers` on sale in MySQL, and empties the tables (except grown ones).
    pub async fn clear_tables(&self, tables: Tables, vouchers: i64) -> Result<()> {
        let mut session = self.connect(tables).await?;
        sqlx::raw_sql("TRUNCATE TABLE tb_seckill_voucher").execute(&mut session).await?;
        if tables != Tables::Grown {
            sqlx::raw_sql("TRUNCATE TABLE tb_voucher_order").execute(&mut session).await?;
        }
        if tables == Tables::Fresh {
            for table in OURS {
                let sql = format!("TRUNCATE TABLE {table}");
                let emptied = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await;
                // An older program has fewer tables.
                if !emptied.as_ref().is_err_and(is_missing_table) {
                    emptied?;
                }
            }
        }
        let numbers: Vec<i64> = (1..=vouchers).collect();
        for part in numbers.chunks(1_000) {
            let rows: Vec<String> = part.iter().map(|voucher| format!("({voucher},{STOCK})")).collect();
            let sql = format!("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES {}", rows.join(","));
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
        }
        session.close().await?;
        // The background work after TRUNCATE must not affect the next measurement.
        sleep(AFTER_CLEARING).await;
        Ok(())
    }

    /// Deletes all data of Redis.
    pub async fn clear_redis(&mut self) -> Result<()> {
        self.redis.call(&["FLUSHALL", "SYNC"]).await?;
        Ok(())
    }

    /// The number of `orders` that are rows.
    pub async fn count_written(&self, tables: Tables, orders: &Orders) -> Result<i64> {
        let (first, last) = orders.ids();
        let mut session = self.connect(tables).await?;
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM tb_voucher_order WHERE id BETWEEN ? AND ?");
        Ok(count.bind(first).bind(last).fetch_one(&mut session).await?)
    }

    /// The versions and the settings that durability and speed depend on, as the servers report them.
    pub async fn describe(&mut self) -> Result<ServerInfo> {
        let info = self.redis.call(&["INFO", "server"]).await?;
        let version = |name: &str| {
            let line = info.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|version| version.trim().to_owned())
        };
        let redis = match version("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", version("redis_version").unwrap_or_default()),
        };
        let mut redis_settings = Vec::new();
        for name in ["appendonly", "appendfsync", "auto-aof-rewrite-percentage", "save", "io-threads"] {
            let reply = self.redis.call(&["CONFIG", "GET", name]).await?;
            if let Some(value) = reply.field(name) {
                redis_settings.push((name.to_owned(), value.text().to_owned()));
            }
        }
        let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut self.mysql).await?;
        let rows = sqlx::raw_sql(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', \
             'log_bin', 'innodb_doublewrite', 'innodb_buffer_pool_size', 'innodb_flush_method', \
             'innodb_log_file_size', 'innodb_redo_log_capacity')",
        );
        let rows = rows.fetch_all(&mut self.mysql).await?;
        let settings = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
        Ok(ServerInfo {
            redis,
            redis_settings,
            mysql: format!("{name} {}", version.split('-').next().unwrap_or_default()),
            mysql_settings: settings.collect::<Result<_, sqlx::Error>>()?,
        })
    }
}

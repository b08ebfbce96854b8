//! Opens the stores, with errors that say what to look at and never a password.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, anyhow};
use fred::clients::Pool;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};
use tidegate_stream::{RedisSettings, readable};
use tokio::time::timeout;

use crate::config::{self, Settings};

/// Opens the connections for Redis commands.
///
/// # Errors
/// When the first connection fails, within connect and command timeout.
pub async fn redis(settings: &Settings) -> anyhow::Result<Pool> {
    open(settings, settings.redis.connection()).await
}

/// As [`redis`], but one connection: what is sent one after the other is done in that order.
///
/// # Errors
/// As [`redis`].
pub async fn redis_in_order(settings: &Settings) -> anyhow::Result<Pool> {
    open(settings, RedisSettings { connections: 1, ..settings.redis.connection() }).await
}

async fn open(settings: &Settings, connection: RedisSettings) -> anyhow::Result<Pool> {
    let redis = &settings.redis;
    let within = redis.connect_timeout + redis.command_timeout;
    let opened = match timeout(within, tidegate_stream::connect_pool(&connection)).await {
        Ok(opened) => opened.map_err(|error| anyhow!("{}", readable(error.details()))),
        Err(_) => Err(anyhow!("no answer within {} ms", within.as_millis())),
    };
    opened.with_context(|| {
        format!("Failed to reach Redis at {}; check redis.url / TIDEGATE_REDIS_URL", redis.url)
    })
}

/// Opens the pool of MySQL connections, after one attempt to connect that tells why, if it fails: a pool would
/// only say that it timed out.
///
/// # Errors
/// When MySQL cannot be reached within the acquire timeout.
pub async fn mysql(settings: &Settings) -> anyhow::Result<MySqlPool> {
    let mysql = &settings.mysql;
    let attempt = async { mysql_options(settings)?.connect().await?.close().await };
    let reached = match timeout(mysql.acquire_timeout, attempt).await {
        Ok(reached) => reached.map_err(anyhow::Error::from),
        Err(_) => Err(anyhow!("no answer within {} ms", mysql.acquire_timeout.as_millis())),
    };
    reached.with_context(|| {
        format!("Failed to reach MySQL at {}; check mysql.url / TIDEGATE_MYSQL_URL", mysql.url)
    })?;
    mysql_lazily(settings, &Arc::default())
}

/// Makes the pool without connecting, for a worker that waits for MySQL to come up. Counts in `opened` the connections
/// that it makes.
///
/// # Errors
/// When the URL is wrong, which the configuration has ruled out.
pub fn mysql_lazily(settings: &Settings, opened: &Arc<AtomicU64>) -> anyhow::Result<MySqlPool> {
    mysql_pool(settings, settings.mysql.connections, opened)
}

/// As [`mysql_lazily`], for those who look at a worker: a lane that waits for a connection counts that as an outage, so
/// none may wait for a looker. There are two questions, and neither waits for the other.
///
/// # Errors
/// As [`mysql_lazily`].
pub fn mysql_for_lookers(settings: &Settings, opened: &Arc<AtomicU64>) -> anyhow::Result<MySqlPool> {
    mysql_pool(settings, 2, opened)
}

fn mysql_pool(settings: &Settings, connections: u32, opened: &Arc<AtomicU64>) -> anyhow::Result<MySqlPool> {
    let mysql = &settings.mysql;
    let silence = session_silence(settings.worker.claim_idle);
    let setup = session_setup(mysql.lock_wait_timeout_s, silence);
    let opened = Arc::clone(opened);
    let pool = MySqlPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(mysql.acquire_timeout)
        // A round trip for each batch; a broken connection shows at the first statement, and the batch is retried.
        .test_before_acquire(false)
        // The server ends sessions that are silent for too long: those that come near to it are not used again.
        .idle_timeout(silence / 2)
        .before_acquire(move |_, session| Box::pin(async move { Ok(session.idle_for < silence / 2) }))
        .after_connect(move |connection, _| {
            let setup = setup.clone();
            opened.fetch_add(1, Relaxed);
            Box::pin(async move {
                for statement in setup {
                    connection.execute(AssertSqlSafe(statement)).await?;
                }
                Ok(())
            })
        });
    Ok(pool.connect_lazy_with(mysql_options(settings)?))
}

fn mysql_options(settings: &Settings) -> sqlx::Result<MySqlConnectOptions> {
    let options = config::mysql_options(settings.mysql.url.reveal())?;
    Ok(options.timezone(Some("+00:00".to_owned())).disable_statement_logging())
}

/// How long the server waits for the next statement of a session, in whole seconds. A worker that is frozen in the
/// middle of a transaction holds the rows of its vouchers, and with them the sale: by the time that others may take
/// over its entries, the server has ended that transaction.
fn session_silence(claim_idle: Duration) -> Duration {
    Duration::from_secs(claim_idle.as_secs().max(1))
}

/// What every session needs, whatever the server's defaults: a statement outside of a transaction is one of its own, and
/// a transaction ends with its COMMIT (or what we report as done is undone with the connection); no gap locks, short waits for row locks, an error
/// instead of a silently clamped value, all rows of an answer, updates by join, and an end when its worker falls
/// silent.
fn session_setup(lock_wait_timeout_s: u32, silence: Duration) -> [String; 7] {
    [
        "SET SESSION autocommit = 1, completion_type = 0".to_owned(),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        format!("SET SESSION innodb_lock_wait_timeout = {lock_wait_timeout_s}"),
        // For a table that somebody has locked whole.
        format!("SET SESSION lock_wait_timeout = {}", lock_wait_timeout_s.max(10)),
        // Not NO_ZERO_DATE: MariaDB would refuse every row of a table with such a default, and dumps of the tutorial have it.
        "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'".to_owned(),
        format!("SET SESSION sql_select_limit = {}, sql_safe_updates = 0", u64::MAX),
        format!("SET SESSION wait_timeout = {0}, net_read_timeout = {0}", silence.as_secs()),
    ]
}

/// Major and minor number of a server's version; what is no number counts as 0.
pub fn version(text: &str) -> (u64, u64) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("10.11.14-MariaDB-0+deb12u2"), (10, 11));
        assert!(version("10.11.14") >= (10, 6));
        assert!(version("7.0.15") >= (6, 2) && version("6.0.16") < (6, 2));
        assert_eq!(version("unknown"), (0, 0));
    }
}

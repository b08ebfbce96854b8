//! Opens the stores, with errors that say what to look at and never a password.

use anyhow::{Context, anyhow};
use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_orders::{SessionError, SessionSettings, Sessions};
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
    Ok(mysql_reached(settings).await?.pool(settings.mysql.connections))
}

/// The sessions of this process with MySQL, after one attempt as that of [`mysql`].
///
/// # Errors
/// As [`mysql`].
pub async fn mysql_reached(settings: &Settings) -> anyhow::Result<Sessions> {
    let (mysql, sessions) = (&settings.mysql, mysql_sessions(settings)?);
    let found = sessions.find().await.map_err(|error| match error {
        // As the error it is: there is one that `migrate` knows the way out of.
        SessionError::Server(error) => error.into(),
        error => anyhow::Error::from(error),
    });
    found.with_context(|| {
        format!("Failed to reach MySQL at {}; check mysql.url / TIDEGATE_MYSQL_URL", mysql.url)
    })?;
    Ok(sessions)
}

/// The sessions of this process with MySQL, without connecting: a worker waits for MySQL to come up.
///
/// # Errors
/// When the URL is wrong, which the configuration has ruled out.
pub fn mysql_sessions(settings: &Settings) -> anyhow::Result<Sessions> {
    Ok(Sessions::new(SessionSettings {
        hosts: config::mysql_hosts(settings.mysql.url.reveal())?,
        acquire_timeout: settings.mysql.acquire_timeout,
        lock_wait_timeout_s: settings.mysql.lock_wait_timeout_s,
        // By the time that others may take over the entries of a frozen worker, the server has ended its transaction.
        silence: settings.worker.claim_idle,
    }))
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

//! Opens the connections to Redis and MySQL. Errors name the setting to check and never contain a password.

use std::str::FromStr;

use anyhow::{Context, anyhow};
use fred::clients::Pool;
use sqlx::{ConnectOptions, MySqlPool, mysql::MySqlConnectOptions};
use tidegate_orders::{Ledger, Publisher, RedisStore, SessionError, SessionSettings, Sessions};
use tidegate_stream::readable;
use tokio::time::timeout;

use crate::{partition_list, settings::SystemSettings};

/// Opens the connections to Redis for commands, and checks that Redis stores the same partition list as the settings.
///
/// # Errors
/// If the first connection does not succeed within the connect timeout plus the command timeout.
pub async fn redis(settings: &SystemSettings) -> anyhow::Result<RedisStore> {
    open(settings, settings.redis.connection()).await
}

/// Opens the connections to Redis for commands as [`redis`] does, but does not check which partition list Redis stores.
///
/// # Errors
/// As for [`redis`].
pub async fn redis_of_any_list(settings: &SystemSettings) -> anyhow::Result<RedisStore> {
    open_unchecked(settings, settings.redis.connection()).await
}

/// Opens a single connection as [`redis`] does, so that Redis executes commands in the order in which they were sent.
///
/// # Errors
/// As for [`redis`].
pub async fn redis_in_order(settings: &SystemSettings) -> anyhow::Result<RedisStore> {
    open(settings, tidegate_stream::RedisConnectionSettings { connections: 1, ..settings.redis.connection() })
        .await
}

async fn open(
    settings: &SystemSettings,
    connection: tidegate_stream::RedisConnectionSettings,
) -> anyhow::Result<RedisStore> {
    let pool = open_unchecked(settings, connection).await?;
    partition_list::compare(settings, &pool).await?;
    Ok(pool)
}

/// Returns the Redis store of these settings, which uses the given connections.
#[must_use]
pub fn redis_store(settings: &SystemSettings, pool: impl Into<Pool>) -> RedisStore {
    RedisStore::new(pool.into(), settings.keys.clone(), settings.stream_names())
}

async fn open_unchecked(
    settings: &SystemSettings,
    connection: tidegate_stream::RedisConnectionSettings,
) -> anyhow::Result<RedisStore> {
    let redis = &settings.redis;
    let within = redis.connect_timeout + redis.command_timeout;
    let opened = match timeout(within, tidegate_stream::connect_pool(&connection)).await {
        Ok(opened) => opened
            .map(|pool| redis_store(settings, pool))
            .map_err(|error| anyhow!("{}", readable(error.details()))),
        Err(_) => Err(anyhow!("no answer within {} ms", within.as_millis())),
    };
    opened.with_context(|| {
        format!("Failed to reach Redis at {}; check redis.url (or TIDEGATE_REDIS_URL)", redis.url)
    })
}

/// Opens the MySQL sessions of this process, but does not check which partitions the MySQL database serves. This
/// function first opens one connection without the pool, because the error of a pool does not show its cause.
///
/// # Errors
/// If MySQL cannot be reached within the acquire timeout.
pub async fn mysql_unchecked(settings: &SystemSettings) -> anyhow::Result<Sessions> {
    let (mysql, sessions) = (&settings.mysql, mysql_sessions(settings)?);
    let found = sessions.find().await.map_err(|error| match error {
        // The error keeps its type, because `migrate` handles one of them.
        SessionError::Server(error) => error.into(),
        error => anyhow::Error::from(error),
    });
    found.with_context(|| match &mysql.shard_tags[..] {
        [] => format!("Failed to reach MySQL at {}; check mysql.url (or TIDEGATE_MYSQL_URL)", mysql.url),
        tags => format!(
            "Failed to reach the MySQL shard of the partitions {} at {}; check the setting mysql.shards",
            tags.join(", "),
            mysql.url
        ),
    })?;
    Ok(sessions)
}

/// Creates the MySQL sessions of this process but opens no connection, so that a worker can start while MySQL is
/// unavailable.
///
/// # Errors
/// If the URL is wrong, which the configuration checks before.
pub fn mysql_sessions(settings: &SystemSettings) -> anyhow::Result<Sessions> {
    let hosts = mysql_hosts(settings.mysql.url.reveal())?.into_iter();
    Ok(Sessions::new(SessionSettings {
        hosts: hosts.map(|host| host.timezone(Some(settings.mysql.time_zone.clone()))).collect(),
        acquire_timeout: settings.mysql.acquire_timeout,
        lock_wait_timeout_s: settings.mysql.lock_wait_timeout_s,
        // The server ends the transaction of a frozen worker before other workers may claim its entries.
        silence: settings.fleet.claim_idle,
    }))
}

/// Creates the ledger, the code that reads and writes orders in MySQL, for this pool. On a cluster of MySQL, the ledger
/// trusts a missing row only after the node has caught up.
#[must_use]
pub fn ledger(settings: &SystemSettings, sessions: &Sessions, mysql: MySqlPool) -> Ledger {
    Ledger::new(mysql, settings.mysql.statement_timeout).reading_causally(sessions.causal_reads())
}

/// Creates the publisher of order results with these settings, for a process that handles stream entries.
#[must_use]
pub fn publisher(settings: &SystemSettings, redis: &RedisStore, mysql: &MySqlPool) -> Publisher {
    let mysql = (mysql.clone(), settings.mysql.statement_timeout);
    let results = settings.stream.results.clone();
    Publisher::new(redis.pool().clone(), results, settings.results.published, mysql)
        .of_partition(settings.partition().clone())
}

/// Returns the connect options of each host in a MySQL URL, in the URL's order:
/// `mysql://user:password@a:3306,b:3306/database`.
///
/// # Errors
/// If the URL is not a valid MySQL URL.
pub fn mysql_hosts(url: &str) -> sqlx::Result<Vec<MySqlConnectOptions>> {
    let begin = url.find("://").map_or(0, |at| at + "://".len());
    let end = url[begin..].find(['/', '?', '#']).map_or(url.len(), |at| begin + at);
    // The last `@` ends the user and password, because the password may contain an unescaped `@`.
    let begin = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let hosts: Vec<&str> = url[begin..end].split(',').collect();
    if hosts.len() > 1 && (hosts.contains(&"") || url[end..].contains("socket=")) {
        return Err(sqlx::Error::Configuration(
            "in a MySQL URL with several hosts, every host needs a name, and `socket=` is not allowed".into(),
        ));
    }
    hosts.iter().map(|host| mysql_options(&[&url[..begin], host, &url[end..]].concat())).collect()
}

fn mysql_options(url: &str) -> sqlx::Result<MySqlConnectOptions> {
    let options = MySqlConnectOptions::from_str(url)?;
    let options = options.disable_statement_logging();
    // sqlx takes the brackets of an IPv6 address as a part of the host name.
    let address = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(match address.map(str::to_owned) {
        Some(address) => options.host(&address),
        None => options,
    })
}

/// Returns the major and the minor version number of a server. A component that is not a number counts as 0.
pub fn version(text: &str) -> (u64, u64) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_connected_to_without_its_brackets() {
        assert_eq!(mysql_options("mysql://root@[::1]:3306/hmdp").unwrap().get_host(), "::1");
        assert_eq!(mysql_options("mysql://root@db:3306/hmdp").unwrap().get_host(), "db");
    }

    #[test]
    fn several_hosts_are_nodes_with_everything_else_in_common() {
        let url = "mysql://app:s%2Cecret@a:3306,b,[::1]:3308/hmdp?ssl-mode=disabled";
        let hosts = mysql_hosts(url).unwrap();
        let named: Vec<_> = hosts.iter().map(|host| (host.get_host(), host.get_port())).collect();
        assert_eq!(named, [("a", 3306), ("b", 3306), ("::1", 3308)]);
        for host in &hosts {
            assert_eq!((host.get_username(), host.get_database()), ("app", Some("hmdp")));
        }
        for wrong in [
            "mysql://a,,b/hmdp",
            "mysql://a,b:port/hmdp",
            "mysql://a,/hmdp",
            "mysql://a,b/hmdp?socket=/run/s",
        ] {
            assert!(mysql_hosts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("10.11.14-MariaDB-0+deb12u2"), (10, 11));
        assert!(version("10.11.14") >= (10, 6));
        assert!(version("7.0.15") >= (6, 2) && version("6.0.16") < (6, 2));
        assert_eq!(version("unknown"), (0, 0));
    }
}

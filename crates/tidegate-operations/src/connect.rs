//! Opens the stores, with errors that say what to look at and never a password.

use std::str::FromStr;

use anyhow::{Context, anyhow};
use fred::clients::Pool;
use sqlx::{ConnectOptions, MySqlPool, mysql::MySqlConnectOptions};
use tidegate_orders::{Publisher, Ledger, RedisStore, SessionError, SessionSettings, Sessions};
use tidegate_stream::readable;
use tokio::time::timeout;

use crate::{partition_list, settings::SystemSettings};

/// Opens the connections for Redis commands.
///
/// # Errors
/// When the first connection fails, within connect and command timeout.
pub async fn redis(settings: &SystemSettings) -> anyhow::Result<RedisStore> {
    open(settings, settings.redis.connection()).await
}

/// As [`redis`], whatever list of partitions the system has.
///
/// # Errors
/// As [`redis`].
pub async fn redis_of_any_list(settings: &SystemSettings) -> anyhow::Result<RedisStore> {
    open_unchecked(settings, settings.redis.connection()).await
}

/// As [`redis`], but one connection: what is sent one after the other is done in that order.
///
/// # Errors
/// As [`redis`].
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

/// The Redis of `settings` behind these connections.
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
        format!("Failed to reach Redis at {}; check redis.url / TIDEGATE_REDIS_URL", redis.url)
    })
}

/// The sessions of this process with MySQL, whatever partitions it serves, after one attempt to connect that tells why, if it
/// fails: a pool would only say that it timed out.
///
/// # Errors
/// When MySQL cannot be reached within the acquire timeout.
pub async fn mysql_unchecked(settings: &SystemSettings) -> anyhow::Result<Sessions> {
    let (mysql, sessions) = (&settings.mysql, mysql_sessions(settings)?);
    let found = sessions.find().await.map_err(|error| match error {
        // As the error it is: there is one that `migrate` knows the way out of.
        SessionError::Server(error) => error.into(),
        error => anyhow::Error::from(error),
    });
    found.with_context(|| match &mysql.shard_tags[..] {
        [] => format!("Failed to reach MySQL at {}; check mysql.url / TIDEGATE_MYSQL_URL", mysql.url),
        tags => format!(
            "Failed to reach the MySQL shard of the partitions {} at {}; check mysql.shards",
            tags.join(", "),
            mysql.url
        ),
    })?;
    Ok(sessions)
}

/// The sessions of this process with MySQL, without connecting: a worker waits for MySQL to come up.
///
/// # Errors
/// When the URL is wrong, which the configuration has ruled out.
pub fn mysql_sessions(settings: &SystemSettings) -> anyhow::Result<Sessions> {
    Ok(Sessions::new(SessionSettings {
        hosts: mysql_hosts(settings.mysql.url.reveal())?,
        acquire_timeout: settings.mysql.acquire_timeout,
        lock_wait_timeout_s: settings.mysql.lock_wait_timeout_s,
        // By the time that others may take over the entries of a frozen worker, the server has ended its transaction.
        silence: settings.fleet.claim_idle,
    }))
}

/// Orders in MySQL, by a pool of these sessions. A row that is absent on a node of a cluster decides only after the node has caught up.
#[must_use]
pub fn ledger(settings: &SystemSettings, sessions: &Sessions, mysql: MySqlPool) -> Ledger {
    Ledger::new(mysql, settings.mysql.statement_timeout).reading_causally(sessions.causal_reads())
}

/// Whoever settles an entry publishes what became of its order, as the settings say.
#[must_use]
pub fn publisher(settings: &SystemSettings, redis: &RedisStore, mysql: &MySqlPool) -> Publisher {
    let mysql = (mysql.clone(), settings.mysql.statement_timeout);
    let results = settings.stream.results.clone();
    Publisher::new(redis.pool().clone(), results, settings.results.published, mysql)
        .of_partition(settings.partition().clone())
}

/// How to reach each host of a MySQL URL, in its order: `mysql://user:password@a:3306,b:3306/database`.
///
/// # Errors
/// When it is none.
pub fn mysql_hosts(url: &str) -> sqlx::Result<Vec<MySqlConnectOptions>> {
    let begin = url.find("://").map_or(0, |at| at + "://".len());
    let end = url[begin..].find(['/', '?', '#']).map_or(url.len(), |at| begin + at);
    // The last @, as it is read where nothing is escaped.
    let begin = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let hosts: Vec<&str> = url[begin..end].split(',').collect();
    if hosts.len() > 1 && (hosts.contains(&"") || url[end..].contains("socket=")) {
        return Err(sqlx::Error::Configuration("several hosts need a name each, and no socket".into()));
    }
    hosts.iter().map(|host| mysql_options(&[&url[..begin], host, &url[end..]].concat())).collect()
}

fn mysql_options(url: &str) -> sqlx::Result<MySqlConnectOptions> {
    let options = MySqlConnectOptions::from_str(url)?;
    let options = options.timezone(Some("+00:00".to_owned())).disable_statement_logging();
    // sqlx takes the brackets of an IPv6 address for a part of the name.
    let address = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(match address.map(str::to_owned) {
        Some(address) => options.host(&address),
        None => options,
    })
}

/// Major and minor number of a server's version; what is no number counts as 0.
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

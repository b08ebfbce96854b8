//! The sections `[redis]` and `[mysql]`, with their URLs and timeouts.

use std::{sync::Arc, time::Duration};

use fred::types::config::Config as RedisConfig;
use tidegate_operations::{MySqlSettings, RedisSettings, connect::mysql_hosts, redacted::RedactedUrl};
use tidegate_stream::{RedisCluster, Sentinels, cluster::is_cluster_url};

use super::HOUR_MS;
use crate::config::{reader::SettingsReader, urls};

/// The number of connections to Redis, so that one slow reply does not delay the other lanes.
const REDIS_CONNECTIONS: usize = 2;
/// The longest time to open a connection, TLS handshake included. A shorter command timeout applies instead.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The lock wait timeout of MySQL. It is small, because a statement whose client has gone keeps its place on the server
/// until then. Orders whose row stays locked are set aside, so that only the first batch waits. A statement waits 10 s
/// for a locked table.
const LOCK_WAIT_TIMEOUT_S: u32 = 1;
const REDIS_SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "redis+unix"];
const MYSQL_SCHEMES: [&str; 2] = ["mysql", "mariadb"];
const URL_HINT: &str =
    "scheme://user:password@host:port/database, with @ : / ? in a password written as %40 %3A %2F %3F";

/// Reads the settings of Redis. For a cluster, also returns the map of its nodes.
pub(super) fn redis(reader: &mut SettingsReader<'_>) -> (RedisSettings, Option<Arc<RedisCluster>>) {
    let text = reader.text("redis.url");
    let (url, cluster) =
        url(
            reader,
            ("redis.url", text),
            &REDIS_SCHEMES,
            urls::wrong_redis_query,
            |url| match is_cluster_url(url) {
                true => RedisCluster::new(url).map(Some).map_err(|error| error.details().to_owned()),
                false => RedisConfig::from_url(url).map(|_| None).map_err(|error| error.details().to_owned()),
            },
        );
    let command_timeout = reader.millis("redis.command_timeout_ms", 100..=60_000);
    let settings = RedisSettings {
        sentinels: Sentinels::of_url(url.reveal()),
        url,
        master: None,
        connections: REDIS_CONNECTIONS,
        command_timeout,
        connect_timeout: command_timeout.min(CONNECT_TIMEOUT),
    };
    (settings, cluster.flatten())
}

/// Reads the settings of MySQL, with a connection for each lane.
pub(super) fn mysql(reader: &mut SettingsReader<'_>, lanes: usize) -> MySqlSettings {
    let url = reader.text("mysql.url");
    MySqlSettings {
        url: mysql_url(reader, "mysql.url", url),
        shard_tags: Vec::new(),
        connections: u32::try_from(lanes).unwrap_or(64) + 1,
        writers: reader.number("mysql.writers", 1..=64),
        time_zone: time_zone(reader),
        acquire_timeout: reader.millis("mysql.acquire_timeout_ms", 100..=60_000),
        // This must be longer than a wait for a lock, which would be mistaken for an outage.
        statement_timeout: reader.millis("mysql.statement_timeout_ms", 1_001..=HOUR_MS),
        lock_wait_timeout_s: LOCK_WAIT_TIMEOUT_S,
    }
}

/// Reads the time zone of DATETIME columns: `UTC` or an offset. A name could have hours that occur twice.
fn time_zone(reader: &mut SettingsReader<'_>) -> String {
    const UTC: &str = "+00:00";
    let zone = reader.word("mysql.time_zone");
    match zone.as_bytes() {
        b"UTC" => UTC.to_owned(),
        [b'+' | b'-', b'0'..=b'1', b'0'..=b'9', b':', b'0'..=b'5', b'0'..=b'9'] => zone,
        _ => {
            reader.wrong("mysql.time_zone", "must be UTC, or an offset such as +08:00");
            UTC.to_owned()
        }
    }
}

/// Parses a MySQL URL, which must name a database.
pub(super) fn mysql_url(reader: &mut SettingsReader<'_>, key: &'static str, text: String) -> RedactedUrl {
    let parse = |url: &str| mysql_hosts(url).map_err(|error| error.to_string());
    let (url, hosts) = url(reader, (key, text), &MYSQL_SCHEMES, urls::wrong_mysql_query, parse);
    if hosts.is_some_and(|hosts| hosts.iter().any(|host| host.get_database().is_none())) {
        reader.wrong(key, "must name the database: mysql://user:password@host:port/DATABASE");
    }
    url
}

/// Checks that the client library understands a URL. The library's message is passed on only if it cannot hold a
/// secret.
fn url<T>(
    reader: &mut SettingsReader<'_>,
    (key, text): (&'static str, String),
    schemes: &[&str],
    wrong_query: impl Fn(&str) -> Option<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> (RedactedUrl, Option<T>) {
    let url = RedactedUrl::new(text);
    let scheme = url.reveal().split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
        reader.wrong(key, format!("must begin with {}://", schemes.join("://, ")));
        return (url, None);
    }
    // A `/`, `?` or `#` in a password silently ends the host for every parser: the rest would be part of another URL.
    let rest = url.reveal().split_once("://").map_or("", |(_, rest)| rest);
    if rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@')) {
        reader.wrong(key, format!("contains a password that is not escaped ({URL_HINT})"));
        return (url, None);
    }
    if let Some(wrong) = wrong_query(url.reveal()) {
        reader.wrong(key, wrong);
        return (url, None);
    }
    let parsed = parse(url.reveal()).map_err(|error| {
        let why = if url.holds_no_secret() { format!(": {error}") } else { String::new() };
        reader.wrong(key, format!("is not a valid URL{why} ({URL_HINT})"));
    });
    (url, parsed.ok())
}

//! `[redis]` and `[mysql]`.

use std::{sync::Arc, time::Duration};

use fred::types::config::Config as RedisConfig;
use tidegate_operations::{MySqlSettings, RedisSettings, connect::mysql_hosts, redacted::RedactedUrl};
use tidegate_stream::{RedisCluster, Sentinels, cluster::is_cluster_url};

use super::HOUR_MS;
use crate::config::{reader::Reader, urls};

const REDIS_SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "redis+unix"];
const MYSQL_SCHEMES: [&str; 2] = ["mysql", "mariadb"];
const URL_HINT: &str =
    "scheme://user:password@host:port/database, with @ : / ? in a password written as %40 %3A %2F %3F";

/// Reads where Redis is; a cluster has a map of its own.
pub(super) fn redis(reader: &mut Reader<'_>) -> (RedisSettings, Option<Arc<RedisCluster>>) {
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
    let settings = RedisSettings {
        sentinels: Sentinels::of_url(url.reveal()),
        url,
        master: None,
        connections: reader.number("redis.connections", 1..=64),
        command_timeout: reader.millis("redis.command_timeout_ms", 100..=60_000),
        connect_timeout: reader.millis("redis.connect_timeout_ms", 100..=60_000),
    };
    (settings, cluster.flatten())
}

/// Reads where MySQL is, for so many lanes.
pub(super) fn mysql(reader: &mut Reader<'_>, lanes: usize) -> MySqlSettings {
    let url = reader.text("mysql.url");
    let url = mysql_url(reader, "mysql.url", url);
    let connections: u32 = reader.number("mysql.connections", 0..=1_000);
    let statement_timeout = reader.millis("mysql.statement_timeout_ms", 100..=HOUR_MS);
    let lock_wait_timeout_s = reader.number("mysql.lock_wait_timeout_s", 1..=50);
    reader.rule(
        Duration::from_secs(u64::from(lock_wait_timeout_s)) < statement_timeout,
        "mysql.statement_timeout_ms",
        "mysql.lock_wait_timeout_s",
        "must be longer than mysql.lock_wait_timeout_s, or a lock wait is taken for an outage",
    );
    MySqlSettings {
        url,
        shard_tags: Vec::new(),
        connections: if connections == 0 { u32::try_from(lanes).unwrap_or(64) + 1 } else { connections },
        writers: reader.number("mysql.writers", 1..=64),
        acquire_timeout: reader.millis("mysql.acquire_timeout_ms", 100..=60_000),
        statement_timeout,
        lock_wait_timeout_s,
    }
}

/// A URL that names a database.
pub(super) fn mysql_url(reader: &mut Reader<'_>, key: &'static str, text: String) -> RedactedUrl {
    let parse = |url: &str| mysql_hosts(url).map_err(|error| error.to_string());
    let (url, hosts) = url(reader, (key, text), &MYSQL_SCHEMES, urls::wrong_mysql_query, parse);
    if hosts.is_some_and(|hosts| hosts.iter().any(|host| host.get_database().is_none())) {
        reader.wrong(key, "must name the database: mysql://user:password@host:port/DATABASE");
    }
    url
}

/// A URL that its client library understands. The library's message is passed on only where no secret can be in it.
fn url<T>(
    reader: &mut Reader<'_>,
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
    // A `/`, `?` or `#` in a password ends the host for every parser, silently: the rest would be another URL.
    let rest = url.reveal().split_once("://").map_or("", |(_, rest)| rest);
    if rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@')) {
        reader.wrong(key, format!("holds a password that is not escaped ({URL_HINT})"));
        return (url, None);
    }
    if let Some(wrong) = wrong_query(url.reveal()) {
        reader.wrong(key, wrong);
        return (url, None);
    }
    let parsed = parse(url.reveal()).map_err(|error| {
        let why = if url.holds_no_secret() { format!(": {error}") } else { String::new() };
        reader.wrong(key, format!("is not a URL that can be used{why} ({URL_HINT})"));
    });
    (url, parsed.ok())
}

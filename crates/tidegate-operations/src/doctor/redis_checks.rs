//! Checks whether this Redis can hold orders that MySQL does not have yet.

use std::collections::HashMap;

use fred::prelude::FredResult;
use tidegate_compare::text::{counted, error_chain};
use tidegate_orders::RedisStore;
use tidegate_stream::{KeyKind, StreamStatus, inspect, is_disk_full, server_time_ms};

use super::{
    clock, entries, failover,
    server_settings::{config_get, info, value},
    waiting,
};
use crate::{Stores, SystemSettings, connect, finding::Findings, fleet_pause::FleetPause};

const OLDEST: (u64, u64) = (6, 2);
/// The memory use in percent from which on an operator should act before callers notice.
const NEARLY_FULL_PERCENT: u64 = 90;
const MAKE_ROOM: &str = "free space on the disk of Redis; do not restart Redis before that: a restart loses all data that is not on the disk";

/// Runs all checks of Redis. It returns the connections to Redis, if it can be reached.
pub(super) async fn run<'a>(stores: &'a Stores, findings: &mut Findings) -> Option<&'a RedisStore> {
    let settings = stores.settings();
    let redis = match stores.redis().await {
        Ok(redis) => redis,
        Err(error) => {
            let what = error_chain(&error);
            let advice = if is_disk_full(&what) { MAKE_ROOM } else { "start Redis, or correct redis.url" };
            findings.error(what, advice);
            return None;
        }
    };
    findings.ok(format!("reachable at {}", settings.redis.url));
    match info(redis).await {
        Ok(info) => {
            check_version(findings, &info);
            check_role(findings, &info);
            check_eviction(findings, &info);
            check_memory(findings, &info);
            check_persistence(findings, &info);
            check_disk(findings, &info);
            failover::check(settings, findings, redis, &info).await;
        }
        Err(error) => findings.warning(
            format!("Failed to read the version and the settings of Redis: {}", error.details()),
            "allow INFO for Tidegate's user, or check manually: version >= 6.2, noeviction, append-only file on, role master",
        ),
    }
    check_fsync(findings, config_get(redis, "appendfsync").await);
    check_clock(findings, redis).await;
    check_stream(settings, findings, redis).await;
    check_pause(findings, redis).await;
    Some(redis)
}

fn check_version(findings: &mut Findings, info: &HashMap<String, String>) {
    // Valkey reports Redis 7.2 here, which is the version whose commands it has.
    let version = value(info, "redis_version");
    let name = match value(info, "valkey_version") {
        "" => format!("Redis {version}"),
        valkey => format!("Valkey {valkey}"),
    };
    if connect::version(version) >= OLDEST {
        findings.ok(name);
    } else {
        findings.error(format!("{name} is too old"), "upgrade to Redis 6.2 or later, or to Valkey");
    }
}

fn check_role(findings: &mut Findings, info: &HashMap<String, String>) {
    match value(info, "role") {
        "master" => findings.ok("this Redis server is a master"),
        role => findings.error(
            format!("the role of this Redis server is {role:?}, so it refuses writes"),
            "set redis.url to the address of the master, or use redis-sentinel:// or redis-cluster://",
        ),
    }
}

fn check_eviction(findings: &mut Findings, info: &HashMap<String, String>) {
    let advice = "CONFIG SET maxmemory-policy noeviction, and add this setting to the server's configuration";
    match (value(info, "maxmemory_policy"), value(info, "maxmemory")) {
        ("noeviction", _) => findings.ok("maxmemory-policy is noeviction"),
        (policy, "0") => {
            findings.warning(
                format!("maxmemory-policy is {policy}: Redis may evict keys as soon as maxmemory is set"),
                advice,
            );
        }
        (policy, _) => {
            findings.error(format!("maxmemory-policy is {policy}: Redis may evict stock and orders"), advice)
        }
    }
}

/// Returns the used memory and `maxmemory` in bytes; None: Redis has no `maxmemory`. Redis does not count the buffers of
/// replicas and of the append-only file for `maxmemory`.
pub(super) fn memory(info: &HashMap<String, String>) -> Option<(u64, u64)> {
    let bytes = |name| value(info, name).parse::<u64>().ok();
    let (used, most) = (bytes("used_memory")?, bytes("maxmemory").filter(|most| *most > 0)?);
    Some((used.saturating_sub(bytes("mem_not_counted_for_evict").unwrap_or(0)), most))
}

fn check_memory(findings: &mut Findings, info: &HashMap<String, String>) {
    let Some((used, most)) = memory(info) else { return };
    let percent = used.saturating_mul(100) / most;
    let found = format!("the memory of Redis is {percent} % full: {used} of {most} bytes (maxmemory)");
    let advice = "raise maxmemory or free memory: see docs/runbook/redis-is-out-of-memory.md";
    match percent {
        100.. => findings.error(format!("{found}: Redis admits no order"), advice),
        NEARLY_FULL_PERCENT.. => findings.warning(found, advice),
        _ => findings.ok(found),
    }
}

fn check_persistence(findings: &mut Findings, info: &HashMap<String, String>) {
    let advice = "CONFIG SET appendonly yes, and add this setting to the server's configuration";
    match (value(info, "aof_enabled"), value(info, "connected_slaves")) {
        ("1", _) => findings.ok("the append-only file of Redis is on"),
        (_, "" | "0") => findings.error("the append-only file is off: a crash of Redis loses orders", advice),
        (_, replicas) => findings.warning(
            format!("the append-only file of Redis is off: if the master crashes, only the {replicas} replicas have the orders"),
            advice,
        ),
    }
}

/// Checks whether Redis can write its files. While it cannot, a client that authenticates with a password can still
/// connect, so this check is needed; for others, the connection fails already.
fn check_disk(findings: &mut Findings, info: &HashMap<String, String>) {
    if value(info, "aof_last_write_status") == "err" {
        findings.error("Redis cannot write its append-only file", MAKE_ROOM);
    }
    if value(info, "rdb_last_bgsave_status") == "err" {
        findings.warning(
            "Redis failed to write its last snapshot",
            "free space on the disk, or read the log of Redis",
        );
    }
}

fn check_fsync(findings: &mut Findings, appendfsync: FredResult<Option<String>>) {
    match appendfsync {
        Ok(Some(fsync)) if fsync == "no" => findings.warning(
            "appendfsync is no: a crash of the host may lose the orders of the last 30 s",
            "CONFIG SET appendfsync everysec, or CONFIG SET appendfsync always",
        ),
        Ok(Some(fsync)) => findings.ok(format!("appendfsync is {fsync}")),
        Ok(None) => findings.warning("Redis has no setting appendfsync", "check its durability manually"),
        Err(error) => findings.warning(
            format!("Failed to read the Redis setting appendfsync: {}", error.details()),
            "if your Redis service forbids CONFIG, check in its console that appendfsync is everysec or always",
        ),
    }
}

async fn check_clock(findings: &mut Findings, redis: &RedisStore) {
    let before_ms = clock::host_ms();
    match server_time_ms(redis.pool()).await {
        Ok(now_ms) => {
            let host_ms = (before_ms, clock::host_ms());
            clock::compare(findings, host_ms, i64::try_from(now_ms).unwrap_or(i64::MAX));
        }
        Err(error) => {
            findings.warning(format!("Failed to read the clock of Redis: {error}"), "allow the command TIME")
        }
    }
}

async fn check_stream(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore) {
    let names = settings.stream_names();
    match inspect(redis, &names).await {
        Ok(status) => {
            report_stream(settings, findings, &status);
            waiting::check(settings, findings, redis, &status).await;
            entries::check(settings, findings, redis).await;
        }
        Err(error) => findings.error(
            format!("Failed to read the stream {}: {error}", names.stream),
            "allow Tidegate's Redis user TYPE, XLEN, XRANGE, XINFO and XPENDING on the stream",
        ),
    }
}

pub(super) async fn check_pause(findings: &mut Findings, redis: &RedisStore) {
    match FleetPause::read(redis).await {
        Ok(None) => findings.ok("the workers are not paused"),
        Ok(Some(pause)) => {
            let lasting =
                pause.lasting_s.map(|lasting_s| format!(" for {lasting_s:.0} s")).unwrap_or_default();
            findings.warning(
                format!("the workers are paused{lasting}, {}: {}", pause.origin(), pause.end()),
                "if the pause is no longer needed, run tidegate resume --workers",
            );
        }
        Err(error) => findings.error(
            format!(
                "Failed to read the pause of the workers from the key {}: {error}; workers do not start",
                redis.keys().fleet().pause().as_str_lossy()
            ),
            "allow Tidegate's Redis user GET on the key. If the key is not a string, delete it",
        ),
    }
}

fn report_stream(settings: &SystemSettings, findings: &mut Findings, status: &StreamStatus) {
    let (name, group) = (&settings.stream.name, &settings.stream.group);
    match (&status.kind, &status.group) {
        (KeyKind::Other(kind), _) => findings.error(
            format!("{name} is a {kind}, not a stream"),
            "rename this key, or set stream.name to the stream of the producers",
        ),
        (KeyKind::Missing, _) => findings.warning(
            format!("Redis has no stream {name} yet"),
            "if orders were already placed, check stream.name; otherwise the first order or worker creates the stream",
        ),
        (KeyKind::Stream, None) => findings.warning(
            format!("the stream {name} has no group {group} yet"),
            "start a worker, which creates the group; if workers already run, check stream.group",
        ),
        (KeyKind::Stream, Some(_)) => {
            findings.ok(format!("the stream {name} (group {group}) has {}", counted(status.length, "entry")));
        }
    }
    if let KeyKind::Other(kind) = &status.dead_kind {
        findings.error(
            format!(
                "{} is a {kind}, not a stream: workers cannot write dead letters, and entries stay pending",
                settings.stream.dead
            ),
            "rename this key, or set stream.dead; workers then continue without a restart",
        );
    }
}

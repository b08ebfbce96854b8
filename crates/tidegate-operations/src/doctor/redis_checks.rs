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
const MAKE_ROOM: &str =
    "make room on its disk; do not restart it before: it would lose everything that is not in its file";

/// Runs all checks of Redis. It returns the connections to Redis, if it can be reached.
pub(super) async fn run<'a>(stores: &'a Stores, findings: &mut Findings) -> Option<&'a RedisStore> {
    let settings = stores.settings();
    let redis = match stores.redis().await {
        Ok(redis) => redis,
        Err(error) => {
            let what = error_chain(&error);
            let advice = if is_disk_full(&what) { MAKE_ROOM } else { "start it, or correct redis.url" };
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
            format!("its version and settings could not be read: {}", error.details()),
            "allow INFO for this user, or check manually: version >= 6.2, noeviction, AOF on, role master",
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
        "master" => findings.ok("it is the master"),
        role => findings.error(
            format!("its role is {role:?}; it takes no writes"),
            "point redis.url at the master, or use redis-sentinel:// or redis-cluster://",
        ),
    }
}

fn check_eviction(findings: &mut Findings, info: &HashMap<String, String>) {
    let advice = "CONFIG SET maxmemory-policy noeviction, and write it to the server's configuration";
    match (value(info, "maxmemory_policy"), value(info, "maxmemory")) {
        ("noeviction", _) => findings.ok("maxmemory-policy is noeviction"),
        (policy, "0") => {
            findings.warning(
                format!("maxmemory-policy is {policy}, and would evict once maxmemory is set"),
                advice,
            );
        }
        (policy, _) => {
            findings.error(format!("maxmemory-policy is {policy}: it may evict stock and orders"), advice)
        }
    }
}

/// Checks the used memory against `maxmemory`. Redis does not count the buffers of replicas and of the append-only file
/// for `maxmemory`.
fn check_memory(findings: &mut Findings, info: &HashMap<String, String>) {
    let bytes = |name| value(info, name).parse::<u64>().ok();
    let most = bytes("maxmemory").filter(|most| *most > 0);
    let (Some(used), Some(most)) = (bytes("used_memory"), most) else { return };
    let used = used.saturating_sub(bytes("mem_not_counted_for_evict").unwrap_or(0));
    let percent = used.saturating_mul(100) / most;
    let found = format!("its memory is {percent} % full: {used} bytes of {most} (maxmemory)");
    let advice = "raise maxmemory or make room: see docs/runbook/redis-is-out-of-memory.md";
    match percent {
        100.. => findings.error(format!("{found}: it admits no order"), advice),
        NEARLY_FULL_PERCENT.. => findings.warning(found, advice),
        _ => findings.ok(found),
    }
}

fn check_persistence(findings: &mut Findings, info: &HashMap<String, String>) {
    let advice = "CONFIG SET appendonly yes, and write it to the server's configuration";
    match (value(info, "aof_enabled"), value(info, "connected_slaves")) {
        ("1", _) => findings.ok("the append-only file is on"),
        (_, "" | "0") => findings.error("the append-only file is off: a crash loses admitted orders", advice),
        (_, replicas) => findings.warning(
            format!("the append-only file is off; only its replicas ({replicas}) keep admitted orders"),
            advice,
        ),
    }
}

/// Checks whether Redis can write its files. While it cannot, a client that authenticates with a password can still
/// connect, so this check is needed; for others, the connection fails already.
fn check_disk(findings: &mut Findings, info: &HashMap<String, String>) {
    if value(info, "aof_last_write_status") == "err" {
        findings.error("its append-only file cannot be written", MAKE_ROOM);
    }
    if value(info, "rdb_last_bgsave_status") == "err" {
        findings.warning("its last snapshot could not be written", "make room on its disk, or see its log");
    }
}

fn check_fsync(findings: &mut Findings, appendfsync: FredResult<Option<String>>) {
    match appendfsync {
        Ok(Some(fsync)) if fsync == "no" => findings.warning(
            "appendfsync is no: a crash of the host loses up to half a minute of orders",
            "CONFIG SET appendfsync everysec, or always",
        ),
        Ok(Some(fsync)) => findings.ok(format!("appendfsync is {fsync}")),
        Ok(None) => findings.warning("it has no setting appendfsync", "check its durability manually"),
        Err(error) => findings.warning(
            format!("appendfsync could not be read: {}", error.details()),
            "managed services forbid CONFIG: check in their console that it is everysec or always",
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
            findings.warning(format!("its clock could not be read: {error}"), "allow TIME for this user")
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
            format!("the stream {} could not be read: {error}", names.stream),
            "allow this user TYPE, XLEN, XRANGE, XINFO and XPENDING on it",
        ),
    }
}

async fn check_pause(findings: &mut Findings, redis: &RedisStore) {
    match FleetPause::read(redis).await {
        Ok(None) => findings.ok("the workers are not paused"),
        Ok(Some(pause)) => {
            let lasting =
                pause.lasting_s.map(|lasting_s| format!(" for {lasting_s:.0} s")).unwrap_or_default();
            findings.warning(
                format!("the workers are paused{lasting}, {}: {}", pause.origin(), pause.end()),
                "if the pause is no longer needed: tidegate resume --workers",
            );
        }
        Err(error) => findings.error(
            format!(
                "{} could not be read: {error}; workers do not start",
                redis.keys().fleet().pause().as_str_lossy()
            ),
            "it must hold a string or nothing, and this user must be allowed GET on it",
        ),
    }
}

fn report_stream(settings: &SystemSettings, findings: &mut Findings, status: &StreamStatus) {
    let (name, group) = (&settings.stream.name, &settings.stream.group);
    match (&status.kind, &status.group) {
        (KeyKind::Other(kind), _) => findings.error(
            format!("{name} is a {kind}, not a stream"),
            "rename that key, or set stream.name to the producers' stream",
        ),
        (KeyKind::Missing, _) => findings.warning(
            format!("there is no stream {name} yet"),
            "on a new system, nothing: the first order or worker creates it; otherwise check stream.name",
        ),
        (KeyKind::Stream, None) => findings.warning(
            format!("the stream {name} has no group {group} yet"),
            "start a worker, which creates it; if workers run, check stream.group",
        ),
        (KeyKind::Stream, Some(_)) => {
            findings.ok(format!("stream {name} with {}, group {group}", counted(status.length, "entry")));
        }
    }
    if let KeyKind::Other(kind) = &status.dead_kind {
        findings.error(
            format!(
                "{} is a {kind}, not a stream: nothing can be buried, and lanes fill up",
                settings.stream.dead
            ),
            "rename that key, or set stream.dead; workers then continue without a restart",
        );
    }
}

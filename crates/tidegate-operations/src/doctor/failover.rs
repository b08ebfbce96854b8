//! Checks whether this Redis is ready for a failover, and, in a cluster, for slots that are moved.

use std::collections::HashMap;

use fred::{
    interfaces::{ClientLike, StreamsInterface},
    prelude::FredResult,
    types::{ClusterHash, CustomCommand},
};
use tidegate_compare::text::counted;
use tidegate_orders::{
    RedisStore, VoucherId,
    scripts::{Confirmation, ConfirmedIn},
};

use super::server_settings::{config_get, info as info_of, value};
use crate::{SystemSettings, connect, finding::Findings};

/// The largest key that MIGRATE can move without a failover. MIGRATE blocks a node while it moves a key: 2.6 s for a
/// journal of a million orders. A tenth of that causes no failover.
const MOST_MIGRATED: u64 = 100_000;
/// The first Redis version with WAITAOF; every Valkey has it.
const KNOWS_WAITAOF: (u64, u64) = (7, 2);
/// The first Valkey version that moves whole slots, whatever their size.
const MOVES_SLOTS_WHOLE: (u64, u64) = (9, 0);
const SEE: &str = "see docs/partitions.md";
/// The effect of `min-replicas-to-write` if fewer replicas are attached than it asks for.
const REFUSES: &str = "this Redis master refuses new orders, locks and writes of workers";
const COSTS: &str = "a promoted replica has no replica of its own, so it refuses new orders and locks until the old master is back";
const CHOICE: &str =
    "With two replicas for each master, a promoted replica refuses nothing: see docs/failover.md";

/// Checks the settings of a master, so that a failover affects only its own partitions and loses little.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    info: &HashMap<String, String>,
) {
    let is_cluster = value(info, "cluster_enabled") == "1";
    match (is_cluster, settings.redis.master.is_some()) {
        (true, true) => check_cluster(findings, redis, info).await,
        (true, false) => findings.error(
            "the Redis server is a node of a Redis Cluster, but redis.url names it as a single server",
            "use a URL that begins with redis-cluster://, and set stream.partitions: see docs/partitions.md",
        ),
        (false, _) => {}
    }
    let replicas = value(info, "connected_slaves");
    if let Some(confirmation) = settings.confirmation {
        check_confirmation(findings, confirmation, info);
    }
    check_replicas(findings, redis, replicas.parse().unwrap_or(0)).await;
}

/// Checks whether admissions can be confirmed.
fn check_confirmation(findings: &mut Findings, wanted: Confirmation, info: &HashMap<String, String>) {
    let attached: u32 = value(info, "connected_slaves").parse().unwrap_or(0);
    let replicas = wanted.replicas.get();
    if replicas > attached {
        findings.warning(
            format!(
                "gate.wait_replicas is {replicas}, but this Redis master has {}: every order stays unconfirmed after {} ms, \
                 and workers write nothing",
                counted(u64::from(attached), "replica"),
                wanted.within.as_millis()
            ),
            "attach replicas, or lower gate.wait_replicas: see docs/failover.md",
        );
    } else {
        findings.ok(format!("gate.wait_replicas is {replicas}, and {attached} attached"));
    }
    let is_old = value(info, "valkey_version").is_empty()
        && connect::version(value(info, "redis_version")) < KNOWS_WAITAOF;
    if wanted.place == ConfirmedIn::AppendOnlyFile && is_old {
        findings.error(
            "gate.wait_for is file, but this version of Redis has no command WAITAOF: no order is confirmed",
            "upgrade to Redis 7.2 or Valkey, or set gate.wait_for = \"memory\"",
        );
    }
}

async fn check_cluster(findings: &mut Findings, redis: &RedisStore, info: &HashMap<String, String>) {
    match config_get(redis, "cluster-require-full-coverage").await {
        Ok(Some(answer)) if answer == "no" => findings.ok("cluster-require-full-coverage is no"),
        Ok(Some(_)) => findings.error(
            "cluster-require-full-coverage is yes: while one master is down, no partition sells",
            "CONFIG SET cluster-require-full-coverage no on every node, and add this setting to the configuration of every node",
        ),
        Ok(None) | Err(_) => findings.warning(
            "Failed to read the Redis setting cluster-require-full-coverage",
            "check manually that the setting is `no` on every node: with `yes`, one master that is down stops all partitions",
        ),
    }
    if matches!(value(info, "connected_slaves"), "" | "0") {
        findings.warning(
            "this Redis master has no replica: while this master is down, its partitions neither sell nor write",
            "add a replica: redis-cli --cluster add-node ... --cluster-slave",
        );
    }
    match own_line(redis).await {
        Ok(Some(line)) if line.contains('[') => findings.warning(
            "a slot of this Redis master is being moved to or from another node",
            "complete the move: redis-cli --cluster check, then redis-cli --cluster fix; until then, some commands wait",
        ),
        Ok(_) => {}
        Err(error) => findings.warning(
            format!("Failed to run the Redis command CLUSTER NODES: {}", error.details()),
            "allow Tidegate's Redis user CLUSTER NODES",
        ),
    }
}

/// Returns the node's own line in CLUSTER NODES.
async fn own_line(redis: &RedisStore) -> FredResult<Option<String>> {
    let command = CustomCommand::new_static("CLUSTER", ClusterHash::Random, false);
    let nodes: String = redis.pool().next().custom(command, vec!["NODES"]).await?;
    Ok(nodes.lines().find(|line| line.contains("myself")).map(str::to_owned))
}

/// Checks what a master does if it is cut off from its replicas.
async fn check_replicas(findings: &mut Findings, redis: &RedisStore, attached: u64) {
    let Ok(Some(least)) = config_get(redis, "min-replicas-to-write").await else { return };
    let least: u64 = least.parse().unwrap_or(0);
    let replicas = counted(attached, "replica");
    match (attached, least) {
        (0, 0) => {}
        (_, 0) => findings.warning(
            format!(
                "min-replicas-to-write is 0: if this master is cut off from its {replicas}, it keeps admitting orders, and a \
                 failover loses them"
            ),
            match attached {
                1 => format!(
                    "choose 0 or 1: with 1, a master that is cut off stops admitting orders after min-replicas-max-lag seconds. \
                     But {COSTS}. {CHOICE}"
                ),
                _ => "CONFIG SET min-replicas-to-write 1, and add this setting to the server's configuration: see docs/failover.md"
                    .to_owned(),
            },
        ),
        (attached, least) if attached < least => findings.error(
            format!("min-replicas-to-write is {least}, but the master has {replicas}: this master refuses all writes"),
            "start the replicas, or CONFIG SET min-replicas-to-write 0 until the replicas run again: see \
             docs/runbook/redis-is-down.md#a-node-of-a-redis-cluster-is-dead",
        ),
        (attached, least) if attached == least => findings.ok(format!(
            "min-replicas-to-write is {least}, with {replicas} attached; if one replica is lost, {REFUSES}"
        )),
        _ => findings.ok(format!("min-replicas-to-write is {least}, and {replicas} attached")),
    }
}

/// Reports the keys of a partition that are too large to be moved while it sells. `journal` is the largest journal of
/// the vouchers that were read, in entries.
pub(super) async fn check_sizes(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    journal: Option<(VoucherId, u64)>,
) {
    if settings.redis.master.is_none() {
        return;
    }
    let Ok(info) = info_of(redis).await else { return };
    let valkey = value(&info, "valkey_version");
    if !valkey.is_empty() && connect::version(valkey) >= MOVES_SLOTS_WHOLE {
        findings.ok("the server moves whole slots (CLUSTER MIGRATESLOTS), so no key is too large");
        return;
    }
    let stream: u64 = redis.pool().xlen(settings.stream.name.as_str()).await.unwrap_or(0);
    let journal = journal.map(|(voucher, entries)| (format!("the journal of voucher {voucher}"), entries));
    let all = [(format!("the stream {}", settings.stream.name), stream)].into_iter().chain(journal);
    let large: Vec<String> = all
        .filter(|(_, entries)| *entries > MOST_MIGRATED)
        .map(|(name, entries)| format!("{name} ({})", counted(entries, "entry")))
        .collect();
    if large.is_empty() {
        findings.ok(format!(
            "every checked key of this partition is small enough for MIGRATE (at most {MOST_MIGRATED} entries)"
        ));
    } else {
        findings.warning(
            format!("MIGRATE would block the Redis node, because these keys are too large: {}", large.join(", ")),
            format!("before you move the slot of a large key, trim streams and shrink journals, or wait for a quiet hour; {SEE}"),
        );
    }
}

//! Settings that were removed, with the value that Tidegate uses instead, and settings that were renamed.

/// Describes the name of a key that each fleet has separately.
macro_rules! of_fleet {
    ($key:literal) => {
        concat!(
            $key,
            " after redis.prefix and, if stream.name is not stream.orders, after stream.name and a colon \
             (docs/configuration.md)"
        )
    };
}

/// The removed settings, each with the value that Tidegate always uses instead.
const REMOVED: [(&str, &str); 24] = [
    ("redis.connections", "2"),
    ("redis.connect_timeout_ms", "redis.command_timeout_ms, but at most 5000"),
    ("mysql.connections", "one more than the lanes of all partitions"),
    ("mysql.lock_wait_timeout_s", "1"),
    ("keys.limits", "seckill:limits:<owner> after redis.prefix (docs/configuration.md)"),
    ("keys.uses", "seckill:uses:<owner> after redis.prefix (docs/configuration.md)"),
    ("keys.idempotency", "seckill:idempotency:<voucher> after redis.prefix (docs/configuration.md)"),
    ("keys.heartbeat", of_fleet!("tidegate:worker:<name>")),
    ("keys.log", of_fleet!("tidegate:log")),
    ("keys.pause", of_fleet!("tidegate:pause")),
    ("keys.mark", of_fleet!("tidegate:mark")),
    ("keys.sweeper", of_fleet!("tidegate:sweeper")),
    ("keys.reconciler", of_fleet!("tidegate:reconciler")),
    ("keys.reconciled", of_fleet!("tidegate:reconciled")),
    ("keys.partitions", "tidegate:partitions after redis.prefix (docs/configuration.md)"),
    ("worker.batch_bytes", "3145728"),
    ("worker.set_aside_max", "500000"),
    ("worker.lock_retry_ms", "100"),
    ("worker.retire_idle_ms", "3600000, or twice worker.claim_idle_ms if that is more"),
    ("worker.trim_every_ms", "twelve times worker.claim_every_ms"),
    ("worker.backoff_min_ms", "50"),
    ("worker.report_every_ms", "10000"),
    ("operator.log_lines", "10000"),
    ("operator.requeue_limit", "3"),
];

/// The renamed settings, each with its present name.
const RENAMED: [(&str, &str); 2] =
    [("reconcile.fold_after_s", "reconcile.compact_after_s"), ("results.announce", "results.publish")];

/// The removed settings with a secret in plain text.
const SECRETS: [&str; 2] = ["admin.token", "gate.token"];

/// The keys of all removed and renamed settings.
pub fn keys() -> impl Iterator<Item = &'static str> {
    REMOVED.iter().chain(&RENAMED).map(|(key, _)| *key).chain(SECRETS)
}

/// Whether the section had settings that were removed or renamed.
pub fn is_section(section: &str) -> bool {
    keys().any(|key| key.split_once('.').is_some_and(|(of, _)| of == section))
}

/// The message about using a removed or renamed setting. None: the setting was neither removed nor renamed.
pub fn of_key(key: &str) -> Option<String> {
    if let Some((_, name)) = RENAMED.iter().find(|(renamed, _)| *renamed == key) {
        return Some(format!("{key} was renamed: write {name} instead, with the same value"));
    }
    if SECRETS.contains(&key) {
        return Some(format!(
            "{key} is no setting any more: add the token to the list [[tokens]] or to TIDEGATE_TOKENS, with the output \
             of `printf %s TOKEN | sha256sum` instead of the token (docs/http-gate.md#access)"
        ));
    }
    let (_, now) = REMOVED.iter().find(|(removed, _)| *removed == key)?;
    Some(format!("{key} is no setting any more: remove it. Its value is always {now}"))
}

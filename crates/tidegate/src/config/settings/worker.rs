//! The section `[worker]`, and the rules between its timeouts.

use std::time::Duration;

use tidegate_operations::{FleetTiming, MySqlSettings};
use tidegate_orders::LockLayout;
use tidegate_stream::LaneSettings;
use tidegate_worker::WorkerSettings;

use super::HOUR_MS;
use crate::config::reader::SettingsReader;

const REPORT_EVERY: Duration = Duration::from_secs(10);
/// The time after which a dead consumer that holds nothing is removed, so that pod names do not pile up.
const RETIRE_IDLE: Duration = Duration::from_secs(3600);

/// Reads the settings of a worker.
pub(super) fn read(reader: &mut SettingsReader<'_>) -> WorkerSettings {
    let lane = LaneSettings {
        batch: reader.number("worker.batch", 1..=5_000),
        entry_max_bytes: reader.number("worker.entry_max_bytes", 4_096..=512 << 20),
        block: reader.millis("worker.block_ms", 10..=10_000),
        claim_idle: reader.millis("worker.claim_idle_ms", 100..=24 * HOUR_MS),
        claim_every: reader.millis("worker.claim_every_ms", 10..=HOUR_MS),
        backoff_max: reader.millis("worker.backoff_max_ms", 50..=10 * 60_000),
        ..LaneSettings::default()
    };
    let (claim_idle, claim_every) = (lane.claim_idle, lane.claim_every);
    let worker = WorkerSettings {
        name: worker_name(reader),
        lanes: reader.number("worker.lanes", 1..=64),
        lane,
        // This must be longer than `LaneSettings::retry`, or a released lock is noticed too late.
        lock_lease: reader.millis("worker.lock_lease_ms", 200..=HOUR_MS),
        // The entries of a dead consumer are rescued first, then the consumer is removed.
        retire_idle: RETIRE_IDLE.max(2 * claim_idle),
        prune_every: 12 * claim_every,
        heartbeat_ttl: reader.millis("worker.heartbeat_ttl_ms", 300..=HOUR_MS),
        stop_deadline: reader.millis("worker.stop_deadline_ms", 100..=HOUR_MS),
        report_every: REPORT_EVERY,
        stuck_after: reader.millis("admin.stuck_after_ms", 1_000..=24 * HOUR_MS),
    };
    worker_rules(reader, &worker);
    worker
}

fn worker_rules(reader: &mut SettingsReader<'_>, worker: &WorkerSettings) {
    reader.rule(
        worker.lane.claim_idle > worker.lock_lease,
        "worker.claim_idle_ms",
        "worker.lock_lease_ms",
        "must be above worker.lock_lease_ms: otherwise workers take over entries whose users are still locked",
    );
    reader.rule(
        worker.stop_deadline > worker.lane.block,
        "worker.stop_deadline_ms",
        "worker.block_ms",
        "must be above worker.block_ms: a lane (loop) may be waiting in a read when the signal comes",
    );
}

/// Checks that a lane with a normal wait is not reported as stuck.
pub(super) fn stuck_rules(reader: &mut SettingsReader<'_>, worker: &WorkerSettings, mysql: &MySqlSettings) {
    for (shorter, key) in [
        (mysql.statement_timeout, "mysql.statement_timeout_ms"),
        (worker.lane.block, "worker.block_ms"),
        (worker.lane.backoff_max, "worker.backoff_max_ms"),
    ] {
        let why = format!("must be above {key}: otherwise a worker that waits normally seems stuck");
        reader.rule(shorter < worker.stuck_after, "admin.stuck_after_ms", key, why);
    }
}

fn worker_name(reader: &mut SettingsReader<'_>) -> String {
    let name = match reader.text("worker.name") {
        name if name.is_empty() => gethostname::gethostname().to_string_lossy().into_owned(),
        name => name,
    };
    if name.is_empty() || name.len() > 200 || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        reader.wrong(
            "worker.name",
            "must be 1 to 200 bytes without spaces (if empty, this applies to the host name)",
        );
    }
    name
}

/// The timing of the workers that operators' commands must know.
pub(super) fn fleet(reader: &mut SettingsReader<'_>, worker: &WorkerSettings) -> FleetTiming {
    let lane = &worker.lane;
    FleetTiming {
        entry_max_bytes: lane.entry_max_bytes,
        batch: lane.batch,
        block: lane.block,
        lock_lease: worker.lock_lease,
        lock_layout: reader.choice("lock.layout", &LockLayout::ALL.map(|layout| (layout.word(), layout))),
        lock_retry: lane.retry.first,
        claim_idle: lane.claim_idle,
        claim_every: lane.claim_every,
        backoff_max: lane.backoff_max,
    }
}

//! The check of the workers that will write the orders of a sale.

use std::time::{Duration, Instant};

use tidegate_compare::text::{counted, error_chain, span};
use tidegate_orders::RedisStore;
use tidegate_stream::ReadRate;
use tokio::time::sleep;

use crate::{
    SystemSettings,
    consumers::Consumers,
    doctor::redis_checks::check_pause,
    finding::Findings,
    order_progress::seconds_for,
    status::{no_worker, read_stream},
};

/// The time for which the rate of the workers is measured.
const MEASURED_FOR: Duration = Duration::from_secs(1);

/// The rate at which the workers read entries.
#[derive(Clone, Copy, Debug)]
struct Measured {
    per_s: f64,
    /// Whether the workers had read all entries, so that they could be faster.
    is_waiting: bool,
}

/// Reports whether workers are alive, and how long they need to write this many units.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    (units, busy_after): (u64, Option<Duration>),
) {
    if let Err(error) = check_workers(settings, findings, redis).await {
        findings.not_read(
            format!("Failed to read whether workers are alive: {}", error_chain(&error)),
            "run tidegate probe readyz on the machine of each worker",
        );
    }
    check_pause(findings, redis).await;
    match measure(redis).await {
        Ok(measured) => report_rate(findings, units, measured, busy_after),
        Err(error) => findings.not_read(
            format!("Failed to measure the rate of the workers: {}", error_chain(&error)),
            "run tidegate doctor, which checks the stream",
        ),
    }
}

async fn check_workers(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
) -> anyhow::Result<()> {
    let stream = read_stream(redis, settings).await?;
    if no_worker::is_any_alive_soon(redis, &stream, settings.mysql.statement_timeout).await? {
        let processes = Consumers { all: stream.consumers }.processes().len();
        let alive = if processes > 1 { "workers are alive" } else { "worker is alive" };
        findings.ok(format!("{} {alive}", processes.max(1)));
    } else {
        findings.error("no worker is alive: no order of the sale would be written", no_worker::ADVICE);
    }
    for wrong in stream.wrong_keys {
        findings.error(wrong, "run tidegate doctor, which says what to do");
    }
    Ok(())
}

/// Measures the rate; None: the workers read nothing meanwhile, or Redis does not count entries.
async fn measure(redis: &RedisStore) -> anyhow::Result<Option<Measured>> {
    let (mut rate, mut is_waiting) = (ReadRate::default(), false);
    for pause in [Duration::ZERO, MEASURED_FOR] {
        sleep(pause).await;
        let backlog = redis.inspector().group().backlog().await?.unwrap_or_default();
        rate.note(Instant::now(), &backlog);
        is_waiting = backlog.oldest_undelivered.is_none();
    }
    let per_s = rate.rate().filter(|per_s| *per_s > 0.0);
    Ok(per_s.map(|per_s| Measured { per_s, is_waiting }))
}

fn report_rate(
    findings: &mut Findings,
    units: u64,
    measured: Option<Measured>,
    busy_after: Option<Duration>,
) {
    let units_text = counted(units, "unit");
    let needed = measured.and_then(|it| seconds_for(units.saturating_sub(1), it.per_s));
    let Some((needed, Measured { per_s, is_waiting })) = needed.map(Duration::from_secs_f64).zip(measured)
    else {
        let busy = busy_after.map_or_else(String::new, |_| {
            ", and whether orders could wait longer than gate.busy_after_ms".to_owned()
        });
        return findings.not_read(
            format!(
                "the time that workers need to write {units_text} is unknown{busy}: they read no entries now, or \
                 this Redis is older than 7.0 and does not count them"
            ),
            "compare with an earlier sale, or measure your servers: docs/capacity.md",
        );
    };
    let needed_text = span(needed);
    let rate = format!(
        "workers read {per_s:.1} entries a second now: at this rate, {units_text} take {needed_text}"
    );
    match busy_after.map(|limit| (limit, span(limit))) {
        None => findings.ok(rate),
        Some((limit, text)) if needed <= limit => {
            findings.ok(format!("{rate}, less than gate.busy_after_ms ({text})"));
        }
        Some((_, text)) if is_waiting => findings.not_read(
            format!(
                "{rate}. They could read more, so it is unknown whether orders could wait longer than \
                 gate.busy_after_ms ({text})"
            ),
            "compare with an earlier sale; see docs/busy.md",
        ),
        Some((_, text)) => findings.warning(
            format!(
                "{rate}: if all buyers come at once, orders wait longer than gate.busy_after_ms ({text})"
            ),
            "start more workers, or expect the answer `busy`; see docs/busy.md",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Finding, Level};

    fn told(measured: Option<(f64, bool)>, busy_after_s: Option<u64>) -> Finding {
        let mut findings = Findings::of("redis");
        let measured = measured.map(|(per_s, is_waiting)| Measured { per_s, is_waiting });
        report_rate(&mut findings, 1_000, measured, busy_after_s.map(Duration::from_secs));
        findings.into_vec().pop().unwrap()
    }

    #[test]
    fn the_time_to_write_the_stock_is_measured_or_unknown_and_compared_with_the_limit_of_busy() {
        let (busy, idle) = (Some((10.0, false)), Some((10.0, true)));
        for (measured, limit_s, level, text) in [
            (None, None, Level::NotRead, "to write 1000 units is unknown: they"),
            (None, Some(5), Level::NotRead, "unknown, and whether orders could wait longer"),
            (busy, None, Level::Ok, "at this rate, 1000 units take 1 min 40 s"),
            (busy, Some(100), Level::Ok, "1 min 40 s, less than gate.busy_after_ms (1 min 40 s)"),
            (busy, Some(5), Level::Warning, "orders wait longer than gate.busy_after_ms (5 s)"),
            (idle, Some(5), Level::NotRead, "They could read more, so it is unknown"),
            (idle, Some(100), Level::Ok, "less than gate.busy_after_ms"),
        ] {
            let found = told(measured, limit_s);
            assert!(found.level == level && found.what.contains(text), "{text}: {found:?}");
        }
    }
}

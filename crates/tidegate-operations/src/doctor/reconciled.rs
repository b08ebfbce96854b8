//! Checks whether both stores agreed at the last comparison.

use std::time::Duration;

use tidegate_compare::{
    reconciled::Reconciled,
    text::{error_chain, size, span},
};
use tidegate_orders::RedisStore;
use tidegate_stream::server_time_ms;

use crate::{SystemSettings, finding::Findings};

/// The number of intervals after which a comparison is late.
const LATE: u32 = 3;

/// Reports the time and the result of the last comparison. If there was none yet, workers will make one.
pub(super) async fn check(settings: &SystemSettings, findings: &mut Findings, redis: &RedisStore) {
    let read = async {
        let found = Reconciled::read(redis).await?;
        anyhow::Ok((found, i64::try_from(server_time_ms(redis.pool()).await?).unwrap_or(i64::MAX)))
    };
    match read.await {
        Ok((Some(found), now_ms)) => {
            report(findings, &found, now_ms, settings.reconcile.every);
            report_removed(findings, &found, now_ms);
        }
        Ok((None, _)) => {}
        Err(error) => findings.warning(
            format!("Failed to read the last comparison of Redis and MySQL: {}", error_chain(&error)),
            format!(
                "allow Tidegate's Redis user GET on {}",
                redis.keys().fleet().reconciled().as_str_lossy()
            ),
        ),
    }
}

/// Reports how much memory was freed by removing the last delisted vouchers.
fn report_removed(findings: &mut Findings, found: &Reconciled, now_ms: i64) {
    for sale in found.removed.iter().rev() {
        let ago = Duration::from_millis((now_ms - sale.at_ms).max(0).unsigned_abs());
        findings.ok(format!(
            "the {} keys of the delisted voucher {} were removed {} ago: this freed about {} of memory",
            sale.keys,
            sale.voucher,
            span(ago),
            size(sale.bytes)
        ));
    }
}

fn report(findings: &mut Findings, found: &Reconciled, now_ms: i64, every: Duration) {
    let minutes = |at_ms: i64| (now_ms - at_ms).max(0) / 60_000;
    let failures = found.failures();
    let clean = found.clean_at_ms.map_or_else(
        || "no comparison has found Redis and MySQL equal yet".to_owned(),
        |at_ms| format!("Redis and MySQL last agreed {} min ago", minutes(at_ms)),
    );
    let last = minutes(found.at_ms);
    if !failures.is_empty() {
        let kinds: Vec<String> =
            failures.iter().map(|(kind, count)| format!("{}: {count}", kind.word())).collect();
        findings.warning(
            format!("{last} min ago Redis and MySQL differed ({}); {clean}", kinds.join(", ")),
            format!(
                "{}run tidegate reconcile to list the orders; see docs/runbook/stores-differ.md",
                found.usual_cause().map_or_else(String::new, |cause| format!("{cause}; "))
            ),
        );
    } else if found.unread > 0 {
        findings.warning(
            format!("{last} min ago the totals of {} vouchers could not be compared", found.unread),
            "run tidegate reconcile to see why; see docs/runbook/stores-differ.md",
        );
    } else {
        findings.ok(format!("{last} min ago Redis and MySQL agreed about every order"));
    }
    let age = Duration::from_millis((now_ms - found.at_ms).max(0).unsigned_abs());
    if !every.is_zero() && age > every * LATE + Duration::from_secs(600) {
        findings.warning(
            format!(
                "workers have not compared Redis and MySQL for {last} min, although reconcile.every_s is {}",
                every.as_secs()
            ),
            "look for `both stores are not compared` in the logs of the workers, and run tidegate reconcile",
        );
    }
}

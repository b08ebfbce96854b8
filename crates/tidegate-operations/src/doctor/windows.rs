//! Checks the windows of sales: whether both stores have the same, and how times without a zone are read.

use sqlx::MySqlPool;
use tidegate_compare::{
    text::error_chain,
    windows::{WindowMismatch, mismatches},
};
use tidegate_orders::{
    RecordsError, RedisStore, VoucherId,
    records::vouchers::{
        latest,
        windows::{TimeWithoutZone, time_without_zone},
    },
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{SystemSettings, finding::Findings};

/// The vouchers whose windows are compared, the highest ids first.
const MOST_VOUCHERS: u32 = 1_000;
/// The vouchers that are named one by one.
const NAMED: usize = 5;

/// Compares the windows of sales in both stores.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: &MySqlPool,
) {
    let compared = async {
        let rows = latest(mysql, settings.partition(), MOST_VOUCHERS).await?;
        let vouchers: Vec<VoucherId> = rows.iter().map(|row| row.voucher).collect();
        anyhow::Ok(mismatches((redis, mysql), &vouchers, &CancellationToken::new()).await?)
    };
    let found = match compared.await {
        Ok(found) => found,
        // The check of the tables reports this.
        Err(error) if matches!(error.downcast_ref(), Some(RecordsError::NotMigrated(_))) => return,
        Err(error) => {
            return findings.not_read(
                format!("Failed to compare the windows of sales: {}", error_chain(&error)),
                "run tidegate voucher show --voucher ID for each voucher on sale",
            );
        }
    };
    found.iter().take(NAMED).for_each(|mismatch| report(findings, mismatch));
    let more = found.len().saturating_sub(NAMED);
    if more > 0 {
        findings.error(
            format!("more vouchers with the same problem, not listed here: {more}"),
            "run tidegate reconcile to list all vouchers",
        );
    }
}

/// Reports a voucher whose windows differ.
pub(super) fn report(findings: &mut Findings, mismatch: &WindowMismatch) {
    let voucher = mismatch.voucher;
    findings.error(
        format!("voucher {voucher} does not sell at the times in MySQL: {}", mismatch.sentence()),
        format!(
            "set both windows: tidegate voucher schedule --voucher {voucher} --begin TIME --end TIME; see \
             docs/runbook/stores-differ.md"
        ),
    );
}

/// Shows how times without a time zone are read, if the table of vouchers has such times. Without a voucher, shows the
/// times of the voucher with the highest id.
pub(super) async fn check_time_zone(
    settings: &SystemSettings,
    findings: &mut Findings,
    mysql: &MySqlPool,
    voucher: Option<VoucherId>,
) {
    let read = time_without_zone(mysql, settings.partition(), voucher);
    let read = timeout(settings.mysql.statement_timeout, read).await;
    let Ok(Ok(Some(time))) = read else { return };
    let TimeWithoutZone { voucher, stored, by_setting, by_server } = time;
    let zone = &settings.mysql.time_zone;
    let as_set = format!(
        "voucher {voucher} begins at {stored}, which is read as {by_setting} (mysql.time_zone: {zone})"
    );
    let other = match by_server == by_setting {
        true => String::new(),
        false => format!(". In the time zone of the MySQL server, it would be {by_server}"),
    };
    findings.ok(format!("{as_set}{other}"));
}

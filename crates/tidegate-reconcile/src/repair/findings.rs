//! The comparison before a repair, which keeps the differences.

use std::collections::BTreeMap;

use tidegate_compare::{CompareError, Comparison, ComparisonReport, Difference, Job, VoucherTotals};
use tidegate_orders::VoucherId;

use super::plan::{RepairPlan, VoucherFindings};
use crate::stock::StockTotals;

/// The largest number of differences that one repair handles. Each difference takes about 300 bytes of memory.
pub const MOST_REPAIRED: u64 = 300_000;

/// Compares Redis and MySQL, and plans the repair of the first `most` differences. The plan also contains the number of
/// all further differences.
///
/// # Errors
/// Fails as [`Comparison::run`] does.
pub async fn plan_repair(
    comparison: &Comparison,
    most: u64,
    job: &Job,
) -> Result<(ComparisonReport, RepairPlan), CompareError> {
    let mut guards = comparison.guards().await?;
    let (mut differences, mut found) = (BTreeMap::<VoucherId, Vec<Difference>>::new(), 0);
    let report = comparison
        // Differences that are no failure, such as allowed changes by other programs, need no repair.
        .run(job, |difference| {
            if difference.kind.is_failure() {
                found += 1;
                if found <= most {
                    differences.entry(difference.voucher).or_default().push(difference.clone());
                }
            }
        })
        .await?;
    let findings = report.vouchers.iter().filter_map(|look| {
        let voucher = look.totals.voucher;
        let differences = differences.remove(&voucher)?;
        // A voucher that came on sale during the comparison is left to the next repair.
        let guard = guards.remove(&voucher)?;
        let (totals, is_partial) = (stock_totals(&look.totals), comparison.is_partial());
        Some(VoucherFindings { voucher, guard, totals, is_partial, differences })
    });
    let plan = RepairPlan::new(findings.collect(), found.saturating_sub(most));
    Ok((report, plan))
}

/// The totals of a voucher's stock. None: the sum of the journal is unknown, there is no stock, or MySQL does not know
/// the voucher.
fn stock_totals(totals: &VoucherTotals) -> Option<StockTotals> {
    // Without a stock there is none to move, and unreadable notes cannot be added up.
    totals.redis.stock.filter(|_| totals.redis.unreadable_notes == 0)?;
    Some(StockTotals {
        redis_drift: totals.redis.drift.filter(|_| totals.redis.is_complete && !totals.redis.is_unsure)?,
        loaded: totals.redis.loaded?,
        mysql_stock: totals.mysql.stock?,
        initial: totals.initial_of_journal(),
        live_units: totals.mysql.live_units - totals.mysql.earlier_units,
        is_change_open: totals.is_change_open,
    })
}

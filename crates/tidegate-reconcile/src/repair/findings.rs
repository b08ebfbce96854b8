//! A comparison whose differences are kept, for the repair that follows it.

use std::collections::BTreeMap;

use tidegate_compare::{CompareError, Difference, Job, ComparisonReport, Comparison, VoucherTotals};
use tidegate_orders::VoucherId;

use super::plan::{RepairPlan, VoucherFindings};
use crate::stock::StockTotals;

/// Differences that one repair takes, at most: about 300 bytes of memory each.
pub const MOST_REPAIRED: u64 = 300_000;

/// Looks, and plans what repairs what is different. Of very many differences, the first `most` are planned, and the plan says how many
/// there are beyond them.
///
/// # Errors
/// As [`Comparison::run`].
pub async fn plan_repair(
    comparison: &Comparison,
    most: u64,
    job: &Job,
) -> Result<(ComparisonReport, RepairPlan), CompareError> {
    let mut guards = comparison.guards().await?;
    let (mut differences, mut found) = (BTreeMap::<VoucherId, Vec<Difference>>::new(), 0);
    let report = comparison
        // What others are free to do needs no repair.
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
        // One that came on sale while the comparison began is left to the next.
        let guard = guards.remove(&voucher)?;
        let (totals, is_partial) = (stock_totals(&look.totals), comparison.is_partial());
        Some(VoucherFindings { voucher, guard, totals, is_partial, differences })
    });
    let plan = RepairPlan::new(findings.collect(), found.saturating_sub(most));
    Ok((report, plan))
}

/// None: the sum of the journal could not be told, there is none, or MySQL does not know the voucher.
fn stock_totals(totals: &VoucherTotals) -> Option<StockTotals> {
    // Where there is no stock, there is none to move; and what cannot be read cannot be added up.
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

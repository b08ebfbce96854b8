//! The notes in MySQL about complete journals, for a Redis that has lost this knowledge.

use tidegate_compare::{CompareError, ComparedStores, ComparisonReport, redis_side::CompletedBy};
use tidegate_orders::{VoucherId, records::vouchers};

/// Notes in MySQL which journals are complete, by a comparison of these stores. Vouchers with a note are skipped. If
/// the sum of a journal does not match the stock, programs that keep no journal may sell the voucher. A journal that a
/// rebuild called complete is skipped as well, because the rebuild could not know that.
///
/// # Errors
/// Fails if a store does not answer.
pub async fn note_journals(stores: &ComparedStores, report: &ComparisonReport) -> Result<(), CompareError> {
    let totals = report.vouchers.iter().map(|look| &look.totals);
    let hold = totals.filter(|totals| totals.redis.is_complete && totals.redis.drift == Some(0));
    let hold: Vec<VoucherId> = hold.map(|totals| totals.voucher).collect();
    let mut complete = Vec::new();
    for voucher in vouchers::without_journal_note(&stores.mysql, &hold).await? {
        if stores.redis().completed_by(voucher).await? == CompletedBy::Load {
            complete.push(voucher);
        }
    }
    Ok(vouchers::note_complete_journals(&stores.mysql, &complete).await?)
}

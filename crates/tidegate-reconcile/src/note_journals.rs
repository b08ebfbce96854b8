//! The records in MySQL about complete journals, which a rebuild needs if Redis has lost its data.

use tidegate_compare::{CompareError, ComparedStores, ComparisonReport, redis_side::CompletedBy};
use tidegate_orders::{VoucherId, records::vouchers};

/// Stores in MySQL which journals (Redis hashes of orders) are complete, as the given comparison shows. Skips vouchers
/// with a stored value. Skips journals whose sum does not match the stock, and journals that a rebuild made complete,
/// because these vouchers may be sold by programs that write no journal.
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

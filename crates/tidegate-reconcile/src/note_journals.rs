//! What MySQL is told of journals, for a Redis that will not know it any more.

use tidegate_compare::{CompareError, ComparedStores, ComparisonReport, redis_side::CompletedBy};
use tidegate_orders::{VoucherId, records::vouchers};

/// Notes in MySQL which journals are complete by a look at these stores, where it says nothing of them yet. A sum that does not hold
/// may be that of programs that keep no journal. A rebuild called journals complete without knowing that.
///
/// # Errors
/// When a store does not answer.
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

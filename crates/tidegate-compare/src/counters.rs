//! The check of limit counters as a part of a comparison.

use std::collections::BTreeSet;

use crate::{
    CompareError, Job, Pace,
    difference::{Difference, DifferenceCause, RepairMethod},
    limit_counters::{CounterDifference, LimitCounterCheck, NotCompared},
    reconciled::DifferenceKind,
    stores::ComparedStores,
    totals::VoucherTotals,
};
use tidegate_orders::VoucherId;

/// Finds wrong counters, and counters that were not compared. A key that cannot be read is noted in the totals of its
/// voucher.
pub(crate) async fn counter_differences(
    stores: &ComparedStores,
    vouchers: &[VoucherId],
    totals: &mut [VoucherTotals],
    (pace, job): (Pace, &Job),
) -> Result<(Vec<Difference>, BTreeSet<NotCompared>), CompareError> {
    let report =
        LimitCounterCheck::new(&stores.redis, &stores.mysql, pace, &job.stop).compare(vouchers).await?;
    for (voucher, said) in report.unreadable {
        for its in totals.iter_mut().filter(|its| its.voucher == voucher) {
            its.redis.unreadable.get_or_insert_with(|| said.clone());
        }
    }
    Ok((report.differences.into_iter().map(difference).collect(), report.not_compared))
}

fn difference(found: CounterDifference) -> Difference {
    let CounterDifference { kind, voucher, user, units, counter } = found;
    let (cause, repair) = match kind {
        DifferenceKind::LimitPassed => (DifferenceCause::RedisWentBack, RepairMethod::ByHand),
        _ => (DifferenceCause::Unknown, RepairMethod::SetCounter),
    };
    Difference {
        kind,
        voucher,
        order: None,
        user,
        units,
        cause,
        repair,
        counter: Some(counter),
        status: None,
        entry: None,
        note: None,
    }
}

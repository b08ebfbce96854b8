//! The repair of limit counters and of users' slots, which are set to match the orders.

use anyhow::Context;
use tidegate_compare::{
    CompareError, Job, Pace,
    limit_counters::{CounterDifference, CountersSet, LimitCounterCheck},
};
use tidegate_operations::change::End;
use tidegate_orders::VoucherId;

use super::{
    plan::{RepairPlan, VoucherRepairPlan},
    report::{RepairReport, Returned, ReturnedReason},
    run::Repair,
};

impl Repair<'_> {
    /// Corrects the counters of limits. This follows the repair of orders, which changes the uses, so both stores are
    /// compared again.
    pub(super) async fn set_counters(
        &self,
        plan: &RepairPlan,
        report: &mut RepairReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let is_counted = |plan: &&VoucherRepairPlan| plan.repaired.counters > 0 || plan.repaired.admitted > 0;
        let vouchers: Vec<VoucherId> =
            plan.vouchers.iter().filter(is_counted).map(|plan| plan.voucher).collect();
        let check = LimitCounterCheck::new(&self.redis, &self.mysql, Pace::Full, &job.stop);
        let found = match check.compare(&vouchers).await {
            Err(CompareError::Stopped) => return Ok(End::Stopped),
            found => found?,
        };
        report.counters_not_compared.extend(found.not_compared);
        let mut done = CountersSet::default();
        let ended = check.set(found.differences, &mut done).await;
        for ((owner, voucher), fields) in &done.fields {
            let before = report.done;
            report.done.redis.counters += fields.len() as u64;
            self.log(*voucher, &format!("counters of {owner}"), report.done.since(before), job).await;
        }
        report.counters_not_compared.append(&mut done.not_compared);
        for CounterDifference { voucher, user, counter, .. } in done.left {
            let why = ReturnedReason::CounterMoved(counter.field);
            report.return_to_look(Returned { voucher, order: None, user, why });
        }
        match ended {
            Err(CompareError::Stopped) => Ok(End::Stopped),
            ended => ended.context("Failed to set limit counters").map(|()| End::Whole),
        }
    }
}

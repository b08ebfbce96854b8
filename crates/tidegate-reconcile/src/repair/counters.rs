//! Sets counters of limits, and slots of users, to what orders hold.

use std::collections::BTreeMap;

use anyhow::Context;
use tidegate_operations::{
    change::{End, Job},
    limit_books::{CounterDifference, LimitBooks, LimitBooksError},
    pace::Pace,
    reconciled::DifferenceKind,
};
use tidegate_orders::{LimitOwner, VoucherId, gate::SetUse};

use super::{
    plan::{RepairPlan, VoucherRepairPlan},
    report::{RepairReport, Returned, ReturnedWhy},
    run::Repair,
};

impl Repair<'_> {
    /// After the orders were mended, which moves what they hold: so both sides are compared again. A counter is set only while it is
    /// what was read.
    pub(super) async fn set_counters(
        &self,
        plan: &RepairPlan,
        report: &mut RepairReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let is_counted = |plan: &&VoucherRepairPlan| plan.mended.counters > 0 || plan.mended.admitted > 0;
        let vouchers: Vec<VoucherId> =
            plan.vouchers.iter().filter(is_counted).map(|plan| plan.voucher).collect();
        let books = LimitBooks::new(&self.gate, &self.mysql, Pace::Full, &job.stop);
        let found = match books.compare(&vouchers).await {
            Err(LimitBooksError::Stopped) => return Ok(End::Stopped),
            found => found?.differences,
        };
        let mut by_owner: BTreeMap<(LimitOwner, VoucherId), Vec<CounterDifference>> = BTreeMap::new();
        for it in found.into_iter().filter(|it| it.kind != DifferenceKind::LimitPassed) {
            by_owner.entry((it.counter.owner, it.voucher)).or_default().push(it);
        }
        for ((owner, voucher), counters) in by_owner {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let before = report.done;
            self.set_counters_of(owner, counters, report).await?;
            self.log(voucher, &format!("counters of {owner}"), report.done.since(before), job).await;
        }
        Ok(End::Whole)
    }

    async fn set_counters_of(
        &self,
        owner: LimitOwner,
        counters: Vec<CounterDifference>,
        report: &mut RepairReport,
    ) -> anyhow::Result<()> {
        let (exact, moving): (Vec<_>, Vec<_>) = counters.into_iter().partition(|it| it.counter.is_exact);
        let sets: Vec<SetUse> = exact.iter().filter_map(|it| it.counter.set()).collect();
        let are_set = self.gate.set_uses(owner, &sets).await.context("Failed to set what is counted")?;
        let moved = exact.into_iter().zip(are_set).filter_map(|(it, is_set)| {
            report.done.counters += u64::from(is_set);
            (!is_set).then_some(it)
        });
        let left: Vec<CounterDifference> = moved.chain(moving).collect();
        for CounterDifference { voucher, user, counter, .. } in left {
            let why = ReturnedWhy::CounterMoved(counter.field);
            report.return_to_look(Returned { voucher, order: None, user, why });
        }
        Ok(())
    }
}

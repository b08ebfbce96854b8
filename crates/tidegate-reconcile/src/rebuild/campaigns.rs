//! What campaigns count, before the first of their regions opens.

use std::collections::BTreeSet;

use anyhow::Context;
use tidegate_compare::{CompareError, Job, Pace, limit_counters::LimitCounterCheck};
use tidegate_operations::change::End;
use tidegate_orders::{
    CampaignId, VoucherId,
    gate::{GateError, HeldLimits},
    limit_rows,
};

use super::{Rebuild, RebuildPlan, UnwrittenOrders};

impl Rebuild {
    /// Raises the counters of the campaigns of these vouchers to what the orders of all their regions hold, also of those that are not
    /// rebuilt. Each region by itself would raise them to its own share only, and the first buyers of a region that opens would pass.
    pub(super) async fn recount_campaigns(
        &self,
        plan: &RebuildPlan,
        backlog: &UnwrittenOrders,
        job: &Job,
    ) -> anyhow::Result<End> {
        for campaign in self.campaigns(plan).await.context("Failed to read the campaigns in MySQL")? {
            let Some(held) = self.held_in_common(campaign, backlog, job).await? else {
                return Ok(End::Stopped);
            };
            match self.redis.limits().recount(&held).await {
                // The regions of this campaign find it in their way again, and say so; the others can be rebuilt.
                Err(GateError::Refused(error)) if error.details().contains("WRONGTYPE") => {}
                raised => {
                    raised.with_context(|| {
                        format!("Failed to raise what is counted for campaign {campaign}")
                    })?;
                }
            }
        }
        Ok(End::Whole)
    }

    async fn campaigns(&self, plan: &RebuildPlan) -> anyhow::Result<BTreeSet<CampaignId>> {
        let mut campaigns = BTreeSet::new();
        for planned in plan.vouchers.iter().filter(|planned| !planned.is_delisted) {
            campaigns.extend(limit_rows::campaign_of(&self.mysql, planned.voucher).await?);
        }
        Ok(campaigns)
    }

    /// None: it was stopped.
    async fn held_in_common(
        &self,
        campaign: CampaignId,
        backlog: &UnwrittenOrders,
        job: &Job,
    ) -> anyhow::Result<Option<HeldLimits>> {
        let regions = limit_rows::regions(&self.mysql, campaign).await;
        let regions = regions.context("Failed to read the campaign in MySQL")?.into_iter();
        let with_backlog = |(_, voucher): (String, VoucherId)| (voucher, backlog.orders(voucher));
        let check = LimitCounterCheck::new(&self.redis, &self.mysql, Pace::Full, &job.stop);
        match check.held_in_common(campaign, regions.map(with_backlog).collect()).await {
            Ok(held) => Ok(Some(held)),
            Err(CompareError::Stopped) => Ok(None),
            Err(error) => {
                Err(error).with_context(|| format!("Failed to read the orders of campaign {campaign}"))
            }
        }
    }
}

//! The limit counters of campaigns, which are raised before the first of their regions opens.

use std::collections::BTreeSet;

use anyhow::Context;
use tidegate_compare::{CompareError, Job, Pace, limit_counters::LimitCounterCheck};
use tidegate_operations::change::End;
use tidegate_orders::{
    CampaignId, VoucherId, limit_rows,
    scripts::{LimitUsage, ScriptError},
};

use super::{Rebuild, RebuildPlan, UnwrittenOrders};

impl Rebuild {
    /// Raises the campaign counters of these vouchers to the uses of the orders in all regions, also of regions that
    /// are not rebuilt. Each region alone would raise a counter only to its own share, and its first buyers could
    /// exceed a limit.
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
                // The rebuild of this campaign's regions fails at the same key and reports it; other vouchers can be
                // rebuilt.
                Err(ScriptError::Refused(error)) if error.details().contains("WRONGTYPE") => {}
                raised => {
                    raised.with_context(|| {
                        format!("Failed to raise the limit counters of campaign {campaign}")
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

    /// Reads the uses that all regions of a campaign hold. None: the job was stopped.
    async fn held_in_common(
        &self,
        campaign: CampaignId,
        backlog: &UnwrittenOrders,
        job: &Job,
    ) -> anyhow::Result<Option<LimitUsage>> {
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

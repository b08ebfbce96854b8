//! The limit rules that a rebuild writes to Redis again.

use anyhow::Context;
use tidegate_compare::redis_side::BY_REBUILD;
use tidegate_orders::{
    VoucherId, limit_rows, limits::LimitOwner, records::journal::write, scripts::LimitReply,
};

use super::Rebuild;

impl Rebuild {
    /// Writes the limits of a voucher and its campaign from MySQL to Redis. Returns the note for the journal; None:
    /// the voucher has no limits.
    pub(super) async fn restore_limits(&self, voucher: VoucherId) -> anyhow::Result<Option<String>> {
        const FAILED: &str = "Failed to read the limits in MySQL";
        let rules = limit_rows::text(&self.mysql, LimitOwner::Voucher(voucher)).await.context(FAILED)?;
        let Some(rules) = rules else { return Ok(None) };
        if let Some(campaign) = limit_rows::campaign_of(&self.mysql, voucher).await.context(FAILED)? {
            let common =
                limit_rows::text(&self.mysql, LimitOwner::Campaign(campaign)).await.context(FAILED)?;
            let regions = limit_rows::regions(&self.mysql, campaign).await.context(FAILED)?;
            self.redis
                .limits()
                .show_campaign(campaign, common.as_deref().unwrap_or_default(), &regions)
                .await?;
        }
        let since_ms = match self.redis.limits().show_limits(voucher, Some(&rules), BY_REBUILD).await? {
            LimitReply::Same { since_ms } | LimitReply::Changed { since_ms } => since_ms,
            reply => anyhow::bail!("Redis refused to store the limits of the voucher ({reply:?})"),
        };
        Ok(Some(write::limited(BY_REBUILD, since_ms)))
    }
}

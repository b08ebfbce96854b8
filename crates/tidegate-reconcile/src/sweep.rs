//! The removal of limit counters in ended time windows, so that memory depends only on recent buyers.

use std::collections::BTreeSet;

use tidegate_compare::{CompareError, Pace};
use tidegate_orders::{
    RedisStore, VoucherId,
    limits::{CountedWindows, LimitOwner},
    scripts::ScanPages,
};
use tidegate_stream::server_time_ms;

/// The task that removes limit counters from Redis after their time windows have ended.
#[derive(Debug)]
pub struct UseSweeper {
    redis: RedisStore,
    pace: Pace,
}

impl UseSweeper {
    /// Creates the task that removes old limit counters from the given Redis.
    #[must_use]
    pub fn new(redis: RedisStore, pace: Pace) -> Self {
        Self { redis, pace }
    }

    /// Removes the limit counters of ended time windows, for the given vouchers and their campaigns, and returns the
    /// number of removed counters. A window counts as ended if both the clock of Redis and the clock of this process
    /// say so. You may stop and repeat this call at any time.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn sweep(&self, vouchers: &[VoucherId]) -> Result<u64, CompareError> {
        let now_ms = i64::try_from(server_time_ms(self.redis.pool()).await?).unwrap_or(i64::MAX);
        // If the clock of Redis is ahead, a counter that is removed too early would let a user buy once more.
        let now_ms = now_ms.min(jiff::Timestamp::now().as_millisecond());
        let (mut swept, mut campaigns) = (0, BTreeSet::new());
        for voucher in vouchers {
            let owner = LimitOwner::Voucher(*voucher);
            if let Some(windows) = self.windows(owner).await? {
                campaigns.extend(windows.campaign);
                swept += self.sweep_owner(owner, &windows, now_ms).await?;
            }
        }
        for campaign in campaigns {
            let owner = LimitOwner::Campaign(campaign);
            if let Some(windows) = self.windows(owner).await? {
                swept += self.sweep_owner(owner, &windows, now_ms).await?;
            }
        }
        Ok(swept)
    }

    async fn windows(&self, owner: LimitOwner) -> Result<Option<CountedWindows>, CompareError> {
        let rules = self.redis.limits().read_limits(owner).await?;
        Ok(rules.and_then(|rules| CountedWindows::parse(&rules)))
    }

    async fn sweep_owner(
        &self,
        owner: LimitOwner,
        windows: &CountedWindows,
        now_ms: i64,
    ) -> Result<u64, CompareError> {
        let (mut pages, mut swept) = (ScanPages::of_uses(&self.redis, owner), 0);
        while let Some(mut fields) = self.pace.step(pages.next()).await? {
            fields.retain(|(field, value)| windows.is_over(field, value, now_ms));
            swept += self.redis.limits().sweep_uses(owner, &fields).await?;
        }
        Ok(swept)
    }
}

//! The removal of limit counters in windows that are over, so that memory is bounded by recent buyers.

use std::collections::BTreeSet;

use tidegate_compare::{CompareError, Pace};
use tidegate_orders::{
    RedisStore, VoucherId,
    limits::{CountedWindows, LimitOwner},
    scripts::ScanPages,
};
use tidegate_stream::server_time_ms;

/// The sweeper of limit counters in ended windows.
#[derive(Debug)]
pub struct UseSweeper {
    redis: RedisStore,
    pace: Pace,
}

impl UseSweeper {
    /// Creates a sweeper of this store.
    #[must_use]
    pub fn new(redis: RedisStore, pace: Pace) -> Self {
        Self { redis, pace }
    }

    /// Removes the counters of these vouchers and their campaigns in ended windows. A window has ended if it is over
    /// by the clock of Redis and by the clock of this process. Returns the number of removed counters. It may be
    /// stopped and called again at any time.
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

//! Where both sides are read.

use crate::{CompareError, redis_side::RedisSide};
use std::sync::Arc;

use sqlx::MySqlPool;
use tidegate_orders::{CausalReads, Records, RedisStore};

/// Where both sides are read.
#[derive(Debug)]
pub struct ComparedStores {
    /// Redis.
    pub redis: RedisStore,
    /// MySQL.
    pub mysql: MySqlPool,
    /// Waits for a node of MySQL that lags.
    pub causal_reads: Arc<CausalReads>,
    /// Only some vouchers are looked at: their rows are read by voucher, and no others.
    pub are_chosen: bool,
}

impl ComparedStores {
    /// Redis' side of it.
    #[must_use]
    pub fn redis(&self) -> RedisSide<'_> {
        RedisSide::of(&self.redis)
    }

    /// MySQL's side of it.
    #[must_use]
    pub fn mysql(&self) -> Records<'_> {
        Records::new(&self.mysql, self.redis.partition())
    }

    /// After Redis was read: from here on, MySQL shows whatever came of what Redis said, on whichever node.
    ///
    /// # Errors
    /// When MySQL does not answer, or its node does not catch up.
    pub async fn catch_up(&self) -> Result<(), CompareError> {
        Ok(self.causal_reads.catch_up(&self.mysql).await?)
    }
}

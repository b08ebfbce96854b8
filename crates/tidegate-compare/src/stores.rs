//! The two stores that a comparison reads.

use crate::{CompareError, redis_side::RedisSide};
use std::sync::Arc;

use sqlx::MySqlPool;
use tidegate_orders::{CausalReads, Records, RedisStore};

/// The stores that a comparison reads.
#[derive(Debug)]
pub struct ComparedStores {
    /// The connections to the compared Redis.
    pub redis: RedisStore,
    /// The connections to the compared MySQL.
    pub mysql: MySqlPool,
    /// The wait for a MySQL node that lags.
    pub causal_reads: Arc<CausalReads>,
    /// Whether only some vouchers are compared. Then rows are read by voucher.
    pub are_chosen: bool,
}

impl ComparedStores {
    /// The reader of the orders in Redis.
    #[must_use]
    pub fn redis(&self) -> RedisSide<'_> {
        RedisSide::of(&self.redis)
    }

    /// The reader of the records in MySQL.
    #[must_use]
    pub fn mysql(&self) -> Records<'_> {
        Records::new(&self.mysql, self.redis.partition())
    }

    /// Waits, after a read of Redis, until MySQL shows every effect of the orders that were read, on whichever node.
    ///
    /// # Errors
    /// Fails if MySQL does not answer, or its node does not catch up.
    pub async fn catch_up(&self) -> Result<(), CompareError> {
        Ok(self.causal_reads.catch_up(&self.mysql).await?)
    }
}

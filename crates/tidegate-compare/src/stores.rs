//! The two stores that a comparison reads.

use crate::{CompareError, redis_side::RedisSide};
use std::sync::Arc;

use sqlx::MySqlPool;
use tidegate_orders::{CausalReads, Records, RedisStore};

/// The connections to the Redis and the MySQL that a comparison reads.
#[derive(Debug)]
pub struct ComparedStores {
    /// The connections to the compared Redis.
    pub redis: RedisStore,
    /// The connections to the compared MySQL.
    pub mysql: MySqlPool,
    /// The way to wait for a MySQL node that lags behind its cluster.
    pub causal_reads: Arc<CausalReads>,
    /// Whether the request names vouchers. In this case, the comparison reads rows in MySQL voucher by voucher.
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
        Records::new(&self.mysql, self.redis.keys().partition())
    }

    /// Waits after a read of Redis until the MySQL node shows the outcome of all orders that were read.
    ///
    /// # Errors
    /// Fails if MySQL does not answer, or its node does not catch up.
    pub async fn catch_up(&self) -> Result<(), CompareError> {
        Ok(self.causal_reads.catch_up(&self.mysql).await?)
    }
}

//! Where both sides are read.

use std::sync::Arc;
use tidegate_operations::CompareError;

use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_orders::{CausalReads, Gate, Keys, Records};
use tidegate_stream::StreamInspector;

use crate::redis_side::RedisSide;

/// Where both sides are read.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) redis: Pool,
    pub(crate) mysql: MySqlPool,
    pub(crate) causal_reads: Arc<CausalReads>,
    pub(crate) inspector: StreamInspector,
    pub(crate) keys: Keys,
    pub(crate) gate: Gate,
    /// Only some vouchers are looked at: their rows are read by voucher, and no others.
    pub(crate) are_chosen: bool,
}

impl Stores {
    pub(crate) fn redis(&self) -> RedisSide<'_> {
        let Self { redis: pool, gate, inspector, keys, .. } = self;
        RedisSide { pool, gate, inspector, keys }
    }

    pub(crate) fn mysql(&self) -> Records<'_> {
        Records::new(&self.mysql, self.keys.partition())
    }

    /// After Redis was read: from here on, MySQL shows whatever came of what Redis said, on whichever node.
    pub(crate) async fn catch_up(&self) -> Result<(), CompareError> {
        Ok(self.causal_reads.catch_up(&self.mysql).await?)
    }
}

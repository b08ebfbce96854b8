//! Where both sides are read, and why that may fail.

use std::sync::Arc;

use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_orders::{
    CatchUpError, CausalReads, Gate, Keys, NodeBehind, Records, RecordsError, gate::GateError,
};
use tidegate_stream::{StreamError, StreamInspector, readable};

use crate::redis_side::RedisSide;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Redis did not answer as it should.
    #[error("Failed to read Redis: {}", readable(&.0.to_string()))]
    Redis(StreamError),
    /// Redis did not answer as it should.
    #[error("Failed to read Redis: {0}")]
    Gate(GateError),
    /// MySQL did not answer as it should.
    #[error("Failed to read MySQL: {0}")]
    Mysql(RecordsError),
    /// The node of MySQL lags, so what it does not show may be there.
    #[error("nothing is known: {0}")]
    Behind(NodeBehind),
    /// It was told to stop.
    #[error("stopped before the end: nothing is known")]
    Stopped,
}

impl From<StreamError> for LookError {
    fn from(error: StreamError) -> Self {
        Self::Redis(error)
    }
}

impl From<GateError> for LookError {
    fn from(error: GateError) -> Self {
        Self::Gate(error)
    }
}

impl From<RecordsError> for LookError {
    fn from(error: RecordsError) -> Self {
        Self::Mysql(error)
    }
}

impl From<CatchUpError> for LookError {
    fn from(error: CatchUpError) -> Self {
        match error {
            CatchUpError::Behind(behind) => Self::Behind(behind),
            CatchUpError::Server(error) => Self::Mysql(error.into()),
        }
    }
}

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
    pub(crate) async fn catch_up(&self) -> Result<(), LookError> {
        Ok(self.causal_reads.catch_up(&self.mysql).await?)
    }
}

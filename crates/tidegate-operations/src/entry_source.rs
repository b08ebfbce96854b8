//! The source of stream entries that are settled after they were read.

use anyhow::Context;
use tidegate_orders::RedisStore;
use tidegate_stream::{ServerRun, StreamInspector};

use crate::settings::SystemSettings;

/// A connection to the stream on one Redis server. Entries that were read from this server are acknowledged, or moved
/// to the dead letters, only on this server. After a failover, another server may have given the same ids to other
/// entries.
#[derive(Clone, Debug)]
pub struct EntrySource {
    /// The reader of the stream and of the consumer group, which uses one connection.
    pub inspector: StreamInspector,
    /// The run id of the Redis server, which was read before any stream entry.
    pub run: ServerRun,
}

impl EntrySource {
    /// Opens the stream on the Redis server that answers now.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn open(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<Self> {
        let inspector = redis.inspector().clone().over_one_connection();
        let run = match settings.redis.may_fail_over() {
            true => inspector.server_run().await.context("Failed to ask Redis for its run_id")?,
            false => ServerRun::Any,
        };
        Ok(Self { inspector, run })
    }
}

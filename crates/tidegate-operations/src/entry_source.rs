//! Where entries of the stream are read that are settled afterwards.

use anyhow::Context;
use tidegate_orders::RedisStore;
use tidegate_stream::{ServerRun, StreamInspector};

use crate::settings::SystemSettings;

/// The stream at one server. What is read there is settled there only: after a failover, another server may have given the same ids
/// to other entries.
#[derive(Clone, Debug)]
pub struct EntrySource {
    /// Over one connection.
    pub inspector: StreamInspector,
    /// Of the server, as it was before anything was read.
    pub run: ServerRun,
}

impl EntrySource {
    /// The server that answers now.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn open(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<Self> {
        let inspector = redis.inspector().clone().over_one_connection();
        let run = match settings.redis.may_fail_over() {
            true => inspector.server_run().await.context("Failed to ask Redis for its run_id")?,
            false => ServerRun::Any,
        };
        Ok(Self { inspector, run })
    }
}

//! The list of partitions: what partitions keep of it, and what they are told of the gate.

use std::time::Duration;

use fred::prelude::FredResult;
use futures_util::future::join_all;
use tidegate_operations::partition_list::{self, KeptList};
use tidegate_orders::{RedisStore, gate::GateError, gate_notes};
use tokio::time::timeout;

use super::{Gates, PartitionStores};

/// How long a partition may take. The others are not waited for longer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Gates {
    /// The list that these gates belong to.
    pub fn list(&self) -> &[String] {
        self.partitions[0].system.partition().tags()
    }

    /// What the partitions keep that answer.
    pub async fn kept_lists(&self) -> Vec<KeptList> {
        let read = async |own: &PartitionStores, redis: &RedisStore| match timeout(
            PATIENCE,
            partition_list::read_kept(&own.system, redis),
        )
        .await
        {
            Ok(Ok(kept)) => Some(kept),
            Ok(Err(error)) => {
                tracing::debug!("cannot see whether the list of partitions has changed: {error:#}");
                None
            }
            Err(_) => None,
        };
        join_all(self.reached().map(|(own, redis)| read(own, redis))).await.into_iter().flatten().collect()
    }

    /// Writes down in all partitions that answer that the gate of this name works with this list.
    pub async fn note_work(&self, name: &str) {
        let write = async |redis: &RedisStore| gate_notes::write(redis, name, self.list()).await;
        self.tell_all(write).await;
    }

    /// The gate of this name works with this list no more.
    pub async fn end_work(&self, name: &str) {
        self.tell_all(async |redis: &RedisStore| gate_notes::end(redis, name).await).await;
    }

    async fn tell_all(&self, tell: impl AsyncFn(&RedisStore) -> FredResult<()>) {
        let tell = async |redis: &RedisStore| match timeout(PATIENCE, tell(redis))
            .await
            .map(|told| told.map_err(GateError::from))
        {
            Ok(Err(error @ GateError::Refused(_))) => self.note_refused.call_once(|| {
                let pattern = format!("~{}*", redis.keys().partition_list().gate("").as_str_lossy());
                tracing::warn!(
                    %error, pattern,
                    "a change of the list of partitions does not wait for this gate: Redis refuses its note"
                );
            }),
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not write down which list of partitions the gate works with");
            }
            Ok(Ok(())) | Err(_) => {}
        };
        join_all(self.reached().map(|(_, redis)| tell(redis))).await;
    }

    /// Returns when a partition has answered for the first time.
    pub async fn one_more_is_reached(&self) {
        self.reached.notified().await;
    }
}

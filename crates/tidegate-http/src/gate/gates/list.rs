//! The list of partitions that the partitions keep in Redis, and the notes of gates that work with it.

use std::time::Duration;

use fred::prelude::FredResult;
use futures_util::future::join_all;
use tidegate_operations::partition_list::{self, StoredList};
use tidegate_orders::{RedisStore, gate_notes, scripts::ScriptError};
use tokio::time::timeout;

use super::{Gates, PartitionStores};

/// The time that a partition has to answer. The gate does not wait longer for it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Gates {
    /// The tags (names) of the partitions to which the gate is connected.
    pub fn list(&self) -> &[String] {
        self.partitions[0].system.partition().tags()
    }

    /// Reads the list of partitions from the Redis of each partition. The result lacks partitions that do not answer.
    pub async fn stored_lists(&self) -> Vec<StoredList> {
        let read = async |own: &PartitionStores, redis: &RedisStore| match timeout(
            PATIENCE,
            partition_list::read_kept(&own.system, redis),
        )
        .await
        {
            Ok(Ok(kept)) => Some(kept),
            Ok(Err(error)) => {
                tracing::debug!("cannot check whether the list of partitions has changed: {error:#}");
                None
            }
            Err(_) => None,
        };
        join_all(self.reached().map(|(own, redis)| read(own, redis))).await.into_iter().flatten().collect()
    }

    /// Writes to the Redis of each partition that the gate `name` uses this list of partitions.
    pub async fn note_work(&self, name: &str) {
        let write = async |redis: &RedisStore| gate_notes::write(redis, name, self.list()).await;
        self.tell_all(write).await;
    }

    /// Deletes the note in Redis which says that the gate `name` uses this list of partitions.
    pub async fn end_work(&self, name: &str) {
        self.tell_all(async |redis: &RedisStore| gate_notes::end(redis, name).await).await;
    }

    async fn tell_all(&self, tell: impl AsyncFn(&RedisStore) -> FredResult<()>) {
        let tell = async |redis: &RedisStore| {
            match timeout(PATIENCE, tell(redis))
            .await
            .map(|told| told.map_err(ScriptError::from))
        {
            Ok(Err(ScriptError::Refused(error))) if error.details().contains("NOPERM") => self.note_refused.call_once(|| {
                let pattern = format!("~{}*", redis.keys().partition_list().gate("").as_str_lossy());
                tracing::warn!(
                    %error, pattern,
                    "Redis refuses the note of this gate, so a change of the list of partitions does not wait for \
                     this gate: allow the gate's Redis user to write the keys in `pattern`"
                );
            }),
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not write or delete this gate's note about its list of partitions");
            }
            Ok(Ok(())) | Err(_) => {}
        }
        };
        join_all(self.reached().map(|(_, redis)| tell(redis))).await;
    }

    /// Waits until a partition that has not answered before answers for the first time.
    pub async fn one_more_is_reached(&self) {
        self.reached.notified().await;
    }
}

//! Deletion of old entries, so that the stream does not grow without limit.

use std::time::Duration;

use fred::{clients::Pool, types::Value};

use crate::{
    entry::EntryId,
    inspect::server_time_ms,
    prune_plan::{PruneLimit, plan},
    redis::{RedisError, RedisPool},
    script::ScriptSource,
    stream::{StreamError, StreamNames},
};

/// The number of entries that one call deletes at most: it takes Redis some milliseconds.
const MOST: u64 = 10_000;

/// A task that deletes old stream entries: older than the retention, and not needed by any group. Unread and pending
/// entries stay, however old they are. Acknowledged entries within the retention stay, so that they can be processed
/// again.
#[derive(Clone, Debug)]
pub struct StreamPruner {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
    retention: Duration,
}

impl StreamPruner {
    /// Creates a pruner that keeps entries younger than `retention`, by the clock of Redis.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames, retention: Duration) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("trim", include_str!("../lua/trim.lua")),
            retention,
        }
    }

    /// Prunes the stream once, and returns the number of deleted entries.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn run_once(&self) -> Result<u64, StreamError> {
        let cutoff = self.cutoff().await?;
        let mut trimmed = 0;
        loop {
            // Redis deletes whole nodes, so a call rarely deletes exactly as many entries as it may.
            match self.step(cutoff).await? {
                0 => return Ok(trimmed),
                now => trimmed += now,
            }
        }
    }

    /// Returns the first entry id within the retention, by the clock of Redis. Only earlier entries may be deleted.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn cutoff(&self) -> Result<EntryId, StreamError> {
        let retention_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let ms = server_time_ms(RedisPool(self.pool.clone())).await?.saturating_sub(retention_ms);
        Ok(EntryId { ms, seq: 0 })
    }

    /// Deletes some entries before `cutoff` that no group needs, and returns the number of deleted entries. 0: nothing
    /// is left to delete.
    ///
    /// # Errors
    /// As for [`StreamPruner::run_once`].
    pub async fn step(&self, cutoff: EntryId) -> Result<u64, StreamError> {
        let keys = vec![self.names.stream.as_str().into()];
        let args: Vec<Value> = vec![cutoff.to_string().into(), MOST.to_string().into()];
        Ok(self.script.call(&self.pool, keys, args).await?.convert().map_err(RedisError::new)?)
    }

    /// Returns which entries before `cutoff` a pruning would delete now. The call changes nothing.
    ///
    /// # Errors
    /// As for [`StreamPruner::run_once`].
    pub async fn plan(&self, cutoff: EntryId) -> Result<PruneLimit, StreamError> {
        plan(&self.pool, &self.names.stream, cutoff).await
    }
}

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

/// A task that deletes entries which are older than the retention and which no group needs any more. Unread and pending
/// entries stay, however old they are. A replay can run the acknowledged entries within the retention again.
#[derive(Clone, Debug)]
pub struct StreamPruner {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
    retention: Duration,
}

impl StreamPruner {
    /// Creates a pruner that keeps the entries of the last `retention`, by the clock of Redis.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames, retention: Duration) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("trim", include_str!("../lua/trim.lua")),
            retention,
        }
    }

    /// Prunes once, and returns how many entries were deleted.
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

    /// Returns where the retention begins, by the clock of Redis: only older entries may be deleted.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn cutoff(&self) -> Result<EntryId, StreamError> {
        let retention_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let ms = server_time_ms(RedisPool(self.pool.clone())).await?.saturating_sub(retention_ms);
        Ok(EntryId { ms, seq: 0 })
    }

    /// Deletes some of the entries before `cutoff` that no group needs. Returns how many it deleted, 0 when none is
    /// left.
    ///
    /// # Errors
    /// As for [`StreamPruner::run_once`].
    pub async fn step(&self, cutoff: EntryId) -> Result<u64, StreamError> {
        let keys = vec![self.names.stream.as_str().into()];
        let args: Vec<Value> = vec![cutoff.to_string().into(), MOST.to_string().into()];
        Ok(self.script.call(&self.pool, keys, args).await?.convert().map_err(RedisError::new)?)
    }

    /// Returns which entries before `cutoff` would be deleted, by the rules of the script. Changes nothing.
    ///
    /// # Errors
    /// As for [`StreamPruner::run_once`].
    pub async fn plan(&self, cutoff: EntryId) -> Result<PruneLimit, StreamError> {
        plan(&self.pool, &self.names.stream, cutoff).await
    }
}

//! Deleting old entries, so that the stream does not grow for ever.

use std::time::Duration;

use fred::{clients::Pool, types::Value};

use crate::{
    entry::EntryId,
    inspect::server_time_ms,
    redis::{RedisError, RedisPool},
    script::ScriptSource,
    stream::{StreamError, StreamNames},
    trim_plan::{TrimLimit, plan},
};

/// Entries that one call deletes at most: some milliseconds of Redis.
const MOST: u64 = 10_000;

/// Deletes entries that are older than the retention and that no group needs any more. What is unread or pending
/// stays, however old. Acknowledged entries of the retention are what a replay can run again.
#[derive(Clone, Debug)]
pub struct Trimmer {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
    retention: Duration,
}

impl Trimmer {
    /// Keeps the entries of the last `retention`, by the clock of Redis.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames, retention: Duration) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("trim", include_str!("../lua/trim.lua")),
            retention,
        }
    }

    /// Trims once; returns how many entries went.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn run_once(&self) -> Result<u64, StreamError> {
        let cutoff = self.cutoff().await?;
        let mut trimmed = 0;
        loop {
            // Whole nodes go, so a call rarely deletes just as many as it may.
            match self.step(cutoff).await? {
                0 => return Ok(trimmed),
                now => trimmed += now,
            }
        }
    }

    /// Where the retention begins, by the clock of Redis: only what is older may go.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn cutoff(&self) -> Result<EntryId, StreamError> {
        let retention_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let ms = server_time_ms(RedisPool(self.pool.clone())).await?.saturating_sub(retention_ms);
        Ok(EntryId { ms, seq: 0 })
    }

    /// Deletes some of the entries before `cutoff` that no group needs; returns how many went, 0 when it is done.
    ///
    /// # Errors
    /// As [`Trimmer::run_once`].
    pub async fn step(&self, cutoff: EntryId) -> Result<u64, StreamError> {
        let keys = vec![self.names.stream.as_str().into()];
        let args: Vec<Value> = vec![cutoff.to_string().into(), MOST.to_string().into()];
        Ok(self.script.call(&self.pool, keys, args).await?.convert().map_err(RedisError::new)?)
    }

    /// Says which entries before `cutoff` would go, as the script decides it, and changes nothing.
    ///
    /// # Errors
    /// As [`Trimmer::run_once`].
    pub async fn plan(&self, cutoff: EntryId) -> Result<TrimLimit, StreamError> {
        plan(&self.pool, &self.names.stream, cutoff).await
    }
}

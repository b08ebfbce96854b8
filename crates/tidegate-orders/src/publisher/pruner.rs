//! Deletes old results, so that the results stream does not grow without end, even if no program reads it.

use std::time::Duration;

use fred::{
    clients::Pool,
    interfaces::{ClientLike, StreamsInterface},
    types::{ClusterHash, CustomCommand, Key, Value},
};
use tidegate_stream::{EntryId, Script, StreamError, server_time_ms};

use crate::{scripts::RedisStore, webhook_notes::GROUP_PREFIX};

/// The maximum number of entries that one call deletes. This takes some milliseconds of Redis.
const MOST: i64 = 10_000;
/// How often one run reads the size. A size is only an estimate, and Redis deletes whole nodes of the stream.
const LOOKS: usize = 50;

/// A task that deletes results that are too old, and the oldest results if all results together take too many bytes.
/// The task also deletes results that no reader has read yet; it counts those that webhooks have not sent.
#[derive(Clone, Debug)]
pub struct ResultsPruner {
    pool: Pool,
    script: Script,
    key: String,
    webhooks: Key,
    keep: Option<Duration>,
    keep_bytes: Option<u64>,
}

impl ResultsPruner {
    /// Creates a task that keeps the results of the time span `keep`, by the clock of Redis, and at most about
    /// `keep_bytes` bytes of results. `None` means no limit on the age or the size. `redis` is the store of the
    /// partition, and `key` its stream of results.
    #[must_use]
    pub fn new(
        redis: &RedisStore,
        key: impl Into<String>,
        (keep, keep_bytes): (Option<Duration>, Option<u64>),
    ) -> Self {
        Self {
            pool: redis.pool().clone(),
            script: Script::new("trim_results", include_str!("../../../../lua/trim_results.lua")),
            key: key.into(),
            webhooks: redis.keys().fleet().webhooks(),
            keep,
            keep_bytes,
        }
    }

    /// Prunes the stream of results once, and returns how many results were deleted.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn run_once(&self) -> Result<u64, StreamError> {
        Ok(self.prune_by_age().await? + self.prune_by_size().await?)
    }

    async fn prune_by_age(&self) -> Result<u64, StreamError> {
        let Some(keep) = self.keep else { return Ok(0) };
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let ms = server_time_ms(&self.pool).await?.saturating_sub(keep_ms);
        let mut trimmed = 0;
        loop {
            match self.trim("MINID", EntryId { ms, seq: 0 }.to_string()).await? {
                0 => return Ok(trimmed),
                now => trimmed += now,
            }
        }
    }

    async fn prune_by_size(&self) -> Result<u64, StreamError> {
        let Some(keep_bytes) = self.keep_bytes else { return Ok(0) };
        let mut trimmed = 0;
        for _ in 0..LOOKS {
            let command = CustomCommand::new_static("MEMORY", ClusterHash::Random, false);
            let bytes: Option<u64> = self.pool.custom(command, vec!["USAGE", &self.key]).await?;
            let length: u64 = self.pool.xlen(&self.key).await?;
            let Some(most) = most_entries(length, bytes.unwrap_or(0), keep_bytes) else { break };
            match self.trim("MAXLEN", most.to_string()).await? {
                0 => break,
                now => trimmed += now,
            }
        }
        Ok(trimmed)
    }

    /// Deletes results with XTRIM and this limit. Redis deletes whole nodes of the stream, so a few more entries stay than the limit
    /// allows.
    async fn trim(&self, by: &'static str, limit: String) -> Result<u64, StreamError> {
        let keys = vec![self.key.as_str().into(), self.webhooks.clone()];
        let args: Vec<Value> = vec![by.into(), limit.into(), MOST.into(), GROUP_PREFIX.into()];
        Ok(self.script.call(&self.pool, keys, args).await?.convert()?)
    }
}

/// About how many of `length` entries, which take `bytes`, fit into `keep_bytes`. `None` if all of them fit.
fn most_entries(length: u64, bytes: u64, keep_bytes: u64) -> Option<u64> {
    if bytes <= keep_bytes {
        return None;
    }
    let fitting = u128::from(length) * u128::from(keep_bytes) / u128::from(bytes);
    u64::try_from(fitting).ok()
}

#[cfg(test)]
mod tests {
    use super::most_entries;

    #[test]
    fn as_many_results_stay_as_fit_into_the_bytes() {
        assert_eq!(most_entries(1_000, 500_000, 500_000), None);
        assert_eq!(most_entries(1_000, 500_000, 250_000), Some(500));
        assert_eq!(most_entries(0, 500, 1), Some(0));
        assert_eq!(most_entries(u64::MAX, u64::MAX, u64::MAX / 2), Some(u64::MAX / 2));
    }
}

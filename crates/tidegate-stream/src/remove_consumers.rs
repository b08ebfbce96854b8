//! Removal of consumers whose processes are dead, so that their names do not accumulate.

use std::time::Duration;

use fred::{clients::Pool, types::Value};

use crate::{
    inspect::consumers,
    redis::{RedisError, RedisKey, RedisPool},
    script::ScriptSource,
    stream::{StreamError, StreamNames},
};

/// A task that removes dead consumers from the group. A consumer is dead if it has no pending entries, it was idle for
/// a long time, and its process has no heartbeat key.
#[derive(Clone, Debug)]
pub struct ConsumerRemover {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
    idle: Duration,
}

impl ConsumerRemover {
    /// Creates a task that removes dead consumers of the group of `names` that were idle for at least `idle`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames, idle: Duration) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("remove_consumer", include_str!("../lua/remove_consumer.lua")),
            idle,
        }
    }

    /// Checks all consumers once, and returns the names of the removed consumers. `heartbeat` is a function from a
    /// consumer's name to the key that exists while the consumer's process lives.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn run_once<K: Into<RedisKey>>(
        &self,
        heartbeat: impl Fn(&str) -> K,
    ) -> Result<Vec<String>, StreamError> {
        let mut removed = Vec::new();
        for consumer in consumers(RedisPool(self.pool.clone()), &self.names).await? {
            if consumer.pending > 0 || consumer.idle_ms < self.idle_ms() {
                continue;
            }
            if self.remove(&consumer.name, heartbeat(&consumer.name)).await? {
                tracing::info!(
                    consumer = consumer.name,
                    idle_ms = consumer.idle_ms,
                    "removed a dead consumer that held no entries"
                );
                removed.push(consumer.name);
            }
        }
        Ok(removed)
    }

    /// Removes the given consumer if it has no pending entries, was idle for long enough, and has no heartbeat key.
    /// Returns whether the consumer existed and was removed.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn remove(&self, consumer: &str, heartbeat: impl Into<RedisKey>) -> Result<bool, StreamError> {
        let keys = vec![self.names.stream.as_str().into(), heartbeat.into().into_key()];
        let group = self.names.group.as_str().into();
        let args: Vec<Value> = vec![group, consumer.into(), self.idle_ms().to_string().into()];
        Ok(self.script.call(&self.pool, keys, args).await?.convert().map_err(RedisError::new)?)
    }

    fn idle_ms(&self) -> u64 {
        u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX)
    }
}

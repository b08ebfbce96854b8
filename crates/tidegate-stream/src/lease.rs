//! Leases on names in Redis: taken by a token, ended by the same token or by time.

use std::time::Duration;

use fred::{
    clients::Pool,
    types::{Key, Value},
};

use crate::{
    redis::{RedisError, RedisKey, RedisPool},
    script::Script,
};

/// Takes, renews and ends leases. A lease is politeness between processes: it can be lost at any time, so
/// nothing may depend on it for being right.
#[derive(Clone, Debug)]
pub struct Leases {
    pool: Pool,
    lock: Script,
    unlock: Script,
    known: &'static str,
}

impl Leases {
    /// Leases kept in the Redis behind `pool`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>) -> Self {
        Self {
            pool: pool.into().0,
            lock: Script::new("lock", include_str!("../lua/lock.lua")),
            unlock: Script::new("unlock", include_str!("../lua/unlock.lua")),
            known: "everywhere",
        }
    }

    /// The same for leases that are worth nothing after a restart or a failover of Redis: neither its AOF nor its
    /// replicas get to know them, which makes them cheap.
    #[must_use]
    pub fn known_here_only(self) -> Self {
        Self { known: "here", ..self }
    }

    /// Takes or renews a lease on each of `keys`, each for itself, in one round trip.
    ///
    /// Returns the positions in `keys`, ascending, of those that another token holds.
    ///
    /// # Errors
    /// When Redis does not answer; some of the leases may be held then.
    pub async fn take(
        &self,
        keys: Vec<impl Into<RedisKey>>,
        token: &str,
        lease: Duration,
    ) -> Result<Vec<usize>, RedisError> {
        self.take_over(keys, token, lease, &[]).await
    }

    /// As [`Leases::take`]; and what stands under a token of `void` is taken over. Those are tokens of the caller's own
    /// under which nobody works any more, though leases may stand: those of calls whose reply it never got.
    ///
    /// # Errors
    /// As [`Leases::take`].
    pub async fn take_over(
        &self,
        keys: Vec<impl Into<RedisKey>>,
        token: &str,
        lease: Duration,
        void: &[String],
    ) -> Result<Vec<usize>, RedisError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = vec![token.into(), millis(lease), self.known.into()];
        args.extend(void.iter().map(|token| Value::from(token.as_str())));
        let reply = self.lock.call(&self.pool, fred_keys(keys), args).await?;
        let refused: Vec<usize> = reply.convert().map_err(RedisError::new)?;
        Ok(refused.into_iter().map(|position| position - 1).collect())
    }

    /// Ends those leases on `keys` that `token` still holds; returns how many these were.
    ///
    /// # Errors
    /// When Redis does not answer; the leases end by time then.
    pub async fn end(&self, keys: Vec<impl Into<RedisKey>>, token: &str) -> Result<usize, RedisError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let args = vec![token.into(), self.known.into()];
        let reply = self.unlock.call(&self.pool, fred_keys(keys), args).await?;
        reply.convert().map_err(RedisError::new)
    }
}

fn fred_keys(keys: Vec<impl Into<RedisKey>>) -> Vec<Key> {
    keys.into_iter().map(|key| key.into().into_key()).collect()
}

fn millis(duration: Duration) -> Value {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).into()
}

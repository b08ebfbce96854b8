//! Leases on names in Redis. A lease ends when the process with its token ends it, or when it expires.

use std::time::Duration;

use fred::{
    clients::Pool,
    types::{Key, Value},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    redis::{RedisError, RedisKey, RedisPool},
    script::ScriptSource,
};

/// Access to leases in Redis: locks with a token and an expiry time, which processes take, renew and end. A lease can
/// be lost at any time, so correctness must not depend on leases.
#[derive(Clone, Debug)]
pub struct Leases {
    pool: Pool,
    lock: ScriptSource,
    unlock: ScriptSource,
    known: &'static str,
}

impl Leases {
    /// Creates access to leases in the Redis behind `pool`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>) -> Self {
        Self {
            pool: pool.into().0,
            lock: ScriptSource::new("lock", include_str!("../lua/lock.lua")),
            unlock: ScriptSource::new("unlock", include_str!("../lua/unlock.lua")),
            known: "everywhere",
        }
    }

    /// Returns access to leases (locks that expire) that may be lost when Redis restarts or fails over. Redis writes
    /// them neither to its AOF nor to its replicas, so they cost little.
    #[must_use]
    pub fn known_here_only(self) -> Self {
        Self { known: "here", ..self }
    }

    /// Takes or renews a lease on each of `keys`, in one round trip. If another process has one of the leases, the call
    /// still takes the rest.
    ///
    /// Returns the positions in `keys`, ascending, of those leases that another token holds.
    ///
    /// # Errors
    /// When Redis does not answer; then some of the leases may be held.
    pub async fn take(
        &self,
        keys: Vec<impl Into<RedisKey>>,
        token: &str,
        lease: Duration,
    ) -> Result<Vec<usize>, RedisError> {
        self.take_over(keys, token, lease, &[]).await
    }

    /// Takes leases like [`Leases::take`]. It also takes leases that are held under a token in `void`: tokens of
    /// earlier calls of the same caller that got no reply. No work depends on those leases any more.
    ///
    /// # Errors
    /// As for [`Leases::take`].
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

    /// Takes a lease on `key`, and renews it in the background. Returns None if another process holds the lease.
    ///
    /// # Errors
    /// As for [`Leases::take`].
    pub async fn hold(
        &self,
        key: impl Into<RedisKey>,
        token: &str,
        lease: Duration,
    ) -> Result<Option<LeaseGuard>, RedisError> {
        let (key, renewed) = (key.into(), Instant::now());
        if !self.take(vec![key.clone()], token, lease).await?.is_empty() {
            return Ok(None);
        }
        let (lost, over) = (CancellationToken::new(), CancellationToken::new());
        let keep = keep(self.clone(), (key, token.to_owned(), lease), renewed, lost.clone(), over.clone());
        Ok(Some(LeaseGuard { lost, over: over.drop_guard(), keeping: tokio::spawn(keep) }))
    }

    /// Ends those leases on `keys` that are still held under `token`, and returns the number of ended leases.
    ///
    /// # Errors
    /// When Redis does not answer; then the leases expire.
    pub async fn end(&self, keys: Vec<impl Into<RedisKey>>, token: &str) -> Result<usize, RedisError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let args = vec![token.into(), self.known.into()];
        let reply = self.unlock.call(&self.pool, fred_keys(keys), args).await?;
        reply.convert().map_err(RedisError::new)
    }
}

/// A lease (a lock that expires) on one key. The lease is renewed after each fifth of its duration. When this value is
/// dropped, the lease ends in the background.
#[derive(Debug)]
pub struct LeaseGuard {
    lost: CancellationToken,
    over: DropGuard,
    keeping: JoinHandle<()>,
}

impl LeaseGuard {
    /// Returns a token that is cancelled when the lease is lost: another process took it, or Redis did not answer for
    /// the duration of the lease.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Ends the lease, and returns after Redis has answered. If Redis does not answer, the lease expires.
    pub async fn end(self) {
        drop(self.over);
        let _by_time = self.keeping.await;
    }
}

/// Renews the lease until it is `lost` or `over`, then ends it. Only the pause between renewals is cancelled: a renewal
/// that reaches Redis after the end would take the lease again.
async fn keep(
    leases: Leases,
    (key, token, lease): (RedisKey, String, Duration),
    mut renewed: Instant,
    lost: CancellationToken,
    over: CancellationToken,
) {
    while over.run_until_cancelled(sleep(lease / 5)).await.is_some() {
        let asked = Instant::now();
        match leases.take(vec![key.clone()], &token, lease).await {
            Ok(refused) if refused.is_empty() => renewed = asked,
            Err(_) if renewed.elapsed() < lease => {}
            _ => {
                lost.cancel();
                break;
            }
        }
    }
    let _by_time = leases.end(vec![key], &token).await;
}

fn fred_keys(keys: Vec<impl Into<RedisKey>>) -> Vec<Key> {
    keys.into_iter().map(|key| key.into().into_key()).collect()
}

fn millis(duration: Duration) -> Value {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).into()
}

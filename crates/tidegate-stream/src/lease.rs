//! Leases on names in Redis: taken by a token, ended by the same token or by time.

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

/// Takes, renews and ends leases. A lease is politeness between processes: it can be lost at any time, so
/// nothing may depend on it for being right.
#[derive(Clone, Debug)]
pub struct Leases {
    pool: Pool,
    lock: ScriptSource,
    unlock: ScriptSource,
    known: &'static str,
}

impl Leases {
    /// Leases kept in the Redis behind `pool`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>) -> Self {
        Self {
            pool: pool.into().0,
            lock: ScriptSource::new("lock", include_str!("../lua/lock.lua")),
            unlock: ScriptSource::new("unlock", include_str!("../lua/unlock.lua")),
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

    /// Takes a lease on `key`, and renews it in the background. None: another token holds it.
    ///
    /// # Errors
    /// As [`Leases::take`].
    pub async fn hold(
        &self,
        key: impl Into<RedisKey>,
        token: &str,
        lease: Duration,
    ) -> Result<Option<HeldLease>, RedisError> {
        let (key, renewed) = (key.into(), Instant::now());
        if !self.take(vec![key.clone()], token, lease).await?.is_empty() {
            return Ok(None);
        }
        let (lost, over) = (CancellationToken::new(), CancellationToken::new());
        let keep = keep(self.clone(), (key, token.to_owned(), lease), renewed, lost.clone(), over.clone());
        Ok(Some(HeldLease { lost, over: over.drop_guard(), keeping: tokio::spawn(keep) }))
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

/// A lease on one name, which is renewed five times before it would end by time. It ends in the background when this is dropped.
#[derive(Debug)]
pub struct HeldLease {
    lost: CancellationToken,
    over: DropGuard,
    keeping: JoinHandle<()>,
}

impl HeldLease {
    /// The token that is cancelled if another process takes the lease, or if Redis does not answer for as long as the lease lasts.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Ends the lease, and waits for that. If Redis does not answer, the lease ends by time.
    pub async fn end(self) {
        drop(self.over);
        let _by_time = self.keeping.await;
    }
}

/// Renews the lease until it is `lost` or `over`, then ends it. Cancels only the pause: a renewal that reaches Redis after the end
/// would take the lease again.
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

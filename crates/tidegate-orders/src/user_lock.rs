//! The per-user lock keeps two workers from writing one user's orders at the same time. It only avoids useless work:
//! the unique key is the guard.

mod abandoned_tokens;

use std::{
    collections::HashSet,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use fred::types::Key;
use tidegate_stream::{Leases, Outage};

use crate::{order::UserId, scripts::RedisStore};
use abandoned_tokens::AbandonedTokens;

/// The locks of users in Redis. A worker takes these locks for one batch at a time. Every batch has a token of its own.
/// So the consumers of a process exclude each other, and a late unlock of one batch never opens the lock of the next
/// batch.
///
/// A call to Redis may get no reply in time, and still lock when it arrives. No lane works under its token any more, so
/// the token is abandoned. This process takes over the locks of that token; other processes wait until they expire.
/// Clones share their abandoned tokens.
#[derive(Clone, Debug)]
pub struct UserLocks {
    leases: Leases,
    redis: RedisStore,
    lease: Duration,
    abandoned: Arc<AbandonedTokens>,
}

/// The users of one batch, and for each user whether the batch got the lock. [`UserLocks::unlock`] ends the locks;
/// otherwise, they expire.
#[derive(Debug)]
pub struct Locked {
    token: String,
    held: Vec<Key>,
    refused: HashSet<UserId>,
    /// Whether a renewal got no reply: it may reach Redis after the unlock.
    is_renewal_lost: AtomicBool,
}

impl Locked {
    fn new(token: String, held: Vec<Key>, refused: HashSet<UserId>) -> Self {
        Self { token, held, refused, is_renewal_lost: AtomicBool::new(false) }
    }

    /// Returns the locks of a batch that needs no user locks.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new(String::new(), Vec::new(), HashSet::new())
    }

    /// Whether another worker has the lock of any user in the batch.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether another worker has the lock of the given user.
    #[must_use]
    pub fn is_refused(&self, user: UserId) -> bool {
        self.refused.contains(&user)
    }
}

impl UserLocks {
    /// Creates user locks that expire after the time `lease`, unless they are renewed. A Redis failover loses the
    /// locks. The loss does no harm, because the unique key in MySQL prevents double orders.
    #[must_use]
    pub fn new(redis: RedisStore, lease: Duration) -> Self {
        Self {
            leases: Leases::new(redis.pool().clone()).known_here_only(),
            redis,
            lease,
            abandoned: Arc::new(AbandonedTokens::new(lease)),
        }
    }

    /// Locks each user in `users` in one round trip. A user whose lock is taken does not affect other users. A user may
    /// occur twice in `users`.
    ///
    /// # Errors
    /// Fails if Redis does not answer. Locks that were taken then expire, unless this process takes them over.
    pub async fn lock(&self, users: impl IntoIterator<Item = UserId>) -> Result<Locked, Outage> {
        let mut users: Vec<UserId> = users.into_iter().collect();
        users.sort_unstable();
        users.dedup();
        let token = format!("tidegate-{:032x}", rand::random::<u128>());
        let keys = self.redis.keys().locks(&users);
        let abandoned = self.abandoned.tokens();
        let refused: HashSet<usize> =
            match self.leases.take_over(keys.clone(), &token, self.lease, &abandoned).await {
                Ok(refused) => refused.into_iter().collect(),
                // Redis can drop entries only after their orders are written, so a lock without room must not stop the
                // writing.
                Err(error) if error.is_out_of_memory() => {
                    tracing::warn!("Redis is out of memory: orders are written without user locks");
                    return Ok(Locked::new(token, Vec::new(), HashSet::new()));
                }
                // While the slot moves, no worker holds locks of users that are new in it.
                Err(error) if error.is_slot_moving() => {
                    tracing::debug!(%error, "a hash slot is moving: orders are written without user locks");
                    return Ok(Locked::new(token, Vec::new(), HashSet::new()));
                }
                Err(error) => {
                    self.abandoned.add(token);
                    return Err(error.into());
                }
            };
        let held = keys
            .into_iter()
            .enumerate()
            .filter(|(at, _)| !refused.contains(at))
            .map(|(_, key)| key)
            .collect();
        let refused = refused.into_iter().filter_map(|at| users.get(at).copied()).collect();
        Ok(Locked::new(token, held, refused))
    }

    /// Runs `work`, and renews the locks three times in each period of the lease. If a lock is lost, the call only logs
    /// it, because the unique key in MySQL prevents double orders.
    pub async fn hold<T>(&self, locked: &Locked, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = tokio::time::sleep(self.lease / 3) => {}
            }
            let mut renewal = pin!(self.renew(locked));
            tokio::select! {
                result = &mut work => {
                    // Let the renewal finish: if it reached Redis after the unlock, it would lock again.
                    renewal.await;
                    return result;
                }
                () = &mut renewal => {}
            }
        }
    }

    async fn renew(&self, locked: &Locked) {
        match self.leases.take(locked.held.clone(), &locked.token, self.lease).await {
            Ok(lost) if lost.is_empty() => {}
            Ok(lost) => {
                tracing::warn!(users = lost.len(), "user locks were lost while a batch was in progress")
            }
            Err(error) => {
                locked.is_renewal_lost.store(true, Relaxed);
                tracing::warn!(%error, "user locks could not be renewed");
            }
        }
    }

    /// Releases the locks when the batch is written or given up. An earlier release would let another worker write
    /// orders of the same users at the same time. If the release fails, the locks expire, unless another batch of this
    /// process takes them first.
    pub async fn unlock(&self, locked: Locked) {
        let unlocked = self.leases.end(locked.held, &locked.token).await;
        if let Err(error) = &unlocked {
            tracing::debug!(%error, "user locks could not be released: the locks expire by themselves");
        }
        if unlocked.is_err() || locked.is_renewal_lost.into_inner() {
            self.abandoned.add(locked.token);
        }
    }
}

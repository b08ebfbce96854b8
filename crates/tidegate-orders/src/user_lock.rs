//! The per-user lock keeps two workers from writing one user's orders at the same time. It is only politeness: the unique
//! key is the guard.

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

use crate::{gate::RedisStore, order::UserId};
use abandoned_tokens::AbandonedTokens;

/// Locks users, a batch at a time. Every batch has a token of its own, so that the lanes of a process exclude each other, and a
/// late unlock of one batch never opens the lock of the next.
///
/// A call to Redis may get no reply in time, and still lock when it arrives. Nobody works under its token any more, so the
/// token is abandoned: this process takes over what is locked by it, and other processes wait until it ends by time. Clones
/// share their abandoned tokens.
#[derive(Clone, Debug)]
pub struct UserLocks {
    leases: Leases,
    redis: RedisStore,
    lease: Duration,
    abandoned: Arc<AbandonedTokens>,
}

/// The users of one batch, and which of them are locked for it. Ends by [`UserLocks::unlock`] or by time.
#[derive(Debug)]
pub struct Locked {
    token: String,
    held: Vec<Key>,
    refused: HashSet<UserId>,
    /// A renewal got no reply: it may reach Redis after the unlock.
    is_renewal_lost: AtomicBool,
}

impl Locked {
    fn new(token: String, held: Vec<Key>, refused: HashSet<UserId>) -> Self {
        Self { token, held, refused, is_renewal_lost: AtomicBool::new(false) }
    }

    /// The locks of a batch that needs none.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new(String::new(), Vec::new(), HashSet::new())
    }

    /// Another worker holds the lock of some user.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Another worker holds this user's lock.
    #[must_use]
    pub fn is_refused(&self, user: UserId) -> bool {
        self.refused.contains(&user)
    }
}

impl UserLocks {
    /// Locks that end by themselves after `lease`, unless they are renewed. A failover forgets them, which does no
    /// harm: the unique key decides.
    #[must_use]
    pub fn new(redis: RedisStore, lease: Duration) -> Self {
        Self {
            leases: Leases::new(redis.pool().clone()).known_here_only(),
            redis,
            lease,
            abandoned: Arc::new(AbandonedTokens::new(lease)),
        }
    }

    /// Locks every one of `users`, each for itself, in one round trip. A user may stand there twice.
    ///
    /// # Errors
    /// When Redis does not answer; what was locked ends by time then, unless this process takes it over.
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
                // Only what is written can be trimmed: a lock that finds no room must not keep us from writing.
                Err(error) if error.is_out_of_memory() => {
                    tracing::warn!("Redis is out of memory: orders are written without user locks");
                    return Ok(Locked::new(token, Vec::new(), HashSet::new()));
                }
                // Nobody has the locks of users who are new to it, until the slot has arrived.
                Err(error) if error.is_slot_moving() => {
                    tracing::debug!(%error, "the slot moves: orders are written without user locks");
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

    /// Runs `work` while renewing the locks, three times a lease. A lock that was lost meanwhile is only
    /// reported: the unique key decides.
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
                    // To its end: a renewal that reaches Redis after the unlock would lock again.
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
            Ok(lost) => tracing::warn!(users = lost.len(), "user locks were lost while a batch was in progress"),
            Err(error) => {
                locked.is_renewal_lost.store(true, Relaxed);
                tracing::warn!(%error, "user locks could not be renewed");
            }
        }
    }

    /// Unlocks, when the batch is written or given up: until then, another worker would write the same users' orders at the
    /// same time. When it fails, the locks end by time, unless this process takes them over.
    pub async fn unlock(&self, locked: Locked) {
        let unlocked = self.leases.end(locked.held, &locked.token).await;
        if let Err(error) = &unlocked {
            tracing::debug!(%error, "user locks were not ended: they end by time");
        }
        if unlocked.is_err() || locked.is_renewal_lost.into_inner() {
            self.abandoned.add(locked.token);
        }
    }
}

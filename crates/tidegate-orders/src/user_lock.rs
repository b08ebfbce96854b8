//! The per-user lock keeps two workers from writing one user's orders at the same time. It only avoids useless work:
//! the unique key is the guard.

mod abandoned_tokens;
mod locked_users;
mod redisson;

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use fred::types::Key;
use tidegate_stream::{Cause, Leases, Outage, RedisError};

pub use self::locked_users::{LockedUsers, UnlockListener};
use self::{
    abandoned_tokens::AbandonedTokens,
    redisson::{Foreign, RedissonLocks},
};
use crate::{order::UserId, scripts::RedisStore};

/// The layout of the locks of users in Redis. All programs that lock the same users must use one layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockLayout {
    /// A string whose value is the holder. Redis writes the locks neither to its AOF nor to replicas.
    #[default]
    Tidegate,
    /// A hash as Redisson's `RLock` has it, so that services in Java and workers exclude each other.
    Redisson,
}

impl LockLayout {
    /// Every layout that the settings may name.
    pub const ALL: [Self; 2] = [Self::Tidegate, Self::Redisson];

    /// The word for the layout in the settings.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Redisson => "redisson",
        }
    }
}

/// The beginning of a worker's token in the layout `Tidegate`.
const TOKEN: &str = "tidegate-";

/// Whether the holder of a lock is a worker of Tidegate, in either layout.
#[must_use]
pub fn is_worker(holder: &str) -> bool {
    [TOKEN, redisson::OWN].iter().any(|own| holder.starts_with(own))
}

/// The cause of entries that wait for the lock of a user.
pub(crate) fn locked_by_another(user: UserId) -> Cause {
    Cause::new("user_lock", user.get().unsigned_abs())
}

/// The calls of the scripts for a layout.
#[derive(Clone, Debug)]
enum Locks {
    Tidegate(Leases),
    Redisson(RedissonLocks),
}

impl Locks {
    fn new_token(&self) -> String {
        match self {
            Self::Tidegate(_) => format!("{TOKEN}{:032x}", rand::random::<u128>()),
            Self::Redisson(_) => redisson::new_holder(),
        }
    }

    async fn take(
        &self,
        keys: Vec<Key>,
        token: &str,
        lease: Duration,
        void: &[String],
    ) -> Result<Vec<Foreign>, RedisError> {
        match self {
            Self::Tidegate(leases) => {
                let refused = leases.take_over(keys, token, lease, void).await?;
                Ok(refused.into_iter().map(|at| Foreign { at, left: None }).collect())
            }
            Self::Redisson(locks) => locks.take(keys, token, lease, void).await,
        }
    }

    async fn end(&self, keys: Vec<Key>, token: &str) -> Result<(), RedisError> {
        match self {
            Self::Tidegate(leases) => leases.end(keys, token).await.map(drop),
            Self::Redisson(locks) => locks.end(keys, token).await,
        }
    }
}

/// The locks of users in Redis. A worker takes these locks for one batch at a time. Every batch has a token of its own.
/// So the consumers of a process exclude each other, and a late unlock of one batch never opens the lock of the next
/// batch.
///
/// A call to Redis may get no reply in time, and still lock when it arrives. No lane works under its token any more, so
/// the token is abandoned. This process takes over the locks of that token; other processes wait until they expire.
/// Clones share their abandoned tokens.
#[derive(Clone, Debug)]
pub struct UserLocks {
    locks: Locks,
    redis: RedisStore,
    lease: Duration,
    abandoned: Arc<AbandonedTokens>,
    /// The users whose locks another holder has, if a listener wants to know them.
    locked_users: Option<Arc<LockedUsers>>,
    missing_rights: Arc<MissingRights>,
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
    /// Creates user locks of the given layout that expire after the time `lease`, unless they are renewed. A Redis
    /// failover may lose locks. The loss does no harm, because the unique key in MySQL prevents double orders.
    #[must_use]
    pub fn new(redis: RedisStore, lease: Duration, layout: LockLayout) -> Self {
        let pool = redis.pool().clone();
        Self {
            locks: match layout {
                LockLayout::Tidegate => Locks::Tidegate(Leases::new(pool).known_here_only()),
                LockLayout::Redisson => Locks::Redisson(RedissonLocks::new(pool)),
            },
            redis,
            lease,
            abandoned: Arc::new(AbandonedTokens::new(lease)),
            locked_users: None,
            missing_rights: Arc::default(),
        }
    }

    /// Returns the locks with a list to which each refused user is added, for an [`UnlockListener`].
    #[must_use]
    pub fn with_locked_users(self, locked_users: Arc<LockedUsers>) -> Self {
        Self { locked_users: Some(locked_users), ..self }
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
        let token = self.locks.new_token();
        let keys = self.redis.keys().locks(&users);
        let abandoned = self.abandoned.tokens();
        let foreign: HashMap<usize, Option<Duration>> =
            match self.locks.take(keys.clone(), &token, self.lease, &abandoned).await {
                Ok(foreign) => foreign.into_iter().map(|Foreign { at, left }| (at, left)).collect(),
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
            .filter(|(at, _)| !foreign.contains_key(at))
            .map(|(_, key)| key)
            .collect();
        let refused = foreign.into_iter().filter_map(|(at, left)| Some((*users.get(at)?, left)));
        let refused: Vec<(UserId, Option<Duration>)> = refused.collect();
        if let Some(locked_users) = self.locked_users.as_ref().filter(|_| !refused.is_empty()) {
            locked_users.add(&refused);
        }
        let refused = refused.into_iter().map(|(user, _)| user).collect();
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
        match self.locks.take(locked.held.clone(), &locked.token, self.lease, &[]).await {
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
        let unlocked = self.locks.end(locked.held, &locked.token).await;
        if let Err(error) = &unlocked {
            self.missing_rights.warn_once(error);
            tracing::debug!(%error, "user locks could not be released, or their release could not be published");
        }
        if unlocked.is_err() || locked.is_renewal_lost.into_inner() {
            self.abandoned.add(locked.token);
        }
    }
}

/// The warning that the Redis user lacks rights for the layout of the locks, which is logged once.
#[derive(Debug, Default)]
struct MissingRights {
    is_logged: AtomicBool,
}

impl MissingRights {
    fn warn_once(&self, error: &RedisError) {
        if (error.is_refusal() || error.is_denied_within_script()) && !self.is_logged.swap(true, Relaxed) {
            tracing::warn!(
                %error,
                "Redis refuses a command for user locks: give this Redis user the rights in config/redis-users.acl"
            );
        }
    }
}

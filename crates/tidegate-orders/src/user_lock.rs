//! The per-user lock: politeness between workers, so that two of them do not write one user's orders at once.
//! The unique key is the guard.

use std::{collections::HashSet, future::Future, time::Duration};

use tidegate_stream::{Leases, Outage};

use crate::{keys::Keys, order::UserId};

/// Locks users, a batch at a time.
#[derive(Clone, Debug)]
pub struct UserLocks {
    leases: Leases,
    keys: Keys,
    lease: Duration,
}

/// The users of one batch, and which of them are locked for it. Ends by [`UserLocks::unlock`] or by time.
#[derive(Debug)]
pub struct Locked {
    token: String,
    users: Vec<UserId>,
    refused: HashSet<UserId>,
}

impl Locked {
    /// Another worker holds this user's lock.
    #[must_use]
    pub fn is_refused(&self, user: UserId) -> bool {
        self.refused.contains(&user)
    }
}

impl UserLocks {
    /// Locks that end by themselves after `lease`, unless they are renewed.
    #[must_use]
    pub fn new(leases: Leases, keys: Keys, lease: Duration) -> Self {
        Self { leases, keys, lease }
    }

    /// Locks every one of `users`, each for itself, in one round trip. A user may stand there twice.
    ///
    /// # Errors
    /// When Redis does not answer; what was locked ends by time then.
    pub async fn lock(&self, users: impl IntoIterator<Item = UserId>) -> Result<Locked, Outage> {
        let mut users: Vec<UserId> = users.into_iter().collect();
        users.sort_unstable();
        users.dedup();
        let token = format!("tidegate-{:032x}", rand::random::<u128>());
        let refused = self.leases.take(self.keys_of(&users), &token, self.lease).await?;
        let refused = refused.into_iter().filter_map(|position| users.get(position).copied()).collect();
        Ok(Locked { token, users, refused })
    }

    /// Runs `work` while renewing the locks, three times a lease. A lock that was lost meanwhile is only
    /// reported: the unique key decides.
    pub async fn hold<T>(&self, locked: &Locked, work: impl Future<Output = T>) -> T {
        let held: Vec<UserId> =
            locked.users.iter().copied().filter(|user| !locked.is_refused(*user)).collect();
        let renew_for_ever = async {
            loop {
                tokio::time::sleep(self.lease / 3).await;
                match self.leases.take(self.keys_of(&held), &locked.token, self.lease).await {
                    Ok(lost) if lost.is_empty() => {}
                    Ok(lost) => {
                        tracing::warn!(users = lost.len(), "user locks were lost while a batch was in hand")
                    }
                    Err(error) => tracing::warn!(%error, "user locks could not be renewed"),
                }
            }
        };
        tokio::select! {
            result = work => result,
            () = renew_for_ever => unreachable!("renews for ever"),
        }
    }

    /// Unlocks. Call it only when the outcome is durable; when it fails, the locks end by time.
    pub async fn unlock(&self, locked: Locked) {
        let held: Vec<UserId> =
            locked.users.iter().copied().filter(|user| !locked.is_refused(*user)).collect();
        if let Err(error) = self.leases.end(self.keys_of(&held), &locked.token).await {
            tracing::debug!(%error, "user locks were not ended: they end by time");
        }
    }

    fn keys_of(&self, users: &[UserId]) -> Vec<fred::types::Key> {
        users.iter().map(|user| self.keys.lock(*user)).collect()
    }
}

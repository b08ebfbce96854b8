//! The users whose locks another process holds, and the listener that has their orders tried again once a lock ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_stream::{Causes, RedisConnectionSettings, RedisError, Subscription, SubscriptionEvent};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{locked_by_another, redisson};
use crate::{keys::Keys, order::UserId};

/// The most users whose locks are listened to. The orders of others are tried again from time to time.
const MOST_USERS: usize = 256;

/// The least time between two wake-ups for one user: a lock may change hands thousands of times in a second.
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// The time after which a user is forgotten whose orders were not tried since.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The time between two looks for users that do not wait any more.
const FORGET_EVERY: Duration = Duration::from_secs(5);

/// The users whose locks another process holds. Lanes add users, and an [`UnlockListener`] listens for them.
#[derive(Debug, Default)]
pub struct LockedUsers {
    users: Mutex<BTreeMap<UserId, Wait>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The last time at which a lane did not get the lock.
    refused: Instant,
    /// The time at which orders of the user are tried again. None: the lock never expires, or they are being tried.
    due: Option<Instant>,
    woken: Option<Instant>,
    is_subscribed: bool,
}

impl LockedUsers {
    /// Notes that another process holds the locks of these users, with the time until each lock expires.
    pub(super) fn add(&self, refused: &[(UserId, Option<Duration>)]) {
        let (now, mut users) = (Instant::now(), self.users());
        for &(user, left) in refused {
            let has_room = users.len() < MOST_USERS;
            let due = left.map(|left| now + left);
            match users.get_mut(&user) {
                Some(wait) => (wait.refused, wait.due) = (now, due),
                None if has_room => {
                    users.insert(user, Wait { refused: now, due, woken: None, is_subscribed: false });
                }
                None => {}
            }
        }
        self.changed.notify_one();
    }

    /// Takes the users whose channels are not subscribed yet. They count as subscribed from now on.
    fn take_new(&self) -> Vec<UserId> {
        let mut users = self.users();
        let new = users.iter_mut().filter(|(_, wait)| !wait.is_subscribed);
        new.map(|(user, wait)| {
            wait.is_subscribed = true;
            *user
        })
        .collect()
    }

    /// Notes that the connection has no channel any more.
    fn unsubscribed(&self) {
        self.users().values_mut().for_each(|wait| wait.is_subscribed = false);
    }

    /// Removes the users whose orders do not wait any more. Returns those that were subscribed.
    fn forget(&self, now: Instant, is_awaited: impl Fn(UserId) -> bool) -> Vec<UserId> {
        let mut users = self.users();
        // An order is set aside a little later than its lock was refused.
        let is_over = |user: &UserId, wait: &mut Wait| now - wait.refused > KEPT_FOR && !is_awaited(*user);
        users.extract_if(.., is_over).filter(|(_, wait)| wait.is_subscribed).map(|(user, _)| user).collect()
    }

    /// Returns those of these users that are woken now; a user that was woken just before is woken a little later.
    fn wake(&self, now: Instant, ended: impl IntoIterator<Item = UserId>) -> Vec<UserId> {
        let mut users = self.users();
        let mut woken = Vec::new();
        for user in ended {
            let Some(wait) = users.get_mut(&user) else { continue };
            match wait.woken.map(|woken| woken + WAKE_EVERY).filter(|next| *next > now) {
                Some(next) => wait.due = Some(next),
                None => {
                    (wait.woken, wait.due) = (Some(now), None);
                    woken.push(user);
                }
            }
        }
        woken
    }

    /// Returns the users whose locks have expired by now.
    fn due(&self, now: Instant) -> Vec<UserId> {
        let is_due = |wait: &Wait| wait.due.is_some_and(|due| due <= now);
        self.users().iter().filter(|(_, wait)| is_due(wait)).map(|(user, _)| *user).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        self.users().values().filter_map(|wait| wait.due).min()
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<UserId, Wait>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listener for the ends of locks, over one connection. It wakes the lanes whose orders wait for a lock. Without it,
/// the lanes try these orders from time to time.
#[derive(Debug)]
pub struct UnlockListener {
    locked_users: Arc<LockedUsers>,
    causes: Arc<Causes>,
    keys: Keys,
}

impl UnlockListener {
    /// Creates a listener for the users in `locked_users`. It wakes the lanes that share `causes`. The keys of locks have the
    /// names of `keys`.
    #[must_use]
    pub fn new(locked_users: Arc<LockedUsers>, causes: Arc<Causes>, keys: Keys) -> Self {
        Self { locked_users, causes, keys }
    }

    /// Listens until an error occurs.
    ///
    /// # Errors
    /// If Redis does not answer, or does not allow that its user subscribes to the channels.
    pub async fn run(&self, settings: &RedisConnectionSettings) -> Result<(), RedisError> {
        let mut subscription = Subscription::open(settings).await?;
        let mut channels = BTreeMap::new();
        self.locked_users.unsubscribed();
        loop {
            self.update(&mut subscription, &mut channels).await?;
            let (due, later) = (self.locked_users.next_due(), Instant::now() + FORGET_EVERY);
            let heard = tokio::select! {
                heard = subscription.next() => Some(heard?),
                () = self.locked_users.changed.notified() => None,
                () = sleep_until(due.unwrap_or(later).min(later)) => None,
            };
            match heard {
                Some(SubscriptionEvent::Message(channel)) => self.wake(channels.get(&channel).copied()),
                Some(SubscriptionEvent::Gap) => {
                    channels.clear();
                    self.locked_users.unsubscribed();
                }
                None => {}
            }
            self.wake(self.locked_users.due(Instant::now()));
        }
    }

    /// Subscribes to the channels of new users, and leaves the channels of users that do not wait any more. Afterwards
    /// the orders of new users are tried: their locks may have ended before.
    async fn update(
        &self,
        subscription: &mut Subscription,
        channels: &mut BTreeMap<String, UserId>,
    ) -> Result<(), RedisError> {
        let is_awaited = |user| self.causes.is_awaited(locked_by_another(user));
        let gone = self.channels(&self.locked_users.forget(Instant::now(), is_awaited));
        subscription.remove(&gone).await?;
        for channel in &gone {
            channels.remove(channel);
        }
        let new = self.locked_users.take_new();
        if new.is_empty() {
            return Ok(());
        }
        let added = self.channels(&new);
        subscription.add(&added).await?;
        channels.extend(added.into_iter().zip(new.iter().copied()));
        self.wake(new);
        Ok(())
    }

    fn wake(&self, ended: impl IntoIterator<Item = UserId>) {
        let woken = self.locked_users.wake(Instant::now(), ended);
        self.causes.wake(woken.into_iter().map(locked_by_another));
    }

    fn channels(&self, users: &[UserId]) -> Vec<String> {
        self.keys.locks(users).iter().map(|key| redisson::channel(&key.as_str_lossy())).collect()
    }
}

//! The users whose locks another holder has, and the listener that has their orders tried again once a lock ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_stream::{Causes, RedisConnectionSettings, RedisError, Subscription, SubscriptionEvent};
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{MissingRights, locked_by_another, redisson};
use crate::{keys::Keys, order::UserId};

/// The highest number of users to listen for. Orders of other users are retried from time to time.
const MOST_USERS: usize = 256;

/// The least time between two wake-ups for one user: a lock may change hands thousands of times in a second.
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// The time after the last refusal until a user without waiting orders is removed.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The time between two removals of such users.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// The time after which a user may lose its place to another user: locks that never end must not keep all places.
const REPLACED_AFTER: Duration = Duration::from_secs(30);

/// The users whose locks another holder has. Lanes add users, and an [`UnlockListener`] listens for them.
#[derive(Debug, Default)]
pub struct LockedUsers {
    users: Mutex<BTreeMap<UserId, Wait>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The time at which the user got its place.
    added: Instant,
    /// The last time at which a lane did not get the lock.
    refused: Instant,
    /// The time at which the lock expires. None: it never expires, or orders of the user are being tried.
    expires: Option<Instant>,
    /// The last wake-up.
    woken: Option<Instant>,
    /// The time of a wake-up that came too soon after the last one.
    put_off: Option<Instant>,
}

impl Wait {
    const fn new(now: Instant, expires: Option<Instant>) -> Self {
        Self { added: now, refused: now, expires, woken: None, put_off: None }
    }

    /// The time at which orders of the user are tried again.
    fn due(&self) -> Option<Instant> {
        self.expires.into_iter().chain(self.put_off).min()
    }
}

impl LockedUsers {
    /// Notes that another holder has the locks of these users, with the time until each lock expires.
    pub(super) fn add(&self, refused: &[(UserId, Option<Duration>)]) {
        let (now, mut users) = (Instant::now(), self.users());
        for &(user, left) in refused {
            let expires = left.map(|left| now + left);
            if let Some(wait) = users.get_mut(&user) {
                (wait.refused, wait.expires) = (now, expires);
            } else if users.len() < MOST_USERS || make_room(&mut users, now) {
                users.insert(user, Wait::new(now, expires));
            }
        }
        self.changed.notify_one();
    }

    /// Removes the users whose orders do not wait any more.
    fn forget(&self, now: Instant, is_awaited: impl Fn(UserId) -> bool) {
        // An order is set aside shortly after its lock is refused.
        self.users().retain(|user, wait| now - wait.refused <= KEPT_FOR || is_awaited(*user));
    }

    fn all(&self) -> BTreeSet<UserId> {
        self.users().keys().copied().collect()
    }

    /// Returns the users to wake now. A user that was woken just before becomes due later.
    fn wake(&self, now: Instant, ended: impl IntoIterator<Item = UserId>) -> Vec<UserId> {
        let mut users = self.users();
        let mut woken = Vec::new();
        for user in ended {
            let Some(wait) = users.get_mut(&user) else { continue };
            match wait.woken.map(|woken| woken + WAKE_EVERY).filter(|next| *next > now) {
                // A time that is over must not be due again meanwhile.
                Some(next) => {
                    wait.put_off = Some(next);
                    wait.expires = wait.expires.filter(|expires| *expires > next);
                }
                None => {
                    (wait.woken, wait.expires, wait.put_off) = (Some(now), None, None);
                    woken.push(user);
                }
            }
        }
        woken
    }

    /// Returns the users whose orders are due.
    fn due(&self, now: Instant) -> Vec<UserId> {
        let is_due = |wait: &Wait| wait.due().is_some_and(|due| due <= now);
        self.users().iter().filter(|(_, wait)| is_due(wait)).map(|(user, _)| *user).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        self.users().values().filter_map(Wait::due).min()
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<UserId, Wait>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the user that has its place for the longest time, if that time is long enough. Returns whether it did.
fn make_room(users: &mut BTreeMap<UserId, Wait>, now: Instant) -> bool {
    let oldest = users.iter().min_by_key(|(_, wait)| wait.added);
    let oldest = oldest.filter(|(_, wait)| now - wait.added > REPLACED_AFTER);
    let Some(user) = oldest.map(|(user, _)| *user) else { return false };
    users.remove(&user).is_some()
}

/// The listener for released and expired locks, over one connection. It wakes the lanes whose orders wait for a lock.
/// Without it, the lanes try these orders from time to time.
#[derive(Debug)]
pub struct UnlockListener {
    locked_users: Arc<LockedUsers>,
    causes: Arc<Causes>,
    keys: Keys,
    connection: RedisConnectionSettings,
    subscription: Option<Subscription>,
    missing_rights: MissingRights,
}

impl UnlockListener {
    /// Creates a listener for the users in `locked_users`, with a connection of its own. It wakes the lanes that share
    /// `causes`. The keys of locks have the names of `keys`.
    #[must_use]
    pub fn new(
        locked_users: Arc<LockedUsers>,
        causes: Arc<Causes>,
        keys: Keys,
        connection: RedisConnectionSettings,
    ) -> Self {
        let missing_rights = MissingRights::default();
        Self { locked_users, causes, keys, connection, subscription: None, missing_rights }
    }

    /// Listens until an error occurs. The next call continues.
    ///
    /// # Errors
    /// Fails if Redis does not answer, or refuses the subscription.
    pub async fn run(&mut self) -> Result<Infallible, RedisError> {
        let mut subscription = match self.subscription.take() {
            Some(subscription) => subscription,
            None => Subscription::open(&self.connection).await?,
        };
        let Err(error) = self.listen(&mut subscription).await;
        self.subscription = Some(subscription);
        self.missing_rights.warn_once(&error);
        Err(error)
    }

    async fn listen(&self, subscription: &mut Subscription) -> Result<Infallible, RedisError> {
        let (mut channels, mut looks) = (BTreeMap::new(), interval(FORGET_EVERY));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.locked_users.next_due();
            tokio::select! {
                event = subscription.next() => match event? {
                    SubscriptionEvent::Received(channel) => self.wake(channels.get(&channel).copied()),
                    SubscriptionEvent::Lagged => self.wake(channels.values().copied()),
                    SubscriptionEvent::Reconnected => {
                        channels.clear();
                        self.update(subscription, &mut channels).await?;
                    }
                },
                () = self.locked_users.changed.notified() => self.update(subscription, &mut channels).await?,
                _ = looks.tick() => self.update(subscription, &mut channels).await?,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
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
        self.locked_users.forget(Instant::now(), is_awaited);
        let users = self.locked_users.all();
        let gone = channels.extract_if(.., |_, user| !users.contains(user));
        subscription.remove(&gone.map(|(channel, _)| channel).collect::<Vec<_>>()).await?;
        let subscribed: BTreeSet<UserId> = channels.values().copied().collect();
        let new: Vec<UserId> = users.difference(&subscribed).copied().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: i64) -> UserId {
        id.try_into().unwrap()
    }

    #[test]
    fn a_wake_up_that_comes_too_soon_is_put_off_once_and_a_refusal_does_not_lose_it() {
        let users = LockedUsers::default();
        users.add(&[(user(1), Some(Duration::ZERO))]);
        let now = Instant::now();
        assert_eq!(users.wake(now, users.due(now)), [user(1)]);
        assert!(users.next_due().is_none() && users.due(now).is_empty());
        // The lock changes hands, and its end comes at the same moment as its message.
        users.add(&[(user(1), Some(Duration::ZERO))]);
        assert!(users.wake(now, users.due(now + WAKE_EVERY / 2)).is_empty());
        users.add(&[(user(1), Some(KEPT_FOR))]);
        assert_eq!(users.next_due(), Some(now + WAKE_EVERY), "this is the only time that is due");
        assert_eq!(users.wake(now + WAKE_EVERY, users.due(now + WAKE_EVERY)), [user(1)]);
        assert!(users.next_due().is_none() && users.wake(now, [user(2)]).is_empty());
    }

    #[test]
    fn users_give_up_their_places_when_nothing_waits_for_them_and_after_a_while_to_others() {
        let users = LockedUsers::default();
        let most = i64::try_from(MOST_USERS).unwrap();
        for id in 1..=most + 1 {
            users.add(&[(user(id), None)]);
        }
        assert_eq!(users.all().len(), MOST_USERS);
        let later = Instant::now() + REPLACED_AFTER * 2;
        assert!(make_room(&mut users.users(), later) && !make_room(&mut users.users(), Instant::now()));
        users.forget(Instant::now(), |_| true);
        assert_eq!(users.all().len(), MOST_USERS - 1, "one user was replaced");
        users.forget(later, |awaited| awaited == user(most));
        assert_eq!(users.all(), BTreeSet::from([user(most)]));
    }
}

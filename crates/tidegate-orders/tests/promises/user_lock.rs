//! Tests of user locks whose calls to Redis are lost or late, or executed without a reply.

use std::time::Duration;

use anyhow::Result;
use fred::{interfaces::LuaInterface, types::FromValue, util::sha1_hash};
use tidegate_lab::Proxy;
use tidegate_orders::{KeyTemplates, RedisStore, UserId, UserLocks};

use crate::fixture::{Fixture, connect, connect_with_patience};

const LOCK: &str = include_str!("../../../../lua/lock.lua");
const UNLOCK: &str = include_str!("../../../../lua/unlock.lua");
/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_millis(300);

/// Two processes: one connects through a proxy, the other directly.
struct Processes {
    fixture: Fixture,
    proxy: Proxy,
    ours: UserLocks,
    theirs: UserLocks,
}

impl Processes {
    async fn start() -> Result<Self> {
        let fixture = Fixture::new().await?;
        for script in [LOCK, UNLOCK] {
            let _sha1: String = fixture.pool.next().script_load(script).await?;
        }
        let proxy = Proxy::start(fixture.redis.port()).await?;
        let locks = |pool| {
            let redis = RedisStore::with_default_names(pool, KeyTemplates::default());
            UserLocks::new(redis, LEASE)
        };
        let ours = locks(connect_with_patience(&proxy.url_for(&fixture.redis), 2, PATIENCE).await?);
        let theirs = locks(connect(&fixture.redis.url(), 2).await?);
        Ok(Self { fixture, proxy, ours, theirs })
    }

    /// Locks these users, and loses the reply. Returns the token.
    async fn lose_the_reply_of_a_lock(&self, users: &[i64]) -> Result<String> {
        let reply = self.proxy.hold_reply_when(sha1_hash(LOCK));
        self.ours.lock(users.iter().map(|id| user(*id))).await.expect_err("no reply in time");
        reply.reached().await?;
        drop(reply);
        reconnected(&self.ours).await?;
        Ok(self.holder(users[0]).await?.expect("the lock was taken"))
    }

    /// Calls a script like a client that repeats its call, or like a slow network.
    async fn call<R: FromValue>(&self, script: &str, users: &[i64], args: &[&str]) -> Result<R> {
        let keys: Vec<String> = users.iter().map(|id| format!("lock:order:{id}")).collect();
        Ok(self.fixture.pool.evalsha(sha1_hash(script), keys, args.to_vec()).await?)
    }

    /// The token that holds the lock of this user.
    async fn holder(&self, user: i64) -> Result<Option<String>> {
        Ok(self.fixture.typed(&format!("GET lock:order:{user}")).await?.convert()?)
    }
}

fn user(id: i64) -> UserId {
    UserId::try_from(id).expect("a user id")
}

/// Whether these locks can lock the user. If so, the user is unlocked again.
async fn may_lock(locks: &UserLocks, id: i64) -> Result<bool> {
    let locked = locks.lock([user(id)]).await?;
    let may = !locked.is_refused(user(id));
    locks.unlock(locked).await;
    Ok(may)
}

/// Waits until the connections work again.
async fn reconnected(locks: &UserLocks) -> Result<()> {
    let began = std::time::Instant::now();
    while let Err(error) = may_lock(locks, 99).await {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(20), "Redis is not back: {error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_batches_of_a_process_exclude_each_other_and_so_do_two_processes() -> Result<()> {
    let at = Processes::start().await?;
    let another_lane = at.ours.clone();
    let locked = at.ours.lock([user(1), user(2)]).await?;
    assert!(!may_lock(&another_lane, 1).await? && !may_lock(&at.theirs, 1).await?);
    at.ours.unlock(locked).await;
    assert!(may_lock(&another_lane, 1).await? && may_lock(&at.theirs, 1).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_taken_and_whose_reply_was_lost_is_no_obstacle_to_the_process_that_took_it()
-> Result<()> {
    let at = Processes::start().await?;
    at.lose_the_reply_of_a_lock(&[1, 2]).await?;
    assert!(!may_lock(&at.theirs, 1).await?, "others wait for its end");

    let again = at.ours.lock([user(1), user(3)]).await?;
    assert!(!again.is_refused(user(1)) && !again.is_refused(user(3)));
    let another_lane = at.ours.clone();
    assert!(!may_lock(&another_lane, 1).await?, "another lane waits for it as for any other");
    assert!(may_lock(&another_lane, 2).await?, "nobody works under the lock whose reply was lost");
    at.ours.unlock(again).await;
    assert!(may_lock(&at.theirs, 1).await? && may_lock(&at.theirs, 2).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_redis_takes_after_its_batch_was_given_up_is_no_obstacle_to_its_process() -> Result<()> {
    let at = Processes::start().await?;
    let late = at.lose_the_reply_of_a_lock(&[1, 2]).await?;
    assert!(may_lock(&at.ours, 1).await? && may_lock(&at.ours, 2).await?);
    let next = at.ours.lock([user(1)]).await?;
    let holder = at.holder(1).await?;

    let refused: Vec<usize> = at.call(LOCK, &[1, 2], &[&late, "600000", "here"]).await?;
    assert_eq!(refused, [1]);
    assert_eq!(at.holder(1).await?, holder, "what the next batch holds stays its own");
    assert!(!may_lock(&at.ours, 1).await? && !may_lock(&at.theirs, 1).await?);
    assert!(!may_lock(&at.theirs, 2).await?, "others wait for its end");
    assert!(may_lock(&at.ours, 2).await?);
    at.ours.unlock(next).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlock_that_comes_late_leaves_the_locks_of_the_next_batch_alone() -> Result<()> {
    let at = Processes::start().await?;
    let first = at.ours.lock([user(1)]).await?;
    let late = at.holder(1).await?.expect("it is locked");
    // The unlock does not reach Redis, and the next batch need not wait for it.
    let held = at.proxy.hold_when(sha1_hash(UNLOCK));
    at.ours.unlock(first).await;
    held.reached().await?;
    reconnected(&at.ours).await?;
    assert!(!may_lock(&at.theirs, 1).await?, "others wait for its end");
    let next = at.ours.lock([user(1)]).await?;
    assert!(!next.is_refused(user(1)));
    let holder = at.holder(1).await?;

    let ended: usize = at.call(UNLOCK, &[1], &[&late, "here"]).await?;
    assert_eq!((ended, at.holder(1).await?), (0, holder));
    at.ours.unlock(next).await;
    assert!(may_lock(&at.theirs, 1).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_worker_that_would_outlast_a_lease_ends_after_one_and_those_of_others_are_left()
-> Result<()> {
    let at = Processes::start().await?;
    // As after the clock of Redis was set back.
    at.fixture.typed("SET lock:order:1 tidegate-0 PX 36000000").await?;
    at.fixture.typed("SET lock:order:2 somebody PX 36000000").await?;
    assert!(!may_lock(&at.ours, 1).await? && !may_lock(&at.ours, 2).await?, "its holder may live");
    let left = async |id: i64| -> Result<i64> {
        Ok(at.fixture.typed(&format!("PTTL lock:order:{id}")).await?.convert()?)
    };
    assert!(left(1).await? <= 600_000);
    assert!(left(2).await? > 600_000);
    Ok(())
}

//! Tests of user locks in both layouts: locks of other programs, and calls to Redis that are lost or late, or executed
//! without a reply.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use fred::{
    interfaces::{HashesInterface, LuaInterface},
    types::FromValue,
    util::sha1_hash,
};
use tidegate_lab::{Proxy, RedisServer};
use tidegate_orders::{KeyTemplates, LockLayout, RedisStore, UserId, UserLocks};
use tidegate_stream::{RedisConnectionSettings, Subscription, SubscriptionEvent};

use crate::fixture::{Fixture, connect, connect_with_patience};

const LOCK: &str = include_str!("../../../../lua/lock.lua");
const UNLOCK: &str = include_str!("../../../../lua/unlock.lua");
const LOCK_REDISSON: &str = include_str!("../../../../lua/lock_redisson.lua");
const UNLOCK_REDISSON: &str = include_str!("../../../../lua/unlock_redisson.lua");
/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_millis(300);

/// Two processes: one connects through a proxy, the other directly.
struct Processes {
    fixture: Fixture,
    proxy: Proxy,
    layout: LockLayout,
    ours: UserLocks,
    theirs: UserLocks,
}

impl Processes {
    async fn start(layout: LockLayout) -> Result<Self> {
        let fixture = Fixture::new().await?;
        for script in [LOCK, UNLOCK, LOCK_REDISSON, UNLOCK_REDISSON] {
            let _sha1: String = fixture.pool.next().script_load(script).await?;
        }
        let proxy = Proxy::start(fixture.redis.port()).await?;
        let locks = |pool| {
            let redis = RedisStore::with_default_names(pool, KeyTemplates::default());
            UserLocks::new(redis, LEASE, layout)
        };
        let ours = locks(connect_with_patience(&proxy.url_for(&fixture.redis), 2, PATIENCE).await?);
        let theirs = locks(connect(&fixture.redis.url(), 2).await?);
        Ok(Self { fixture, proxy, layout, ours, theirs })
    }

    /// The scripts that lock and unlock.
    fn scripts(&self) -> (&'static str, &'static str) {
        match self.layout {
            LockLayout::Tidegate => (LOCK, UNLOCK),
            LockLayout::Redisson => (LOCK_REDISSON, UNLOCK_REDISSON),
        }
    }

    /// Locks these users, and loses the reply. Returns the token.
    async fn lose_the_reply_of_a_lock(&self, users: &[i64]) -> Result<String> {
        let reply = self.proxy.hold_reply_when(sha1_hash(self.scripts().0));
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

    /// Locks these users under this token, once more. Returns the positions of those that another process has locked.
    async fn repeat_a_lock(&self, users: &[i64], token: &str) -> Result<Vec<usize>> {
        match self.layout {
            LockLayout::Tidegate => self.call(LOCK, users, &[token, "600000", "here"]).await,
            LockLayout::Redisson => {
                let refused: Vec<usize> = self.call(LOCK_REDISSON, users, &[token, "600000"]).await?;
                Ok(refused.into_iter().step_by(2).collect())
            }
        }
    }

    /// The token that holds the lock of this user.
    async fn holder(&self, user: i64) -> Result<Option<String>> {
        Ok(match self.layout {
            LockLayout::Tidegate => self.fixture.typed(&format!("GET lock:order:{user}")).await?.convert()?,
            LockLayout::Redisson => {
                let held: BTreeMap<String, u64> = self.hash(user).await?;
                held.into_keys().next()
            }
        })
    }

    async fn hash(&self, user: i64) -> Result<BTreeMap<String, u64>> {
        Ok(self.fixture.typed(&format!("HGETALL lock:order:{user}")).await?.convert()?)
    }

    async fn left_ms(&self, user: i64) -> Result<i64> {
        Ok(self.fixture.typed(&format!("PTTL lock:order:{user}")).await?.convert()?)
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
    for layout in LockLayout::ALL {
        let at = Processes::start(layout).await?;
        let another_lane = at.ours.clone();
        let locked = at.ours.lock([user(1), user(2)]).await?;
        assert!(!may_lock(&another_lane, 1).await? && !may_lock(&at.theirs, 1).await?);
        at.ours.unlock(locked).await;
        assert!(may_lock(&another_lane, 1).await? && may_lock(&at.theirs, 1).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_taken_and_whose_reply_was_lost_is_no_obstacle_to_the_process_that_took_it()
-> Result<()> {
    for layout in LockLayout::ALL {
        let at = Processes::start(layout).await?;
        at.lose_the_reply_of_a_lock(&[1, 2]).await?;
        assert!(!may_lock(&at.theirs, 1).await?, "others wait for its end");

        let again = at.ours.lock([user(1), user(3)]).await?;
        assert!(!again.is_refused(user(1)) && !again.is_refused(user(3)));
        let another_lane = at.ours.clone();
        assert!(!may_lock(&another_lane, 1).await?, "another lane waits for it as for any other");
        assert!(may_lock(&another_lane, 2).await?, "nobody works under the lock whose reply was lost");
        at.ours.unlock(again).await;
        assert!(may_lock(&at.theirs, 1).await? && may_lock(&at.theirs, 2).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_redis_takes_after_its_batch_was_given_up_is_no_obstacle_to_its_process() -> Result<()> {
    for layout in LockLayout::ALL {
        let at = Processes::start(layout).await?;
        let late = at.lose_the_reply_of_a_lock(&[1, 2]).await?;
        assert!(may_lock(&at.ours, 1).await? && may_lock(&at.ours, 2).await?);
        let next = at.ours.lock([user(1)]).await?;
        let holder = at.holder(1).await?;

        assert_eq!(at.repeat_a_lock(&[1, 2], &late).await?, [1]);
        assert_eq!(at.holder(1).await?, holder, "what the next batch holds stays its own");
        assert!(!may_lock(&at.ours, 1).await? && !may_lock(&at.theirs, 1).await?);
        assert!(!may_lock(&at.theirs, 2).await?, "others wait for its end");
        assert!(may_lock(&at.ours, 2).await?);
        at.ours.unlock(next).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlock_that_comes_late_leaves_the_locks_of_the_next_batch_alone() -> Result<()> {
    for layout in LockLayout::ALL {
        let at = Processes::start(layout).await?;
        let (_, unlock) = at.scripts();
        let first = at.ours.lock([user(1)]).await?;
        let late = at.holder(1).await?.expect("it is locked");
        // The unlock does not reach Redis, and the next batch need not wait for it.
        let held = at.proxy.hold_when(sha1_hash(unlock));
        at.ours.unlock(first).await;
        held.reached().await?;
        reconnected(&at.ours).await?;
        assert!(!may_lock(&at.theirs, 1).await?, "others wait for its end");
        let next = at.ours.lock([user(1)]).await?;
        assert!(!next.is_refused(user(1)));
        let holder = at.holder(1).await?;

        let ended: usize = at.call(unlock, &[1], &[&late, "here"]).await?;
        assert_eq!((ended, at.holder(1).await?), (0, holder));
        at.ours.unlock(next).await;
        assert!(may_lock(&at.theirs, 1).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_worker_that_would_outlast_a_lease_ends_after_one_and_those_of_others_are_left()
-> Result<()> {
    for layout in LockLayout::ALL {
        let at = Processes::start(layout).await?;
        // As after the clock of Redis was set back.
        for (user, holder, of_others) in
            [(1, "tidegate-0", "74696465-6761-8000-8000-000000000000:1"), (2, "somebody", "c0ffee:41")]
        {
            let lock = match layout {
                LockLayout::Tidegate => format!("SET lock:order:{user} {holder}"),
                LockLayout::Redisson => format!("HSET lock:order:{user} {of_others} 1"),
            };
            at.fixture.typed(&lock).await?;
            at.fixture.typed(&format!("PEXPIRE lock:order:{user} 36000000")).await?;
        }
        assert!(!may_lock(&at.ours, 1).await? && !may_lock(&at.ours, 2).await?, "its holder may live");
        assert!(at.left_ms(1).await? <= 600_000);
        assert!(at.left_ms(2).await? > 600_000);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_redissons_layout_is_one_field_with_a_count_of_one_and_a_lease() -> Result<()> {
    let at = Processes::start(LockLayout::Redisson).await?;
    let locked = at.ours.lock([user(1)]).await?;
    let holder = at.holder(1).await?.expect("it is locked");
    let (uuid, batch) = holder.split_once(':').expect("the id of a process, and a number");
    assert!(uuid.len() == 36 && batch.parse::<u64>().is_ok(), "{holder}");
    let is_as_taken = async || -> Result<bool> {
        let left_ms = at.left_ms(1).await?;
        Ok(at.hash(1).await? == BTreeMap::from([(holder.clone(), 1)])
            && (590_000..=600_000).contains(&left_ms))
    };
    assert!(is_as_taken().await?);

    // A call that comes twice extends the lease, and does not count up.
    at.fixture.typed("PEXPIRE lock:order:1 1000").await?;
    assert!(at.repeat_a_lock(&[1], &holder).await?.is_empty() && is_as_taken().await?);
    at.ours.unlock(locked).await;
    assert_eq!(at.left_ms(1).await?, -2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_program_is_left_alone_whatever_its_type_and_its_time_is_told() -> Result<()> {
    let at = Processes::start(LockLayout::Redisson).await?;
    for command in [
        "HSET lock:order:1 c0ffee:41 2",
        "PEXPIRE lock:order:1 30000",
        "HSET lock:order:2 c0ffee:41 1",
        "SET lock:order:3 somebody PX 20000",
        "RPUSH lock:order:4 somebody",
        // A fair lock has more keys, and the same hash. A read-write lock has a field more.
        "HSET lock:order:5 mode read c0ffee:41 1",
    ] {
        at.fixture.typed(command).await?;
    }
    let dump = async || -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for user in 1..=5 {
            all.push(at.fixture.typed(&format!("DUMP lock:order:{user}")).await?.convert()?);
        }
        Ok(all)
    };
    let before = dump().await?;
    let locked = at.ours.lock((1..=6).map(user)).await?;
    assert!((1..=5).all(|id| locked.is_refused(user(id))) && !locked.is_refused(user(6)));
    let refused: Vec<i64> = at.call(LOCK_REDISSON, &[1, 2, 3, 4, 5], &["74696465-0:1", "600000"]).await?;
    let times: Vec<i64> = refused.chunks(2).map(|pair| pair[1]).collect();
    assert!((29_000..=30_000).contains(&times[0]) && (19_000..=20_000).contains(&times[2]), "{times:?}");
    assert_eq!((times[1], times[3], times[4]), (-1, -1, -1));
    at.ours.unlock(locked).await;
    assert_eq!(dump().await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_release_of_an_own_lock_is_published() -> Result<()> {
    let at = Processes::start(LockLayout::Redisson).await?;
    let mut subscription = Subscription::open(&RedisConnectionSettings::new(at.fixture.redis.url())).await?;
    let channels = [1, 2, 3].map(|user| format!("redisson_lock__channel:{{lock:order:{user}}}"));
    subscription.add(&channels).await?;
    at.fixture.typed("HSET lock:order:1 c0ffee:41 1").await?;
    let locked = at.ours.lock([user(1), user(2)]).await?;
    at.ours.unlock(locked).await;
    let locked = at.ours.lock([user(3)]).await?;
    at.ours.unlock(locked).await;
    let mut heard = Vec::new();
    while !heard.contains(&SubscriptionEvent::Received(channels[2].clone())) {
        heard.push(subscription.next().await?);
    }
    assert_eq!(heard[0], SubscriptionEvent::Received(channels[1].clone()), "{heard:?}");
    assert!(!heard.contains(&SubscriptionEvent::Received(channels[0].clone())), "{heard:?}");
    assert_eq!(heard.len(), 2, "{heard:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_in_redissons_layout_are_replicated() -> Result<()> {
    let at = Processes::start(LockLayout::Redisson).await?;
    let port = at.fixture.redis.port().to_string();
    let replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start()?;
    let replica = connect(&replica.url(), 1).await?;
    let locked = at.ours.lock([user(1)]).await?;
    let all_is_there = at.fixture.typed("WAIT 1 30000").await?;
    assert_eq!(all_is_there.as_i64(), Some(1), "the replica is there");
    assert_eq!(replica.hgetall::<BTreeMap<String, u64>, _>("lock:order:1").await?, at.hash(1).await?);
    assert_eq!(at.hash(1).await?.len(), 1);
    at.ours.unlock(locked).await;
    Ok(())
}

//! Tests of workers that lock users in the layout of Redisson (`lock.layout = "redisson"`). Most play Redisson with the
//! commands of its scripts; those in `java` run Redisson itself.

mod java;

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::{
    fixture::{Fixture, Worker, until, until_within},
    program::Program,
};

/// The most users that a worker listens for.
const MOST_USERS: i64 = 256;

fn channel(user: i64) -> String {
    format!("redisson_lock__channel:{{lock:order:{user}}}")
}

async fn start(fixture: &Fixture) -> Worker {
    let worker = fixture.worker("w").set("LOCK_LAYOUT", "redisson").start();
    worker.says("worker started").await;
    worker
}

/// Locks a user as Redisson does. Without a lease: for ever.
async fn lock(fixture: &Fixture, user: i64, lease_ms: Option<i64>) {
    fixture.redis_says(&["HSET", &format!("lock:order:{user}"), "c0ffee:41", "1"]).await;
    if let Some(lease_ms) = lease_ms {
        fixture.redis_says(&["PEXPIRE", &format!("lock:order:{user}"), &lease_ms.to_string()]).await;
    }
}

/// Unlocks a user as Redisson does.
async fn unlock(fixture: &Fixture, user: i64) {
    fixture.redis_says(&["DEL", &format!("lock:order:{user}")]).await;
    fixture.redis_says(&["PUBLISH", &channel(user), "0"]).await;
}

/// The number of users that the worker listens for.
async fn listened_for(fixture: &Fixture) -> usize {
    let channels = fixture.redis_says(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]).await;
    channels.into_array().len()
}

async fn is_written(fixture: &Fixture, user: i64) -> bool {
    fixture.orders().await.iter().any(|order| order.user == user)
}

/// Waits until the order of a user is written. Returns the time that it took.
async fn written(fixture: &Fixture, user: i64) -> Duration {
    let began = Instant::now();
    while !is_written(fixture, user).await {
        assert!(began.elapsed() < Duration::from_secs(30), "the order of user {user} is not written");
        sleep(Duration::from_millis(1)).await;
    }
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_a_locked_user_are_written_as_soon_as_the_lock_ends_and_others_do_not_wait() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100).await;
    let _worker = start(&fixture).await;
    for user in 1..=9 {
        lock(&fixture, user, None).await;
        fixture.admit(100 + user, user, 7, 1).await;
    }
    fixture.admit(200, 99, 7, 1).await;
    written(&fixture, 99).await;
    until("the worker listens for all locks", || async { listened_for(&fixture).await == 9 }).await;
    // Without a message, an order is tried every two seconds by now.
    sleep(Duration::from_secs(4)).await;
    assert_eq!(fixture.orders().await.len(), 1);
    let mut times = Vec::new();
    for user in 1..=9 {
        unlock(&fixture, user).await;
        times.push(written(&fixture, user).await);
    }
    assert!(median(times.clone()) < Duration::from_millis(300), "{times:?}");
    fixture.settled().await;
    until("the worker does not listen any more", || async { listened_for(&fixture).await == 0 }).await;
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_a_locked_user_are_tried_when_the_lock_expires() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100).await;
    let _worker = start(&fixture).await;
    let mut times = Vec::new();
    for user in 1..=5 {
        lock(&fixture, user, Some(3_300)).await;
        let expiry = Instant::now() + Duration::from_millis(3_300);
        fixture.admit(100 + user, user, 7, 1).await;
        written(&fixture, user).await;
        assert!(Instant::now() + Duration::from_millis(20) > expiry, "the lock of user {user} was ignored");
        times.push(expiry.elapsed());
    }
    assert!(median(times.clone()) < Duration::from_millis(300), "{times:?}");
    fixture.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_ends_while_the_subscription_is_away_is_noticed_when_it_is_back() {
    let fixture = Fixture::open().await;
    fixture.load(7, 100).await;
    let worker = start(&fixture).await;
    for user in 1..=5 {
        lock(&fixture, user, None).await;
        fixture.admit(100 + user, user, 7, 1).await;
    }
    until("the worker listens", || async { listened_for(&fixture).await == 5 }).await;
    // Without the subscription, an order is tried every two seconds by now.
    sleep(Duration::from_secs(4)).await;
    let mut times = Vec::new();
    for user in [1, 4, 5] {
        fixture.redis_says(&["DEL", &format!("lock:order:{user}")]).await;
        fixture.redis_says(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        times.push(written(&fixture, user).await);
        until("the worker listens again", || async { listened_for(&fixture).await >= 2 }).await;
    }
    assert!(median(times.clone()) < Duration::from_millis(700), "{times:?}");
    unlock(&fixture, 2).await;
    written(&fixture, 2).await;

    // A Redis that starts again has the lock, because it is in its file, and no subscription.
    fixture.redis.kill9().expect("Redis is killed");
    fixture.redis.restart().expect("Redis is back");
    until("the worker listens after a restart", || async { listened_for(&fixture).await >= 1 }).await;
    assert!(!is_written(&fixture, 3).await, "{}", worker.log());
    unlock(&fixture, 3).await;
    written(&fixture, 3).await;
    fixture.settled().await;
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_locked_users_than_a_worker_listens_for_are_tried_from_time_to_time() {
    let fixture = Fixture::open().await;
    fixture.load(7, 1_000).await;
    let _worker = start(&fixture).await;
    for user in 1..=MOST_USERS + 50 {
        lock(&fixture, user, None).await;
        fixture.add_order(1_000 + user, user, 7).await;
    }
    let most = usize::try_from(MOST_USERS).expect("a count");
    until("the worker listens", || async { listened_for(&fixture).await == most }).await;
    fixture.add_order(9_000, 9_000, 7).await;
    written(&fixture, 9_000).await;
    assert_eq!(listened_for(&fixture).await, most);
    // Messages about all of them come at once.
    let script = "for user = 1, ARGV[1] do redis.call('DEL', 'lock:order:' .. user) \
                  redis.call('PUBLISH', 'redisson_lock__channel:{lock:order:' .. user .. '}', '0') end";
    fixture.redis_says(&["EVAL", script, "0", &(MOST_USERS + 50).to_string()]).await;
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), most + 51);
    let stats = fixture.redis_says(&["INFO", "commandstats"]).await.as_string().unwrap_or_default();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_subscribe:calls="));
    let calls: u32 =
        calls.and_then(|rest| rest.split(',').next()).and_then(|calls| calls.parse().ok()).unwrap();
    assert!(calls < 1_000, "the worker subscribed {calls} times");
    // The places are free for others at once.
    until("the worker does not listen any more", || async { listened_for(&fixture).await == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_never_end_keep_no_place_from_others() {
    let fixture = Fixture::open().await;
    fixture.load(7, 1_000).await;
    let _worker = start(&fixture).await;
    for user in 1..=MOST_USERS {
        lock(&fixture, user, None).await;
        fixture.add_order(1_000 + user, user, 7).await;
    }
    let most = usize::try_from(MOST_USERS).expect("a count");
    until("the worker listens", || async { listened_for(&fixture).await == most }).await;
    lock(&fixture, 9_000, None).await;
    fixture.add_order(9_000, 9_000, 7).await;
    let listens = async || {
        let listeners = fixture.redis_says(&["PUBSUB", "NUMSUB", &channel(9_000)]).await.into_array();
        listeners[1].as_i64() == Some(1)
    };
    until_within(Duration::from_secs(60), "another user has got a place", listens).await;
    assert_eq!(listened_for(&fixture).await, most);
    unlock(&fixture, 9_000).await;
    written(&fixture, 9_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_rights_for_channels_writes_orders_and_says_what_it_lacks() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.add_users().await;
    fixture.load(7, 100).await;
    let worker = fixture.worker("w").set("LOCK_LAYOUT", "redisson");
    let worker = worker.set("REDIS_URL", fixture.redis_url_of("tidegate-worker")).start();
    lock(&fixture, 1, Some(60_000)).await;
    fixture.admit(101, 1, 7, 1).await;
    fixture.admit(102, 2, 7, 1).await;
    written(&fixture, 2).await;
    // One line of the locks, and one of the listener.
    let is_told = || worker.log().matches("Redis refuses a command for user locks").count() == 2;
    until("both are told", || async { is_told() }).await;
    unlock(&fixture, 1).await;
    written(&fixture, 1).await;
    fixture.settled().await;

    // The lines of config/redis-users.acl for this layout.
    let acl = include_str!("../../config/redis-users.acl");
    let lines: Vec<&str> = acl.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
    let lines = lines.iter().filter(|line| line.starts_with("ACL SETUSER tidegate-"));
    assert_eq!(lines.clone().count(), 2);
    for line in lines {
        fixture.redis_says(&line.split(' ').collect::<Vec<_>>()).await;
    }
    fixture.redis_says(&["ACL", "LOG", "RESET"]).await;
    assert!(worker.stop().await.success());
    let worker = fixture.worker("w2").set("LOCK_LAYOUT", "redisson");
    let worker = worker.set("REDIS_URL", fixture.redis_url_of("tidegate-worker")).start();
    lock(&fixture, 3, Some(60_000)).await;
    fixture.admit(103, 3, 7, 1).await;
    until("the worker listens", || async { listened_for(&fixture).await == 1 }).await;
    unlock(&fixture, 3).await;
    written(&fixture, 3).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let (redis, mysql) =
        (fixture.redis_url_of("tidegate-operator"), fixture.mysql_url_of("tidegate-operator"));
    let flags = ["--redis-url", &redis, "--mysql-url", &mysql, "--set", "lock.layout=redisson"];
    Program::with_flags(&flags).run("replay --from -1h --to 0s --yes").expect(0);
    let log = fixture.redis_says(&["ACL", "LOG"]).await;
    assert!(log.clone().into_array().is_empty(), "{log:?}");
}

//! One comparison, repair or rebuild at a time in a fleet.

use std::time::Duration;

use anyhow::{Context, bail};
use fred::interfaces::KeysInterface;
use tidegate_compare::{Job, text::printable};
use tidegate_orders::RedisStore;
use tidegate_stream::{HeldLease, Leases, StreamError};
use tokio::time::{Instant, sleep};

/// Until another may begin when the one that had it has died.
const LEASE: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long to wait for somebody else: longer than the lease of one that was killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts to take a lease that its holder ends at the same moment.
const ATTEMPTS: usize = 3;

/// With this begins the name of a worker that looks by itself.
pub const OF_WORKER: &str = "worker ";
/// What is said to whoever typed a command that ended because of it.
pub const LEASE_WAS_LOST: &str =
    "the lease of the reconciler was lost: another comparison, repair or rebuild may be at work, or Redis was away";

/// Whether the lease could be had.
#[derive(Debug)]
pub enum TakenLease {
    /// This process holds it. Whoever changes something ends when it is lost, after the step in progress.
    Held(HeldLease),
    /// Somebody else has it: who, and what that is doing.
    Of(String),
}

/// As [`take_over`], but waits for somebody who is nearly done, or who was killed.
///
/// # Errors
/// When Redis does not answer, or somebody else has it for longer.
pub async fn wait(redis: &RedisStore, who: &str, job: &Job) -> anyhow::Result<HeldLease> {
    let (began, mut is_said) = (Instant::now(), false);
    loop {
        let taken = take_over(redis, who).await.context("Failed to ask Redis who is at work")?;
        let holder = match taken {
            TakenLease::Held(lease) => return Ok(lease),
            TakenLease::Of(holder) => printable(&holder),
        };
        if began.elapsed() > PATIENCE || job.is_stopped() {
            bail!("one comparison, repair or rebuild at a time: {holder} is at it; try again later");
        }
        if !std::mem::replace(&mut is_said, true) {
            job.progress.say(&format!("waiting for {holder}: one comparison, repair or rebuild at a time"));
        }
        sleep(ASK_EVERY).await;
    }
}

/// As [`take`], for a command that somebody has typed: a worker that looks by itself ends its look, and comes again later.
///
/// # Errors
/// When Redis does not answer.
pub async fn take_over(redis: &RedisStore, who: &str) -> Result<TakenLease, StreamError> {
    let taken = take(redis, who).await?;
    if !matches!(&taken, TakenLease::Of(holder) if holder.starts_with(OF_WORKER)) {
        return Ok(taken);
    }
    let token: Option<String> = redis.pool().get(redis.keys().fleet().reconciler()).await?;
    let token = token.filter(|token| token.starts_with(OF_WORKER)).unwrap_or_default();
    Leases::new(redis).end(vec![redis.keys().fleet().reconciler()], &token).await?;
    take(redis, who).await
}

/// Takes the lease `tidegate:reconciler` for `who`, such as `anna@shop: tidegate reconcile`, which others are told meanwhile. As every
/// lease it is politeness: it can be lost, and what must not happen twice is seen to elsewhere.
///
/// # Errors
/// When Redis does not answer.
pub async fn take(redis: &RedisStore, who: &str) -> Result<TakenLease, StreamError> {
    let (leases, key) = (Leases::new(redis), redis.keys().fleet().reconciler());
    let token = format!("{who} {:08x}", rand_number());
    for _ in 0..ATTEMPTS {
        if let Some(lease) = leases.hold(key.clone(), &token, LEASE).await? {
            return Ok(TakenLease::Held(lease));
        }
        // None: its holder ended it after this call was refused.
        if let Some(holder) = redis.pool().get::<Option<String>, _>(&key).await.unwrap_or_default() {
            let who = holder.rsplit_once(' ').map_or(holder.as_str(), |(who, _)| who);
            return Ok(TakenLease::Of(who.to_owned()));
        }
    }
    Ok(TakenLease::Of("a process that has just ended".to_owned()))
}

/// Tells two takers of one name apart.
fn rand_number() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) & 0xffff_ffff).unwrap_or(0)
}

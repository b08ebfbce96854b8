//! The lease for comparisons, repairs and rebuilds: one of them runs at a time in a fleet.

use std::time::Duration;

use anyhow::{Context, bail};
use fred::interfaces::KeysInterface;
use tidegate_compare::{Job, text::printable};
use tidegate_orders::RedisStore;
use tidegate_stream::{LeaseGuard, Leases, StreamError};
use tokio::time::{Instant, sleep};

/// The time after which another process may begin when the holder has died.
const LEASE: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(250);
/// The longest wait for another holder. It is longer than the lease of a killed process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of attempts to take a lease whose holder ends it at the same time.
const ATTEMPTS: usize = 3;

/// The start of the holder's name if a worker compares by itself.
pub const OF_WORKER: &str = "worker ";
/// The message for the operator of a command that ended because it lost the lease.
pub const LEASE_WAS_LOST: &str = "the lease of the reconciler was lost: another comparison, repair or rebuild may be running, or Redis was away";

/// The result of an attempt to take the lease.
#[derive(Debug)]
pub enum TakenLease {
    /// This process holds the lease. If it is lost, a process that changes the stores has to end after the step in
    /// progress.
    Held(LeaseGuard),
    /// Another process has the lease; with its name and its work.
    Of(String),
}

/// Takes the lease as [`take_over`] does, but waits for a holder that is nearly done or was killed.
///
/// # Errors
/// Fails if Redis does not answer, or another process holds the lease for too long.
pub async fn wait(redis: &RedisStore, who: &str, job: &Job) -> anyhow::Result<LeaseGuard> {
    let (began, mut is_said) = (Instant::now(), false);
    loop {
        let taken =
            take_over(redis, who).await.context("Failed to read the lease of the reconciler in Redis")?;
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

/// Takes the lease as [`take`] does, for a command of an operator: if a worker compares by itself, it ends its
/// comparison and repeats it later.
///
/// # Errors
/// Fails if Redis does not answer.
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

/// Takes the lease `tidegate:reconciler` for `who`, such as `anna@shop: tidegate reconcile`, which other processes can
/// read. Like every lease it can be lost, so it only avoids double work: steps that must not happen twice are
/// protected elsewhere.
///
/// # Errors
/// Fails if Redis does not answer.
pub async fn take(redis: &RedisStore, who: &str) -> Result<TakenLease, StreamError> {
    let (leases, key) = (Leases::new(redis), redis.keys().fleet().reconciler());
    let token = format!("{who} {:08x}", rand_number());
    for _ in 0..ATTEMPTS {
        if let Some(lease) = leases.hold(key.clone(), &token, LEASE).await? {
            return Ok(TakenLease::Held(lease));
        }
        // If there is no holder, it ended the lease after this call was refused.
        if let Some(holder) = redis.pool().get::<Option<String>, _>(&key).await.unwrap_or_default() {
            let who = holder.rsplit_once(' ').map_or(holder.as_str(), |(who, _)| who);
            return Ok(TakenLease::Of(who.to_owned()));
        }
    }
    Ok(TakenLease::Of("a process that has just ended".to_owned()))
}

/// Creates a number that distinguishes two holders with the same name.
fn rand_number() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) & 0xffff_ffff).unwrap_or(0)
}

//! The lease for comparisons, repairs and rebuilds. In a fleet, only one of these tasks runs at a time.

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

/// The prefix of the holder's name in the lease on comparisons, if a worker has started the comparison.
pub const OF_WORKER: &str = "worker ";
/// The message to an operator whose command ended because it lost the lease on comparisons and repairs.
pub const LEASE_WAS_LOST: &str = "the lease of the reconciler was lost: another comparison, repair or rebuild may be running, or Redis did not answer; try again later";

/// The result of trying to take the lease that allows one comparison or repair at a time.
#[derive(Debug)]
pub enum TakenLease {
    /// This process holds the lease. If the lease is lost, a process that changes the stores must end after its current
    /// step.
    Held(LeaseGuard),
    /// Another process holds the lease, with the name and the work of that process.
    Of(String),
}

/// Takes the lease on comparisons and repairs as [`take_over`] does. If another process holds the lease, this function
/// waits up to 30 seconds for that process.
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
            bail!(
                "only one comparison, repair or rebuild runs at a time, and {holder} is running; try again later"
            );
        }
        if !std::mem::replace(&mut is_said, true) {
            job.progress.say(&format!("waiting for {holder}: comparisons, repairs, rebuilds run one by one"));
        }
        sleep(ASK_EVERY).await;
    }
}

/// Takes the lease on comparisons and repairs for a command of an operator. If a worker holds the lease for its own
/// comparison, the worker stops that comparison and repeats it later.
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

/// Takes the lease `tidegate:reconciler` in Redis, which prevents two comparisons or repairs at the same time. Other
/// processes can read the holder `who`, such as `anna@shop: tidegate reconcile`. The lease can be lost, so it must not
/// be the only protection of a step.
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
    Ok(TakenLease::Of("another process".to_owned()))
}

/// Creates a number that distinguishes two holders with the same name.
fn rand_number() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) & 0xffff_ffff).unwrap_or(0)
}

//! One comparison, repair or rebuild at a time in a fleet.

use std::time::Duration;

use anyhow::{Context, bail};
use fred::{clients::Pool, interfaces::KeysInterface, types::Key};
use tidegate_compare::{Job, text::printable};
use tidegate_orders::Keys;
use tidegate_stream::{Leases, StreamError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// Until another may begin when the one that had it has died.
const LEASE: Duration = Duration::from_secs(5);
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for somebody else: longer than the lease of one that was killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts to take a lease that its holder ends at the same moment.
const ATTEMPTS: usize = 3;

/// With this begins the name of a worker that looks by itself.
pub const OF_WORKER: &str = "worker ";
/// What is said to whoever typed a command that ended because of it.
pub const LEASE_WAS_LOST: &str =
    "the lease of the reconciler was lost: another look, repair or rebuild may be at work, or Redis was away";

/// Whether it could be had.
#[derive(Debug)]
pub enum TakenLease {
    /// It is held, and renewed until it is ended or dropped.
    Held(ReconcilerLease),
    /// Somebody else has it: who, and what that is doing.
    Of(String),
}

/// The lease `tidegate:reconciler`. As every lease it is politeness: it can be lost, and what must not happen twice is seen to
/// elsewhere.
#[derive(Debug)]
pub struct ReconcilerLease {
    leases: Leases,
    key: Key,
    token: String,
    lost: CancellationToken,
    renewing: JoinHandle<()>,
}

impl ReconcilerLease {
    /// As [`ReconcilerLease::take_over`], but waits for somebody who is nearly done, or who was killed.
    ///
    /// # Errors
    /// When Redis does not answer, or somebody else has it for longer.
    pub async fn wait(redis: &Pool, keys: &Keys, who: &str, job: &Job) -> anyhow::Result<Self> {
        let (began, mut is_said) = (Instant::now(), false);
        loop {
            let taken = Self::take_over(redis, keys, who).await;
            let taken = taken.context("Failed to ask Redis who is at work")?;
            let holder = match taken {
                TakenLease::Held(lease) => return Ok(lease),
                TakenLease::Of(holder) => printable(&holder),
            };
            if began.elapsed() > PATIENCE || job.is_stopped() {
                bail!("one look, repair or rebuild at a time: {holder} is at it; try again later");
            }
            if !std::mem::replace(&mut is_said, true) {
                job.progress.say(&format!("waiting for {holder}: one look, repair or rebuild at a time"));
            }
            sleep(RENEW_EVERY / 4).await;
        }
    }

    /// As [`ReconcilerLease::take`], for a command that somebody has typed: a worker that looks by itself ends its look, and comes
    /// again later.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn take_over(redis: &Pool, keys: &Keys, who: &str) -> Result<TakenLease, StreamError> {
        let taken = Self::take(redis, keys, who).await?;
        if !matches!(&taken, TakenLease::Of(holder) if holder.starts_with(OF_WORKER)) {
            return Ok(taken);
        }
        let token: Option<String> = redis.get(keys.reconciler()).await?;
        let token = token.filter(|token| token.starts_with(OF_WORKER)).unwrap_or_default();
        Leases::new(redis.clone()).end(vec![keys.reconciler()], &token).await?;
        Self::take(redis, keys, who).await
    }

    /// Takes it for `who`, such as `anna@shop: tidegate reconcile`, which others are told meanwhile.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn take(redis: &Pool, keys: &Keys, who: &str) -> Result<TakenLease, StreamError> {
        let (leases, key) = (Leases::new(redis.clone()), keys.reconciler());
        let token = format!("{who} {:08x}", rand_number());
        for _ in 0..ATTEMPTS {
            if leases.take(vec![key.clone()], &token, LEASE).await?.is_empty() {
                let lost = CancellationToken::new();
                let renewing = tokio::spawn(renew(leases.clone(), key.clone(), token.clone(), lost.clone()));
                return Ok(TakenLease::Held(Self { leases, key, token, lost, renewing }));
            }
            // None: its holder ended it after this call was refused.
            if let Some(holder) = redis.get::<Option<String>, _>(&key).await.unwrap_or_default() {
                let who = holder.rsplit_once(' ').map_or(holder.as_str(), |(who, _)| who);
                return Ok(TakenLease::Of(who.to_owned()));
            }
        }
        Ok(TakenLease::Of("a process that has just ended".to_owned()))
    }

    /// Cancelled when somebody else has it, or Redis did not answer for as long as it lasts. Whoever changes something ends
    /// then, after the step in hand.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Ends `job` as a signal does, after the step in hand, when the lease is lost while this is held.
    pub fn stops(&self, job: &Job) -> StoppedWithLease {
        let (lost, stop) = (self.lost.clone(), job.stop.clone());
        StoppedWithLease(tokio::spawn(async move {
            lost.cancelled().await;
            stop.cancel();
        }))
    }

    /// Ends it.
    pub async fn end(self) {
        self.renewing.abort();
        let _by_time = self.leases.end(vec![self.key.clone()], &self.token).await;
    }
}

/// Whoever has it works under a lease.
#[derive(Debug)]
#[must_use]
pub struct StoppedWithLease(JoinHandle<()>);

impl Drop for StoppedWithLease {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for ReconcilerLease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

async fn renew(leases: Leases, key: Key, token: String, lost: CancellationToken) {
    let mut renewed = Instant::now();
    loop {
        sleep(RENEW_EVERY).await;
        let asked = Instant::now();
        match leases.take(vec![key.clone()], &token, LEASE).await {
            Ok(refused) if refused.is_empty() => renewed = asked,
            Ok(_) => break,
            Err(_) if renewed.elapsed() < LEASE => {}
            Err(_) => break,
        }
    }
    lost.cancel();
}

/// Tells two takers of one name apart.
fn rand_number() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) & 0xffff_ffff).unwrap_or(0)
}

//! One run of a change at a time.

use std::time::Duration;

use anyhow::bail;
use fred::types::Key;
use tidegate_compare::Job;
use tidegate_orders::{RedisStore, gate::rebuild_id};
use tidegate_stream::Leases;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

const LEASE: Duration = Duration::from_secs(3);
const RENEW_EVERY: Duration = Duration::from_millis(750);
/// How long to wait for one that was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Held while a change is run.
pub(super) struct ChangeLease {
    leases: Leases,
    key: Key,
    token: String,
    lost: CancellationToken,
    renewing: JoinHandle<()>,
}

impl ChangeLease {
    /// Waits for one that was killed.
    pub(super) async fn take(redis: &RedisStore, job: &Job) -> anyhow::Result<Self> {
        let (leases, key, token) = (Leases::new(redis), redis.keys().partition_change(), rebuild_id());
        let began = Instant::now();
        while !leases.take(vec![key.clone()], &token, LEASE).await?.is_empty() {
            if began.elapsed() > PATIENCE || job.is_stopped() {
                bail!("somebody else is running a change of the partitions ({})", key.as_str_lossy());
            }
            sleep(RENEW_EVERY).await;
        }
        let lost = CancellationToken::new();
        let renewing = tokio::spawn(renew(leases.clone(), key.clone(), token.clone(), lost.clone()));
        Ok(Self { leases, key, token, lost, renewing })
    }

    /// Ends `job` after the step in hand when the lease is lost.
    pub(super) fn stops(&self, job: &Job) -> StoppedWithLease {
        let (lost, stop) = (self.lost.clone(), job.stop.clone());
        StoppedWithLease(tokio::spawn(async move {
            lost.cancelled().await;
            stop.cancel();
        }))
    }

    pub(super) async fn end(self) {
        self.renewing.abort();
        let _by_time = self.leases.end(vec![self.key.clone()], &self.token).await;
    }
}

impl Drop for ChangeLease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Whoever has it works under a lease.
#[must_use]
pub(super) struct StoppedWithLease(JoinHandle<()>);

impl Drop for StoppedWithLease {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn renew(leases: Leases, key: Key, token: String, lost: CancellationToken) {
    let mut renewed = Instant::now();
    loop {
        sleep(RENEW_EVERY).await;
        let asked = Instant::now();
        match leases.take(vec![key.clone()], &token, LEASE).await {
            Ok(refused) if refused.is_empty() => renewed = asked,
            Err(_) if renewed.elapsed() < LEASE => {}
            _ => break,
        }
    }
    lost.cancel();
}

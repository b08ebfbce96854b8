//! The lease that allows one run of a change at a time.

use std::time::Duration;

use anyhow::bail;
use tidegate_compare::Job;
use tidegate_orders::{RedisStore, scripts::rebuild_id};
use tidegate_stream::{LeaseGuard, Leases};
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_millis(750);
/// The time to wait for the lease of a run that was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the lease of a change. If a run was killed, it waits until that run's lease expires.
pub(super) async fn take(redis: &RedisStore, job: &Job) -> anyhow::Result<LeaseGuard> {
    let (leases, key, token) = (Leases::new(redis), redis.keys().partition_list().change(), rebuild_id());
    let began = Instant::now();
    loop {
        if let Some(lease) = leases.hold(key.clone(), &token, LEASE).await? {
            return Ok(lease);
        }
        if began.elapsed() > PATIENCE || job.is_stopped() {
            bail!(
                "another command is changing the partitions ({}): wait until that change ends",
                key.as_str_lossy()
            );
        }
        sleep(ASK_EVERY).await;
    }
}

//! The lease for work that one worker of a fleet does at a time.

use std::time::Duration;

use fred::types::Key;
use tidegate_stream::Leases;
use tokio::time::Instant;

/// The time after which another worker continues when the holder has died.
const LEASE: Duration = Duration::from_secs(3);
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// A lease in Redis for work that one worker of a fleet does at a time. Two holders at the same time do no harm. The
/// work renews the lease itself, so that another worker takes over if a run hangs.
#[derive(Debug)]
pub struct FleetLease {
    leases: Leases,
    key: Key,
    token: String,
    renewed: Option<Instant>,
}

impl FleetLease {
    /// Creates a lease for the worker `name`. The worker does not hold the lease yet.
    pub fn new(leases: Leases, key: Key, name: &str) -> Self {
        let token = format!("{name} {:08x}", rand::random::<u32>());
        Self { leases, key, token, renewed: None }
    }

    /// Takes or renews the lease. Returns false if another worker holds the lease, or Redis does not answer.
    pub async fn hold(&mut self) -> bool {
        if self.renewed.is_some_and(|renewed| renewed.elapsed() < RENEW_EVERY) {
            return true;
        }
        let asked = Instant::now();
        let taken = self.leases.take(vec![self.key.clone()], &self.token, LEASE).await;
        self.renewed = match taken {
            Ok(refused) if refused.is_empty() => Some(asked),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%error, key = ?self.key, "could not read which worker holds the lease in `key`");
                None
            }
        };
        self.renewed.is_some()
    }

    /// Releases the lease, so that another worker can take it at once.
    pub async fn end(self) {
        if self.renewed.is_some() {
            let _by_time = self.leases.end(vec![self.key], &self.token).await;
        }
    }
}

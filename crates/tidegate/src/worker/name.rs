//! The name of a worker process: held by a lease, so that no two live processes read as the same consumers.

use std::time::Duration;

use fred::{clients::Pool, interfaces::KeysInterface, types::Key};
use tidegate_stream::Leases;
use tokio::time::sleep;

/// A live process of the same name.
#[derive(Debug, thiserror::Error)]
#[error(
    "another live worker is named {name:?}: {holder}. Give this one a name of its own (worker.name / \
     TIDEGATE_WORKER_NAME), or stop the other"
)]
pub struct NameTaken {
    name: String,
    holder: String,
}

/// The name, while this process holds it.
#[derive(Debug)]
pub struct Name {
    leases: Leases,
    pool: Pool,
    key: Key,
    name: String,
    token: String,
    ttl: Duration,
}

impl Name {
    /// The name `name`, kept at `key` for `ttl` after each heartbeat. Not held yet.
    pub fn new(leases: Leases, pool: Pool, key: Key, name: &str, ttl: Duration) -> Self {
        let token = format!(
            "pid {} on {} since {} ({:08x})",
            std::process::id(),
            gethostname::gethostname().display(),
            jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            rand::random::<u32>()
        );
        Self { leases, pool, key, name: name.to_owned(), token, ttl }
    }

    /// Takes the name. A killed process leaves its heartbeat behind for a while: that is waited for. A heartbeat
    /// that beats in the meantime belongs to a live process.
    pub async fn take(&self) -> anyhow::Result<()> {
        let mut remaining = None;
        while !self.beat().await? {
            let holder: Option<String> = self.pool.get(self.key.clone()).await?;
            let left_ms: i64 = self.pool.pttl(self.key.clone()).await?;
            let holder = holder.unwrap_or_default();
            match remaining {
                None => tracing::info!(
                    name = self.name,
                    holder,
                    "the name has a heartbeat: waiting to see whether its process is alive"
                ),
                // Longer than before: it beats. Without end: no process of ours wrote it, and it never ends by itself.
                Some(before_ms) if left_ms > before_ms || left_ms == -1 => {
                    return Err(NameTaken { name: self.name.clone(), holder }.into());
                }
                Some(_) => {}
            }
            remaining = Some(left_ms);
            sleep(self.ttl / 20).await;
        }
        Ok(())
    }

    /// Renews the name. False when another process holds it.
    async fn beat(&self) -> fred::prelude::FredResult<bool> {
        Ok(self.leases.take(vec![self.key.clone()], &self.token, self.ttl).await?.is_empty())
    }

    /// Renews the name for ever; returns when another process has taken it, which happens only when this one
    /// was asleep, or cut off from Redis, for longer than the heartbeat lives.
    pub async fn keep(&self) -> NameTaken {
        loop {
            sleep(self.ttl / 3).await;
            match self.beat().await {
                Ok(true) => {}
                Ok(false) => {
                    let holder: Option<String> = self.pool.get(self.key.clone()).await.unwrap_or_default();
                    return NameTaken { name: self.name.clone(), holder: holder.unwrap_or_default() };
                }
                Err(error) => tracing::debug!(%error, "no heartbeat: Redis does not answer"),
            }
        }
    }

    /// Gives the name back, so that the next process need not wait.
    pub async fn give_back(&self) {
        if let Err(error) = self.leases.end(vec![self.key.clone()], &self.token).await {
            tracing::debug!(%error, "the name was not given back: its heartbeat ends by time");
        }
    }
}

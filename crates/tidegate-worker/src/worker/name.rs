//! The name of a worker process: held by a lease, so that no two live processes read as the same consumers.

use std::time::{Duration, Instant};

use fred::{interfaces::KeysInterface, types::Key};
use tidegate_orders::{RedisStore, event::KNOWS_EVENTS};
use tidegate_stream::{Leases, Outage, ReplicaProbe};
use tokio::time::sleep;

/// Stands in a token before the milliseconds for which each heartbeat of its process lasts.
const HEARTBEAT: &str = ", heartbeat ";

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
    redis: RedisStore,
    key: Key,
    name: String,
    token: String,
    ttl: Duration,
}

impl Name {
    /// The name `name`, kept at `key` for `ttl` after each heartbeat. Not held yet.
    pub fn new(leases: Leases, redis: RedisStore, key: Key, name: &str, ttl: Duration) -> Self {
        let token = format!(
            "pid {} on {} since {}{KNOWS_EVENTS}{HEARTBEAT}{} ms ({:08x})",
            std::process::id(),
            gethostname::gethostname().display(),
            jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            ttl.as_millis(),
            rand::random::<u32>()
        );
        Self { leases, redis, key, name: name.to_owned(), token, ttl }
    }

    /// Takes the name. A killed process leaves its heartbeat behind for a while: that is waited for. A heartbeat
    /// that beats in the meantime belongs to a live process.
    pub async fn take(&self) -> anyhow::Result<()> {
        let (began, mut remaining) = (Instant::now(), None);
        while !self.beat().await? {
            let holder = self.holder().await?;
            let left_ms: i64 = self.redis.pool().pttl(self.key.clone()).await?;
            let holder = holder.unwrap_or_default();
            match remaining {
                None => tracing::info!(
                    name = self.name,
                    holder,
                    "the name has a heartbeat: waiting to see whether its process is alive"
                ),
                // Without end: no process of ours wrote it, and it never ends by itself.
                Some(_) if left_ms == -1 => {
                    return Err(self.is_in_the_way(&format!("{holder:?}, which never ends")));
                }
                // Longer than any heartbeat of it lasts: the clock of Redis was set back. If it has not beaten since, it
                // is dead, and what it left would stay for as long as the clock went back.
                Some(_) if left_ms > heartbeat_ms(&holder, self.ttl) => {
                    if i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX)
                        > heartbeat_ms(&holder, self.ttl)
                        && self.take_over(&holder).await?
                    {
                        return Ok(());
                    }
                }
                // Longer than before: it beats.
                Some(before_ms) if left_ms > before_ms => return Err(self.taken_by(holder)),
                Some(_) => {}
            }
            remaining = Some(left_ms);
            sleep(self.ttl / 20).await;
        }
        Ok(())
    }

    /// Takes the name from a dead process. False when it has changed hands meanwhile.
    async fn take_over(&self, holder: &str) -> fred::prelude::FredResult<bool> {
        let (keys, holder) = (vec![self.key.clone()], holder.to_owned());
        let is_taken = self.leases.take_over(keys, &self.token, self.ttl, &[holder]).await?.is_empty();
        if is_taken {
            tracing::warn!(
                name = self.name,
                "the name of a dead process is taken over: the clock of Redis was set back"
            );
        }
        Ok(is_taken)
    }

    fn taken_by(&self, holder: String) -> anyhow::Error {
        NameTaken { name: self.name.clone(), holder }.into()
    }

    /// What holds the name; an error where that is no heartbeat.
    async fn holder(&self) -> anyhow::Result<Option<String>> {
        match self.redis.pool().get(self.key.clone()).await {
            Err(error) if error.details().contains("WRONGTYPE") => {
                let kind: String = self.redis.pool().r#type(self.key.clone()).await?;
                Err(self.is_in_the_way(&format!("a {kind}")))
            }
            holder => Ok(holder?),
        }
    }

    /// No worker wrote what the key holds.
    fn is_in_the_way(&self, what: &str) -> anyhow::Error {
        let (name, key) = (&self.name, self.key.as_str_lossy());
        anyhow::anyhow!(
            "the name {name:?} cannot be had: the key of its heartbeat, {key}, holds {what}, and no worker wrote that. See \
             whose it is, then type: redis-cli DEL {key}"
        )
    }

    /// Renews the name. False when another process holds it.
    async fn beat(&self) -> fred::prelude::FredResult<bool> {
        Ok(self.leases.take(vec![self.key.clone()], &self.token, self.ttl).await?.is_empty())
    }

    /// Whether replicas have all that is written by now. Renews the name for that.
    pub async fn is_replicated(&self, probe: &ReplicaProbe) -> Result<(), Outage> {
        probe.replicas_have_all(self.key.clone(), &self.token, self.ttl).await
    }

    /// Renews the name for ever; returns when another process has taken it, which happens only when this one
    /// was asleep, or cut off from Redis, for longer than the heartbeat lives.
    pub async fn keep(&self) -> NameTaken {
        loop {
            sleep(self.ttl / 3).await;
            match self.beat().await {
                Ok(true) => {}
                Ok(false) => {
                    let holder: Option<String> =
                        self.redis.pool().get(self.key.clone()).await.unwrap_or_default();
                    return NameTaken { name: self.name.clone(), holder: holder.unwrap_or_default() };
                }
                Err(error) => tracing::debug!(%error, "no heartbeat: Redis does not answer"),
            }
        }
    }

    /// Returns the name, so that the next process need not wait.
    pub async fn release(&self) {
        if let Err(error) = self.leases.end(vec![self.key.clone()], &self.token).await {
            tracing::debug!(%error, "the name was not released: its heartbeat ends by time");
        }
    }
}

/// For how long each heartbeat of this holder lasts, in milliseconds; as long as ours if its token does not say.
fn heartbeat_ms(holder: &str, ours: Duration) -> i64 {
    let told = holder.rsplit_once(HEARTBEAT).and_then(|(_, rest)| rest.split_once(" ms"));
    let told = told.and_then(|(ms, _)| ms.parse().ok());
    told.unwrap_or_else(|| i64::try_from(ours.as_millis()).unwrap_or(i64::MAX))
}

//! The name of a worker process. A lease protects it, so that no two live processes read as the same consumers.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use fred::{interfaces::KeysInterface, types::Key};
use tidegate_orders::{
    LockLayout, RedisStore,
    event::KNOWS_EVENTS,
    work_in_progress::{HEARTBEAT_LOCKS, HEARTBEAT_VERSION},
};
use tidegate_stream::{Leases, Outage, ReplicaProbe};
use tokio::time::sleep;

use crate::settings::WorkerSettings;

/// The text in a token before the milliseconds that each heartbeat of its process lasts.
const HEARTBEAT: &str = ", heartbeat ";

/// The version of this program. If the variable `BUILD_COMMIT` was set when the program was built, its value follows.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("BUILD_COMMIT").unwrap_or_default();
    format!("{} {commit}", env!("CARGO_PKG_VERSION")).trim_end().to_owned()
});

/// The error that a live process with the same name exists.
#[derive(Debug, thiserror::Error)]
#[error(
    "another live worker is named {name:?}: {holder}. Give this worker another name (worker.name / \
     TIDEGATE_WORKER_NAME), or stop the other worker"
)]
pub struct NameTaken {
    name: String,
    holder: String,
}

/// The name of this worker process, with the heartbeat in Redis by which the process reserves the name.
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
    /// Creates the reservation of the name in the settings. The reservation expires `heartbeat_ttl` after the last
    /// heartbeat. The process has not reserved the name yet. The heartbeat names the `layout` of user locks.
    pub fn new(
        leases: Leases,
        redis: RedisStore,
        key: Key,
        WorkerSettings { name, heartbeat_ttl: ttl, .. }: &WorkerSettings,
        layout: LockLayout,
    ) -> Self {
        let token = format!(
            "pid {} on {} since {}{KNOWS_EVENTS}{HEARTBEAT_VERSION}{}{HEARTBEAT_LOCKS}{}{HEARTBEAT}{} ms ({:08x})",
            std::process::id(),
            gethostname::gethostname().display(),
            jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            *VERSION,
            layout.word(),
            ttl.as_millis(),
            rand::random::<u32>()
        );
        Self { leases, redis, key, name: name.clone(), token, ttl: *ttl }
    }

    /// Reserves the consumer name for this worker. If a killed process had the name, this function waits until the
    /// heartbeat of that process expires. If a living process has the name, this function fails.
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
                    "the name of this worker has a heartbeat: checking whether another live process has this name"
                ),
                // The key has no expiry: no worker wrote it, and it never ends by itself.
                Some(_) if left_ms == -1 => {
                    return Err(self.is_in_the_way(&format!("{holder:?}, which never expires")));
                }
                // The key lasts longer than any heartbeat of its holder: the clock of Redis was set back. If the
                // holder has not renewed it since, it is dead, and its key would last for as long as the clock went
                // back.
                Some(_) if left_ms > heartbeat_ms(&holder, self.ttl) => {
                    if i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX)
                        > heartbeat_ms(&holder, self.ttl)
                        && self.take_over(&holder).await?
                    {
                        return Ok(());
                    }
                }
                // The key lasts longer than at the last check: its process renews it.
                Some(before_ms) if left_ms > before_ms => return Err(self.taken_by(holder)),
                Some(_) => {}
            }
            remaining = Some(left_ms);
            sleep(self.ttl / 20).await;
        }
        Ok(())
    }

    /// Takes the name from a dead process. False: the holder has changed meanwhile.
    async fn take_over(&self, holder: &str) -> fred::prelude::FredResult<bool> {
        let (keys, holder) = (vec![self.key.clone()], holder.to_owned());
        let is_taken = self.leases.take_over(keys, &self.token, self.ttl, &[holder]).await?.is_empty();
        if is_taken {
            tracing::warn!(
                name = self.name,
                "took over the name of a dead process; the clock of Redis was set back, so the name had not expired"
            );
        }
        Ok(is_taken)
    }

    fn taken_by(&self, holder: String) -> anyhow::Error {
        NameTaken { name: self.name.clone(), holder }.into()
    }

    /// Reads the holder of the name. Fails if the key holds no heartbeat.
    async fn holder(&self) -> anyhow::Result<Option<String>> {
        match self.redis.pool().get(self.key.clone()).await {
            Err(error) if error.details().contains("WRONGTYPE") => {
                let kind: String = self.redis.pool().r#type(self.key.clone()).await?;
                Err(self.is_in_the_way(&format!("a {kind}")))
            }
            holder => Ok(holder?),
        }
    }

    /// Creates the error that the key holds a value that no worker wrote.
    fn is_in_the_way(&self, what: &str) -> anyhow::Error {
        let (name, key) = (&self.name, self.key.as_str_lossy());
        anyhow::anyhow!(
            "the name {name:?} cannot be taken: the key of its heartbeat, {key}, holds {what}. No worker wrote \
             this value. Find out which program wrote it, then type: redis-cli DEL {key}"
        )
    }

    /// Renews the name. False: another process holds it.
    async fn beat(&self) -> fred::prelude::FredResult<bool> {
        Ok(self.leases.take(vec![self.key.clone()], &self.token, self.ttl).await?.is_empty())
    }

    /// Checks whether the Redis replicas have all writes up to now. The check includes a renewal of the heartbeat.
    pub async fn is_replicated(&self, probe: &ReplicaProbe) -> Result<(), Outage> {
        probe.replicas_have_all(self.key.clone(), &self.token, self.ttl).await
    }

    /// Renews the heartbeat of the name repeatedly. Returns only if another process has the name now, because this
    /// process was suspended, or cut off from Redis, for longer than a heartbeat lasts.
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
                Err(error) => tracing::debug!(%error, "could not renew the heartbeat: Redis does not answer"),
            }
        }
    }

    /// Gives up the reserved name, so that the next process with this name does not wait.
    pub async fn release(&self) {
        if let Err(error) = self.leases.end(vec![self.key.clone()], &self.token).await {
            tracing::debug!(%error, "could not release the worker's name: its heartbeat has to expire first");
        }
    }
}

/// The milliseconds that each heartbeat of this holder lasts; as long as ours if its token does not say.
fn heartbeat_ms(holder: &str, ours: Duration) -> i64 {
    let told = holder.rsplit_once(HEARTBEAT).and_then(|(_, rest)| rest.split_once(" ms"));
    let told = told.and_then(|(ms, _)| ms.parse().ok());
    told.unwrap_or_else(|| i64::try_from(ours.as_millis()).unwrap_or(i64::MAX))
}

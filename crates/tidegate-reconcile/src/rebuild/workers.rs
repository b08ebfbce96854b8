//! The wait for entries that workers have already read. If Redis has lost its data, these entries may be missing in the
//! stream, although a worker still writes them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{RedisStore, work_in_progress};
use tidegate_stream::server_time_ms;
use tokio::time::{Instant, sleep};

/// The time within which a live worker reports its work in progress again, after Redis has lost its data.
const REAPPEARS_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const SAY_EVERY: Duration = Duration::from_secs(5);

/// The result of waiting for workers before a rebuild: finished, stopped, or not finished in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Workers have no entries in progress that they read before the wait began.
    Done,
    /// The caller stopped the wait.
    Stopped,
    /// These workers live, but do not report their work in progress, because they are of an older version or hang.
    Silent(Vec<String>),
}

/// Waits until all living workers have finished the entries that they had read before this call. Workers in `despite`
/// are ignored.
///
/// # Errors
/// Fails if Redis does not answer.
pub async fn wait(redis: &RedisStore, despite: &[String], job: &Job) -> anyhow::Result<Waited> {
    let began_ms = server_time_ms(redis.pool()).await.context("Failed to read the clock of Redis")?;
    let (began, mut said, mut told) = (Instant::now(), None::<Instant>, BTreeSet::new());
    loop {
        sleep(LOOK_EVERY).await;
        let mut workers = work_in_progress::read_all(redis).await.context("Failed to read the heartbeats")?;
        let is_known = began.elapsed() >= REAPPEARS_WITHIN;
        told.extend(workers.iter().filter(|(_, work)| work.is_some()).map(|(name, _)| name.clone()));
        // A worker that reported its work before and does not any more was killed: its heartbeat may last longer.
        workers.retain(|name, work| !despite.contains(name) && (work.is_some() || !told.contains(name)));
        let silent: BTreeSet<&String> =
            workers.iter().filter(|(_, work)| work.is_none()).map(|(name, _)| name).collect();
        let busy: Vec<(&String, Option<u64>)> = workers
            .iter()
            .filter_map(|(name, work)| Some((name, (*work)?)))
            .filter(|(_, work)| !work.is_after(began_ms))
            .map(|(name, work)| (name, work.since_ms))
            .collect();
        if is_known && busy.is_empty() {
            return Ok(match silent.is_empty() {
                true => Waited::Done,
                false => Waited::Silent(silent.into_iter().cloned().collect()),
            });
        }
        if is_known && said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            said = Some(Instant::now());
            let worker = |(name, since_ms): &(&String, Option<u64>)| match since_ms {
                Some(since_ms) => {
                    let age_s = began_ms.saturating_sub(*since_ms) / 1000 + began.elapsed().as_secs();
                    format!("{name} (for {})", counted(age_s, "second"))
                }
                None => (*name).clone(),
            };
            let names: Vec<String> = busy.iter().map(worker).collect();
            job.progress.say(&format!(
                "waiting for workers whose batch in progress began before the rebuild: {}",
                names.join(", ")
            ));
        }
        if job.is_stopped() {
            return Ok(Waited::Stopped);
        }
    }
}

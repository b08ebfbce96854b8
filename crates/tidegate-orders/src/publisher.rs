//! Publishes results: appends them to the results stream after their commit, and before their entries are acknowledged.
//!
//! Redis may refuse to take results (no memory, a key of another type, no permission). No order waits for that: the
//! publisher stores the refused results in MySQL, and publishes them later. If Redis does not answer, the batch comes
//! again, and so do its results.

mod burial;
mod counters;
mod new_entries;
mod pruner;
mod unpublished;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fred::{
    clients::Pool,
    error::{Error, ErrorKind},
    types::Value,
};
use futures_util::future::join_all;
use sqlx::MySqlPool;
use tidegate_stream::{Entry, Outage, RedisError, Script};

pub use self::{burial::of_buried, counters::ResultCounters, pruner::ResultsPruner};
use self::{
    new_entries::NewEntries,
    unpublished::{Taken, Unpublished},
};
use crate::{
    partition::Partition,
    results::{OrderResult, Published, ResultState},
    wire::{FieldNames, result_fields},
};

/// The interval at which the log says that Redis refuses results.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The publisher of order results to the results stream. Clones share their counters.
#[derive(Clone, Debug)]
pub struct Publisher {
    pool: Pool,
    script: Script,
    key: String,
    published: Published,
    unpublished: Unpublished,
    counters: Arc<ResultCounters>,
    said: Arc<Mutex<Option<Instant>>>,
}

/// The current time in Unix milliseconds, for [`OrderResult::at_ms`].
#[must_use]
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The outcome of an attempt to publish results that MySQL stores because Redis refused them before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// MySQL stores no results for a later try.
    None,
    /// Some results were published now. MySQL may store more results.
    Published,
    /// Redis still refuses the results.
    Refused,
}

impl Publisher {
    /// Creates a publisher that appends results to the stream `key`. `published` selects which results it publishes. If
    /// Redis refuses results, the publisher stores them in the database behind `mysql`, with `timeout` as the longest
    /// time of a statement.
    #[must_use]
    pub fn new(
        pool: Pool,
        key: impl Into<String>,
        published: Published,
        (mysql, timeout): (MySqlPool, Duration),
    ) -> Self {
        Self {
            pool,
            script: Script::new("publish", include_str!("../../../lua/publish.lua")),
            key: key.into(),
            published,
            unpublished: Unpublished::new(mysql, timeout),
            counters: Arc::default(),
            said: Arc::default(),
        }
    }

    /// Returns a copy of the publisher for one partition of a system. Of the results that MySQL stores for a later try,
    /// the copy publishes only results of this partition.
    #[must_use]
    pub fn of_partition(self, partition: Partition) -> Self {
        Self { unpublished: self.unpublished.of_partition(partition), ..self }
    }

    /// Returns a copy of the publisher with other connections to MySQL.
    #[must_use]
    pub fn over(self, mysql: MySqlPool) -> Self {
        Self { unpublished: self.unpublished.over(mysql), ..self }
    }

    /// The setting that selects which results the publisher publishes.
    #[must_use]
    pub fn published(&self) -> Published {
        self.published
    }

    /// Publishes the result of an entry that is buried: moved to the dead letters for the given reason. If the
    /// publisher does not publish such results, or if the entry does not name its order, the call does nothing.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub async fn publish_burial(
        &self,
        names: &FieldNames,
        entry: &Entry,
        reason: &'static str,
    ) -> Result<(), Outage> {
        let result = of_buried(names, entry, reason, now_ms());
        self.publish(result.filter(|result| self.published.includes(result.state)).as_slice()).await
    }

    /// The counters of the results that the publisher has published, and of the results that it has stored in MySQL.
    #[must_use]
    pub fn counters(&self) -> &Arc<ResultCounters> {
        &self.counters
    }

    /// Publishes results in one round trip. If Redis refuses results, the call stores them in MySQL. Without results,
    /// the call sends no command.
    ///
    /// # Errors
    /// If a store does not answer. Each result may be published or not, and must be published again.
    pub async fn publish(&self, results: &[OrderResult]) -> Result<(), Outage> {
        if results.is_empty() {
            return Ok(());
        }
        let mut entries = NewEntries::default();
        for result in results {
            entries.add(|put| result_fields(result, put));
        }
        let replies = self.append(entries).await?;
        let mut refused = Vec::new();
        let mut why = None;
        for (result, reply) in results.iter().zip(replies) {
            match reply {
                Ok(()) => self.counters.published(result.state),
                Err(error) => {
                    refused.push(result);
                    why = Some(error);
                }
            }
        }
        let Some(why) = why else { return Ok(()) };
        self.unpublished.remember(&refused).await?;
        self.counters.remembered(refused.len());
        self.log_refused(refused.len(), &why);
        Ok(())
    }

    /// Counts the results that MySQL stores for a later try. The count stops at 10,000.
    ///
    /// # Errors
    /// If MySQL does not answer.
    pub async fn unpublished(&self) -> Result<usize, Outage> {
        self.unpublished.count().await
    }

    /// Publishes some of the results that MySQL stores because Redis refused them, oldest first. Several processes may
    /// do this at the same time.
    ///
    /// # Errors
    /// If a store does not answer. Results that were published but not deleted are published again.
    pub async fn publish_remembered(&self) -> Result<Remembered, Outage> {
        let remembered = self.unpublished().await?;
        self.counters.set_unpublished(remembered);
        if remembered == 0 {
            return Ok(Remembered::None);
        }
        let Taken { deleted, states, refused } =
            self.unpublished.take(async |entries| self.append(entries).await).await?;
        for state in states.iter().filter_map(|state| ResultState::from_word(state)) {
            self.counters.published(state);
        }
        if !states.is_empty() {
            tracing::info!(count = states.len(), "results that Redis had refused before are now published");
        }
        match refused {
            Some(why) => {
                self.log_refused(remembered - deleted.min(remembered), &why);
                Ok(Remembered::Refused)
            }
            None if deleted == 0 => Ok(Remembered::None),
            None => Ok(Remembered::Published),
        }
    }

    /// Appends entries in one go. The answer for each entry is that Redis took it, or the error with which Redis
    /// refused it.
    async fn append(&self, entries: NewEntries) -> Result<Vec<Result<(), RedisError>>, Outage> {
        // One connection is used, so that the stream mostly has them in this order.
        let client = self.pool.next();
        let calls = entries.calls().into_iter().map(async |(count, arguments)| {
            let reply = self.script.call_over(client, vec![self.key.as_str().into()], arguments).await;
            (count, reply)
        });
        let mut replies = Vec::new();
        for (count, reply) in join_all(calls).await {
            let (appended, refusal) = match reply {
                Ok(reply) => appended(reply, count)?,
                Err(error) => (0, Some(RedisError::from(error))),
            };
            replies.extend((0..appended).map(|_| Ok(())));
            if let Some(error) = refusal {
                if !error.is_refusal() && !error.is_denied_within_script() {
                    return Err(error.into());
                }
                replies.resize(replies.len() + count - appended, Err(error));
            }
        }
        Ok(replies)
    }

    /// Logs that Redis refuses results, at most once a minute, because Redis may refuse every batch.
    fn log_refused(&self, count: usize, why: &RedisError) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| said.elapsed() < SAID_EVERY) {
            return;
        }
        *said = Some(Instant::now());
        tracing::error!(
            count, key = self.key, error = %why,
            "Redis does not take results: the table tidegate_unannounced_result keeps the results until Redis takes them; \
             see docs/runbook/results-are-not-published.md"
        );
    }
}

/// Reads the reply of `lua/publish.lua` to `count` results: how many it appended, and the error of the next one. If the
/// reply leaves a result open, it is an outage: a result that wrongly counts as published is never published again.
fn appended(reply: Value, count: usize) -> Result<(usize, Option<RedisError>), Outage> {
    let parts: &[Value] = if let Value::Array(parts) = &reply { parts } else { &[] };
    let appended = parts.first().and_then(Value::as_usize);
    let refusal = parts.get(1).and_then(Value::as_string);
    match (appended, refusal) {
        (Some(appended), None) if appended == count => Ok((appended, None)),
        (Some(appended), Some(text)) if appended < count => {
            Ok((appended, Some(RedisError::from(Error::new(ErrorKind::Unknown, text)))))
        }
        _ => Err(Outage::new("Redis", format!("publish.lua replied {reply:?} to {count} results"))),
    }
}

//! Publishes results: appends them to the results stream after their commit and before their entries are acknowledged.
//!
//! Redis may refuse to take them (no memory, a key of another type, no permission). That holds up no order: what was refused
//! is remembered in MySQL, and published later. Where Redis does not answer, the batch comes again, and so do its results.

mod burial;
mod counters;
mod new_entries;
mod trimmer;
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

pub use self::{burial::of_buried, counters::ResultCounters, trimmer::ResultsTrimmer};
use self::{
    new_entries::NewEntries,
    unpublished::{Taken, Unpublished},
};
use crate::{
    partition::Partition,
    results::{Published, OrderResult, ResultState},
    wire::{FieldNames, result_fields},
};

/// How often the log says that results are not taken.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Publishes results. Clones share their counters.
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

/// When something is found out, for [`OrderResult::at_ms`].
#[must_use]
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// What became of the results that were remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// There is none.
    None,
    /// Some were published now; there may be more.
    Published,
    /// Redis still does not take them.
    Refused,
}

impl Publisher {
    /// Appends to the stream `key` what `published` includes, and remembers in the database behind `mysql` what Redis refuses.
    /// A statement there takes no longer than `timeout`.
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

    /// The same publisher, for one partition of a system: what MySQL remembers for others is theirs.
    #[must_use]
    pub fn of_partition(self, partition: Partition) -> Self {
        Self { unpublished: self.unpublished.of_partition(partition), ..self }
    }

    /// The same publisher, which remembers over other connections.
    #[must_use]
    pub fn over(self, mysql: MySqlPool) -> Self {
        Self { unpublished: self.unpublished.over(mysql), ..self }
    }

    /// Which results it publishes.
    #[must_use]
    pub fn published(&self) -> Published {
        self.published
    }

    /// Publishes what becomes of an entry that is buried for this reason, where that is published and it says of which order.
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

    /// What it has published and remembered.
    #[must_use]
    pub fn counters(&self) -> &Arc<ResultCounters> {
        &self.counters
    }

    /// Publishes results, in one round trip, or remembers them where Redis refuses them. Without results, nothing is called.
    ///
    /// # Errors
    /// When a store does not answer: each may be published or not, and is to be published again.
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

    /// How many results MySQL remembers; of more than 10,000, so many.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn unpublished(&self) -> Result<usize, Outage> {
        self.unpublished.count().await
    }

    /// Publishes some of the results that were remembered, oldest first. Several processes may do so at the same time.
    ///
    /// # Errors
    /// When a store does not answer; those that were published and not deleted are published once more.
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
            tracing::info!(count = states.len(), "results published that Redis had refused before");
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

    /// Appends entries in one go. Answers for each whether Redis took it, or with what it refused it.
    async fn append(&self, entries: NewEntries) -> Result<Vec<Result<(), RedisError>>, Outage> {
        // Over one connection: so they mostly stand in the stream in this order.
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

    /// At most a line a minute: every batch may be refused.
    fn log_refused(&self, count: usize, why: &RedisError) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| said.elapsed() < SAID_EVERY) {
            return;
        }
        *said = Some(Instant::now());
        tracing::error!(
            count, key = self.key, error = %why,
            "Redis does not take results: they are remembered in MySQL, in tidegate_unannounced_result, and published later; \
             see docs/runbook/results-are-not-published.md"
        );
    }
}

/// What `lua/publish.lua` replied of `count` results: how many it has appended, and with what the next one was refused. Whatever
/// leaves one of them open is an outage: a result that counts as published would never come again.
fn appended(reply: Value, count: usize) -> Result<(usize, Option<RedisError>), Outage> {
    let parts: &[Value] = if let Value::Array(parts) = &reply { parts } else { &[] };
    let appended = parts.first().and_then(Value::as_usize);
    let refusal = parts.get(1).and_then(Value::as_string);
    match (appended, refusal) {
        (Some(appended), None) if appended == count => Ok((appended, None)),
        (Some(appended), Some(text)) if appended < count => {
            Ok((appended, Some(RedisError::from(Error::new(ErrorKind::Unknown, text)))))
        }
        _ => Err(Outage::new("Redis", format!("publish.lua answered {count} results with {reply:?}"))),
    }
}

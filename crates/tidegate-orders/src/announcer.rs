//! Announces results: appends them to the results stream after their commit and before their entries are acknowledged.
//!
//! Redis may refuse to take them (no memory, a key of another type, no permission). That holds up no order: what was refused
//! is remembered in MySQL, and announced later. Where Redis does not answer, the batch comes again, and so do its results.

mod burial;
mod counters;
mod new_entries;
mod trimmer;
mod unannounced;

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
    unannounced::{Taken, Unannounced},
};
use crate::{
    partition::Partition,
    results::{Announced, OrderResult, ResultState},
    wire::{FieldNames, result_fields},
};

/// How often the log says that results are not taken.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Announces results. Clones share their counters.
#[derive(Clone, Debug)]
pub struct Announcer {
    pool: Pool,
    script: Script,
    key: String,
    announced: Announced,
    unannounced: Unannounced,
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
    /// Some were announced now; there may be more.
    Announced,
    /// Redis still does not take them.
    Refused,
}

impl Announcer {
    /// Appends to the stream `key` what `announced` includes, and remembers in the database behind `mysql` what Redis refuses.
    /// A statement there takes no longer than `timeout`.
    #[must_use]
    pub fn new(
        pool: Pool,
        key: impl Into<String>,
        announced: Announced,
        (mysql, timeout): (MySqlPool, Duration),
    ) -> Self {
        Self {
            pool,
            script: Script::new("publish", include_str!("../../../lua/publish.lua")),
            key: key.into(),
            announced,
            unannounced: Unannounced::new(mysql, timeout),
            counters: Arc::default(),
            said: Arc::default(),
        }
    }

    /// The same announcer, for one partition of a system: what MySQL remembers for others is theirs.
    #[must_use]
    pub fn of_partition(self, partition: Partition) -> Self {
        Self { unannounced: self.unannounced.of_partition(partition), ..self }
    }

    /// The same announcer, which remembers over other connections.
    #[must_use]
    pub fn over(self, mysql: MySqlPool) -> Self {
        Self { unannounced: self.unannounced.over(mysql), ..self }
    }

    /// Which results it announces.
    #[must_use]
    pub fn announced(&self) -> Announced {
        self.announced
    }

    /// Announces what becomes of an entry that is buried for this reason, where that is announced and it says of which order.
    ///
    /// # Errors
    /// As [`Announcer::announce`].
    pub async fn announce_burial(
        &self,
        names: &FieldNames,
        entry: &Entry,
        reason: &'static str,
    ) -> Result<(), Outage> {
        let result = of_buried(names, entry, reason, now_ms());
        self.announce(result.filter(|result| self.announced.includes(result.state)).as_slice()).await
    }

    /// What it has announced and remembered.
    #[must_use]
    pub fn counters(&self) -> &Arc<ResultCounters> {
        &self.counters
    }

    /// Announces results, in one round trip, or remembers them where Redis refuses them. Without results, nothing is called.
    ///
    /// # Errors
    /// When a store does not answer: each may be announced or not, and is to be announced again.
    pub async fn announce(&self, results: &[OrderResult]) -> Result<(), Outage> {
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
                Ok(()) => self.counters.announced(result.state),
                Err(error) => {
                    refused.push(result);
                    why = Some(error);
                }
            }
        }
        let Some(why) = why else { return Ok(()) };
        self.unannounced.remember(&refused).await?;
        self.counters.remembered(refused.len());
        self.log_refused(refused.len(), &why);
        Ok(())
    }

    /// How many results MySQL remembers; of more than 10,000, so many.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn unannounced(&self) -> Result<usize, Outage> {
        self.unannounced.count().await
    }

    /// Announces some of the results that were remembered, oldest first. Several processes may do so at the same time.
    ///
    /// # Errors
    /// When a store does not answer; those that were announced and not deleted are announced once more.
    pub async fn announce_remembered(&self) -> Result<Remembered, Outage> {
        let remembered = self.unannounced().await?;
        self.counters.set_unannounced(remembered);
        if remembered == 0 {
            return Ok(Remembered::None);
        }
        let Taken { deleted, states, refused } =
            self.unannounced.take(async |entries| self.append(entries).await).await?;
        for state in states.iter().filter_map(|state| ResultState::from_word(state)) {
            self.counters.announced(state);
        }
        if !states.is_empty() {
            tracing::info!(count = states.len(), "results announced that Redis had refused before");
        }
        match refused {
            Some(why) => {
                self.log_refused(remembered - deleted.min(remembered), &why);
                Ok(Remembered::Refused)
            }
            None if deleted == 0 => Ok(Remembered::None),
            None => Ok(Remembered::Announced),
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
            "Redis does not take results: they are remembered in MySQL, in tidegate_unannounced_result, and announced later; \
             see docs/runbook/results-are-not-announced.md"
        );
    }
}

/// What `lua/publish.lua` replied of `count` results: how many it has appended, and with what the next one was refused. Whatever
/// leaves one of them open is an outage: a result that counts as announced would never come again.
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

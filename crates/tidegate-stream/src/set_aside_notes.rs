//! Notes in Redis about the entries that the processes of a fleet have set aside, for commands and metrics.

use std::collections::BTreeMap;

use fred::{
    clients::Pool,
    interfaces::{HashesInterface, KeysInterface},
    types::Value,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    causes::Causes,
    redis::{RedisError, RedisPool},
    stream::StreamNames,
};

/// The number of causes that a note names; the others are in its sums.
const NAMED: usize = 5;

/// The time after which Redis deletes the notes, in seconds, if no process renews them.
const KEPT_S: i64 = 24 * 60 * 60;

/// A hash in Redis with one field (note) for each process: the entries that the process has set aside, to retry them
/// later, as JSON.
#[derive(Clone, Debug)]
pub struct SetAsideNotes {
    pool: Pool,
    key: String,
}

/// The number of entries that a process has set aside (left pending, to retry them later), and the causes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetAsideNote {
    /// The number of entries that the process has set aside: left pending, to retry them later.
    pub entries: usize,
    /// The number of set-aside entries (left pending, to be retried later) for each kind of cause.
    pub kinds: BTreeMap<String, usize>,
    /// The causes with the most set-aside entries (left pending, to be retried later).
    pub causes: Vec<NamedCause>,
}

/// A cause for which entries are set aside (left pending, to be retried later), with the number and age of the entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedCause {
    /// The kind of the cause, as a word for programs, such as `account_locked`.
    pub kind: String,
    /// The key of the cause within its kind. 0: the kind has only one cause. In JSON the key is a text, because JSON
    /// numbers are exact only up to 2^53.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text_or_number")]
    pub key: u64,
    /// The number of entries that wait for the cause to end.
    pub entries: usize,
    /// The number of seconds for which at least one entry has waited for the cause to end.
    pub lasting_s: f64,
}

fn as_text<S: serde::Serializer>(key: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

/// Reads a text, or the number that workers of an earlier version write.
fn from_text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Key {
        Text(String),
        Number(u64),
    }
    match Key::deserialize(deserializer)? {
        Key::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Key::Number(number) => Ok(number),
    }
}

impl SetAsideNote {
    /// Creates the note of this process: the numbers of entries that it has set aside, and the causes.
    #[must_use]
    pub fn of(causes: &Causes) -> Self {
        let kinds = causes.by_kind().into_iter().map(|(kind, of_kind)| (kind.to_owned(), of_kind.entries));
        let named = causes.top(NAMED).into_iter().map(|awaited| NamedCause {
            kind: awaited.cause.kind.to_owned(),
            key: awaited.cause.key,
            entries: awaited.entries,
            lasting_s: awaited.lasting.as_secs_f64(),
        });
        Self { entries: causes.entries(), kinds: kinds.collect(), causes: named.collect() }
    }

    /// Adds the numbers of another process's waiting entries to this note.
    pub fn add(&mut self, other: Self) {
        self.entries += other.entries;
        for (kind, entries) in other.kinds {
            *self.kinds.entry(kind).or_default() += entries;
        }
        for cause in other.causes {
            match self.causes.iter_mut().find(|known| (&known.kind, known.key) == (&cause.kind, cause.key)) {
                Some(known) => {
                    known.entries += cause.entries;
                    known.lasting_s = known.lasting_s.max(cause.lasting_s);
                }
                None => self.causes.push(cause),
            }
        }
        self.causes.sort_by(|one, other| other.entries.cmp(&one.entries).then(one.key.cmp(&other.key)));
        self.causes.truncate(NAMED);
    }
}

impl SetAsideNotes {
    /// Creates access to the notes in which processes list the entries of the stream that wait for a retry.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: &StreamNames) -> Self {
        Self { pool: pool.into().0, key: names.set_aside() }
    }

    /// Writes how many entries the process `process` has set aside, to retry them later, and why. If the process has
    /// set no entry aside, the call deletes the note.
    ///
    /// # Errors
    /// When Redis does not answer or refuses.
    pub async fn write(&self, process: &str, notice: &SetAsideNote) -> Result<(), RedisError> {
        if notice.entries == 0 {
            let _count: Value = self.pool.hdel(&self.key, process).await.map_err(RedisError::new)?;
            return Ok(());
        }
        let json = serde_json::to_string(notice).expect("texts and numbers are JSON");
        let _count: Value = self.pool.hset(&self.key, (process, json)).await.map_err(RedisError::new)?;
        let _known: Value = self.pool.expire(&self.key, KEPT_S, None).await.map_err(RedisError::new)?;
        Ok(())
    }

    /// Reads the notes on the set-aside entries of the given processes, and returns their sum.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn read(&self, processes: Vec<String>) -> Result<SetAsideNote, RedisError> {
        let mut all = SetAsideNote::default();
        self.read_each(processes).await?.into_values().for_each(|notice| all.add(notice));
        Ok(all)
    }

    /// Reads how many entries each given process has set aside, to retry them later, and why. Processes without a note,
    /// and notes in an unknown form, are skipped.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn read_each(
        &self,
        processes: Vec<String>,
    ) -> Result<BTreeMap<String, SetAsideNote>, RedisError> {
        if processes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let notices = self.pool.hmget(&self.key, processes.clone()).await;
        let notices: Vec<Option<String>> = notices.map_err(RedisError::new)?;
        let told = processes.into_iter().zip(notices);
        Ok(told
            .filter_map(|(process, notice)| Some((process, serde_json::from_str(&notice?).ok()?)))
            .collect())
    }
}

//! What the processes of a fleet have set aside, written down beside the stream for those who look.

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

/// Causes that a notice names; the others are in its sums.
const NAMED: usize = 5;

/// A notice that nobody has renewed for so long is of no process that lives.
const KEPT_S: i64 = 24 * 60 * 60;

/// A hash beside the stream: name of the process, and what it has set aside as JSON.
#[derive(Clone, Debug)]
pub struct SetAsideNotes {
    pool: Pool,
    key: String,
}

/// What a process has set aside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetAsideNote {
    /// Entries, whatever they wait for.
    pub entries: usize,
    /// Entries, by kind of what they wait for.
    pub kinds: BTreeMap<String, usize>,
    /// What most of them wait for.
    pub causes: Vec<NamedCause>,
}

/// Something that entries wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedCause {
    /// A word for machines, such as `account_locked`.
    pub kind: String,
    /// Which of its kind; 0 where the kind has only one. A text in JSON, whose numbers are exact up to 2^53 only.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text_or_number")]
    pub key: u64,
    /// Entries that wait for it.
    pub entries: usize,
    /// For how long there have been some.
    pub lasting_s: f64,
}

fn as_text<S: serde::Serializer>(key: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

/// Workers of an earlier version write a number.
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
    /// Of this process.
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

    /// With those of another process.
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
    /// Beside the stream of `names`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: &StreamNames) -> Self {
        Self { pool: pool.into().0, key: names.set_aside() }
    }

    /// Writes down what `process` has set aside; nothing: takes its notice away.
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

    /// What these processes have set aside, all together.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn read(&self, processes: Vec<String>) -> Result<SetAsideNote, RedisError> {
        let mut all = SetAsideNote::default();
        self.read_each(processes).await?.into_values().for_each(|notice| all.add(notice));
        Ok(all)
    }

    /// What each of these processes has set aside, where it has. A notice that is none of ours is passed over.
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

//! The consumers of the consumer group, and whether their processes live.

pub mod remove;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use fred::{interfaces::KeysInterface, types::Value};
use serde::Serialize;
use tidegate_compare::text::seconds;
use tidegate_orders::{
    LockLayout, RedisStore,
    event::KNOWS_EVENTS,
    keys::process_of,
    work_in_progress::{HEARTBEAT_LOCKS, HEARTBEAT_VERSION},
};
use tidegate_stream::{ConsumerInfo, StreamError, inspect};

use crate::settings::SystemSettings;

/// A consumer of the consumer group, with the heartbeat of its worker process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Consumer {
    /// The name of the consumer.
    pub name: String,
    /// The number of pending entries that the consumer holds.
    pub pending: u64,
    /// The number of seconds since the consumer last sent a command to Redis. Before Redis 7.2, this time does not show
    /// whether the consumer is alive.
    pub idle_s: f64,
    /// Whether the worker process of the consumer has a heartbeat in Redis.
    pub alive: bool,
    /// The text that the consumer's process writes as its heartbeat; None: the process has no heartbeat.
    pub process: Option<String>,
}

/// All consumers of the consumer group, sorted by name.
#[derive(Clone, Debug)]
pub struct Consumers {
    /// The list of consumers; empty if the stream or the group does not exist.
    pub all: Vec<Consumer>,
}

/// The output of the command `tidegate consumers list`: the consumers of a group.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerList {
    /// The key of the stream.
    pub stream: String,
    /// The name of the consumer group.
    pub group: String,
    /// The consumers, sorted by name.
    pub consumers: Vec<Consumer>,
}

impl ConsumerList {
    /// Reads the consumers of the group from Redis.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn read(redis: &RedisStore, settings: &SystemSettings) -> anyhow::Result<Self> {
        let names = settings.stream_names();
        let consumers = Consumers::read(redis).await?;
        Ok(Self { stream: names.stream, group: names.group, consumers: consumers.all })
    }
}

/// The consumers that an operation applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerChoice {
    /// The consumers with these names.
    Named(Vec<String>),
    /// All consumers whose process has no heartbeat.
    Dead,
}

/// The consumers of a group that match a [`ConsumerChoice`].
#[derive(Clone, Debug)]
pub struct ChosenConsumers {
    /// The chosen consumers that exist in the group, sorted by name.
    pub known: Vec<Consumer>,
    /// The chosen names for which the group has no consumer, without duplicates.
    pub unknown: Vec<String>,
}

impl Consumer {
    /// Returns the version of the consumer's process. None: the process is dead, or so old that its heartbeat names no
    /// version.
    pub fn version(&self) -> Option<&str> {
        let (_, version) = self.process.as_ref()?.split_once(HEARTBEAT_VERSION)?;
        version.split(',').next()
    }

    /// Returns the layout of the user locks of the consumer's process, as a word of the setting `lock.layout`. None: the
    /// process is dead.
    pub fn lock_layout(&self) -> Option<&str> {
        let process = self.process.as_ref()?;
        let named = process.split_once(HEARTBEAT_LOCKS).and_then(|(_, rest)| rest.split(',').next());
        Some(named.unwrap_or(LockLayout::Tidegate.word()))
    }
}

impl Consumers {
    /// Reads all consumers of the group and their heartbeats from Redis.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn read(redis: &RedisStore) -> anyhow::Result<Self> {
        let infos = match inspect::consumers(redis, redis.inspector().names()).await {
            Ok(infos) => infos,
            Err(StreamError::NoGroup(_)) => Vec::new(),
            Err(StreamError::Redis(error)) if error.is_no_such_key() => Vec::new(),
            Err(error) => return Err(error).context("Failed to read the consumers of the group"),
        };
        Self::of(redis, infos).await
    }

    /// Reads the heartbeats in Redis, and returns the given consumers with the information whether their processes are
    /// alive.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn of(redis: &RedisStore, mut infos: Vec<ConsumerInfo>) -> anyhow::Result<Self> {
        infos.sort_by(|one, other| one.name.cmp(&other.name));
        let processes: Vec<&str> = infos.iter().map(|info| process_of(&info.name)).collect();
        let beats =
            heartbeats(redis, &processes).await.context("Failed to read the heartbeats of workers")?;
        let consumer = |info: &ConsumerInfo| {
            let process = beats.get(process_of(&info.name)).cloned().flatten();
            Consumer {
                name: info.name.clone(),
                pending: info.pending,
                idle_s: seconds(info.idle_ms),
                alive: process.is_some(),
                process,
            }
        };
        Ok(Self { all: infos.iter().map(consumer).collect() })
    }

    /// Returns the total number of pending entries of all consumers.
    pub fn pending(&self) -> u64 {
        self.all.iter().map(|consumer| consumer.pending).sum()
    }

    /// Returns the names of the worker processes that are alive.
    pub fn processes(&self) -> Vec<String> {
        let alive = self.all.iter().filter(|consumer| consumer.alive);
        let mut names: Vec<String> = alive.map(|consumer| process_of(&consumer.name).to_owned()).collect();
        names.dedup();
        names
    }

    /// Returns the names of living worker processes that have an old version, and so move order events to the dead
    /// letters.
    pub fn without_events(&self) -> Vec<String> {
        let is_older = |consumer: &&Consumer| {
            consumer.process.as_ref().is_some_and(|process| !process.contains(KNOWS_EVENTS))
        };
        let older = self.all.iter().filter(is_older);
        let mut names: Vec<String> = older.map(|consumer| process_of(&consumer.name).to_owned()).collect();
        names.dedup();
        names
    }

    /// Finds the consumer with this name.
    pub fn find(&self, name: &str) -> Option<&Consumer> {
        self.all.iter().find(|consumer| consumer.name == name)
    }

    /// Returns the consumers that match the choice.
    pub fn choose(&self, choice: &ConsumerChoice) -> ChosenConsumers {
        let named: BTreeSet<&String> = match choice {
            ConsumerChoice::Named(names) => names.iter().collect(),
            ConsumerChoice::Dead => BTreeSet::new(),
        };
        let is_chosen = |consumer: &&Consumer| match choice {
            ConsumerChoice::Named(_) => named.contains(&consumer.name),
            ConsumerChoice::Dead => !consumer.alive,
        };
        ChosenConsumers {
            known: self.all.iter().filter(is_chosen).cloned().collect(),
            unknown: named.iter().filter(|name| self.find(name).is_none()).copied().cloned().collect(),
        }
    }

    /// Returns whether the consumer's process has a heartbeat.
    pub fn is_alive(&self, name: &str) -> bool {
        self.find(name).is_some_and(|consumer| consumer.alive)
    }

    /// Returns whether any living worker could claim pending entries.
    pub fn has_life(&self) -> bool {
        self.all.iter().any(|consumer| consumer.alive)
    }
}

async fn heartbeats<'a>(
    redis: &RedisStore,
    processes: &[&'a str],
) -> anyhow::Result<BTreeMap<&'a str, Option<String>>> {
    if processes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<_> = processes.iter().map(|process| redis.keys().fleet().heartbeat(process)).collect();
    let beats: Vec<Value> = redis.pool().mget(names).await?;
    Ok(processes.iter().copied().zip(beats.iter().map(Value::as_string)).collect())
}

//! The consumers of the group, and whose process lives.

use std::collections::BTreeMap;

use anyhow::Context;
use fred::{clients::Pool, interfaces::KeysInterface, types::Value};
use serde::Serialize;
use tidegate_orders::{Keys, keys::process_of};
use tidegate_stream::{ConsumerInfo, StreamError, StreamNames, inspect};

/// A consumer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Entries that it holds.
    pub pending: u64,
    /// Since it was last seen. Before Redis 7.2 this is no sign of life.
    pub idle_s: f64,
    /// Its process has a heartbeat.
    pub alive: bool,
    /// What the heartbeat says of the process.
    pub process: Option<String>,
}

/// All consumers of the group, by name.
#[derive(Clone, Debug)]
pub struct Roster {
    /// Who they are; none where there is no stream or no group.
    pub members: Vec<Member>,
}

impl Roster {
    /// Asks Redis.
    ///
    /// # Errors
    /// When it does not answer, or the key holds no stream.
    pub async fn read(redis: &Pool, keys: &Keys, names: &StreamNames) -> anyhow::Result<Self> {
        let infos = match inspect::consumers(redis, names).await {
            Ok(infos) => infos,
            Err(StreamError::NoGroup(_)) => Vec::new(),
            Err(StreamError::Redis(error)) if error.details().contains("no such key") => Vec::new(),
            Err(error) => return Err(error).context("Failed to read the consumers"),
        };
        Self::of(redis, keys, infos).await
    }

    /// Asks Redis whose process lives, of consumers that are known.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn of(redis: &Pool, keys: &Keys, mut infos: Vec<ConsumerInfo>) -> anyhow::Result<Self> {
        infos.sort_by(|one, other| one.name.cmp(&other.name));
        let processes: Vec<&str> = infos.iter().map(|info| process_of(&info.name)).collect();
        let beats = heartbeats(redis, keys, &processes).await.context("Failed to read the heartbeats")?;
        let member = |info: &ConsumerInfo| {
            let process = beats.get(process_of(&info.name)).cloned().flatten();
            Member {
                name: info.name.clone(),
                pending: info.pending,
                idle_s: seconds(info.idle_ms),
                alive: process.is_some(),
                process,
            }
        };
        Ok(Self { members: infos.iter().map(member).collect() })
    }

    /// Names of the processes that live.
    pub fn processes(&self) -> Vec<String> {
        let alive = self.members.iter().filter(|member| member.alive);
        let mut names: Vec<String> = alive.map(|member| process_of(&member.name).to_owned()).collect();
        names.dedup();
        names
    }

    /// The consumer of that name.
    pub fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Whether its process has a heartbeat.
    pub fn is_alive(&self, name: &str) -> bool {
        self.find(name).is_some_and(|member| member.alive)
    }

    /// Whether anybody could take what is offered.
    pub fn has_life(&self) -> bool {
        self.members.iter().any(|member| member.alive)
    }
}

async fn heartbeats<'a>(
    redis: &Pool,
    keys: &Keys,
    processes: &[&'a str],
) -> anyhow::Result<BTreeMap<&'a str, Option<String>>> {
    if processes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<_> = processes.iter().map(|process| keys.heartbeat(process)).collect();
    let beats: Vec<Value> = redis.mget(names).await?;
    Ok(processes.iter().copied().zip(beats.iter().map(Value::as_string)).collect())
}

/// Milliseconds in seconds, as they are shown.
pub fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

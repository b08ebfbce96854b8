//! The status of a stream, read without a change: how many entries wait, how old they are, and which consumers hold
//! them.

use std::{collections::HashMap, fmt};

use fred::{
    clients::Pool,
    interfaces::{ClientLike, KeysInterface, StreamsInterface},
    prelude::FredResult,
    types::{ClusterHash, CustomCommand, Value},
};

use crate::{
    entry::{EntryId, bad_reply, parse_id},
    inspector::StreamInspector,
    pages::EntryPages,
    redis::{RedisError, RedisPool},
    stream::{StreamError, StreamNames},
};

/// The number up to which undelivered entries are counted, if the server does not know it.
const COUNT_LIMIT: u64 = 10_000;
const COUNT_PAGE: u16 = 1_000;

/// The type of the value that a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// The key does not exist, because no entry was ever added, or because the data was lost.
    Missing,
    /// The key holds a stream.
    Stream,
    /// The key holds another type, with the type's name from the Redis command TYPE.
    Other(String),
}

impl fmt::Display for KeyKind {
    /// Writes the type as the Redis command TYPE does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "none",
            Self::Stream => "stream",
            Self::Other(kind) => kind,
        })
    }
}

/// The lengths and types of a stream and its dead letters, and the status of its consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// The time by the server's clock, in Unix milliseconds. Ages are relative to this clock, because entry ids are
    /// times of the same clock.
    pub now_ms: u64,
    /// The type of the stream's key in Redis.
    pub kind: KeyKind,
    /// The number of entries in the stream, including acknowledged entries.
    pub length: u64,
    /// The number of entries that were ever added to the stream. None: the server is older than Redis 7.
    pub entries_added: Option<u64>,
    /// The number of entries in the stream of dead letters.
    pub dead: u64,
    /// The type of the key that holds the dead letters.
    pub dead_kind: KeyKind,
    /// The status of the consumer group. None: the group does not exist.
    pub group: Option<GroupStatus>,
}

/// The status of a consumer group and its pending list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The number of entries that no consumer has read yet.
    pub undelivered: Undelivered,
    /// The oldest entry that no consumer has read yet. None: all entries were read.
    pub oldest_undelivered: Option<EntryId>,
    /// The number of entries that were read and are not acknowledged.
    pub pending: u64,
    /// The oldest pending entry of the group. None: no entry is pending.
    pub oldest_pending: Option<EntryId>,
    /// The number of entries that were read and are not pending any more. None: the server does not know the number,
    /// because the server is older than Redis 7, entries were deleted, or the group was moved.
    pub settled: Option<u64>,
    /// The consumers of the group, as Redis reports them.
    pub consumers: Vec<ConsumerInfo>,
}

/// A consumer of the group, as XINFO CONSUMERS reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// The name of the consumer.
    pub name: String,
    /// The number of entries that were delivered to the consumer and are not acknowledged.
    pub pending: u64,
    /// The milliseconds since the consumer last sent a command. Before Redis 7.2, a large number does not mean that the
    /// consumer is dead.
    pub idle_ms: u64,
}

/// The number of undelivered entries, exact or as a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// The exact number of undelivered entries.
    Exactly(u64),
    /// The lower bound of the number. The server did not know the number, and the count was stopped at a limit.
    AtLeast(u64),
}

impl Undelivered {
    /// Returns the number of undelivered entries, exact or as a lower bound.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) => number,
        }
    }
}

/// Returns the age of an entry, in milliseconds of the server's clock.
#[must_use]
pub fn age_ms(now_ms: u64, id: EntryId) -> u64 {
    now_ms.saturating_sub(id.ms)
}

/// Reads the status of the stream, its group and its dead letters. Redis answers several commands one after another, so
/// under load the numbers come from slightly different times.
///
/// # Errors
/// When Redis does not answer, or answers in an unknown shape.
pub async fn inspect(pool: impl Into<RedisPool>, names: &StreamNames) -> Result<StreamStatus, StreamError> {
    let RedisPool(pool) = &pool.into();
    let mut status = StreamStatus {
        now_ms: server_time_ms(&RedisPool(pool.clone())).await?,
        kind: key_kind(pool, &names.stream).await?,
        length: 0,
        entries_added: None,
        dead: 0,
        dead_kind: key_kind(pool, &names.dead).await?,
        group: None,
    };
    if status.dead_kind == KeyKind::Stream {
        status.dead = pool.xlen(&names.dead).await.map_err(RedisError::new)?;
    }
    if status.kind == KeyKind::Stream {
        let info = pool.xinfo_stream(&names.stream, false, None).await;
        let info: HashMap<String, Value> = info.map_err(RedisError::new)?;
        status.length = info.get("length").and_then(Value::as_u64).unwrap_or_default();
        status.entries_added = info.get("entries-added").and_then(Value::as_u64);
        status.group = group(pool, names, status.length).await?;
    }
    Ok(status)
}

/// Returns whether the consumer group of the stream exists.
///
/// # Errors
/// When Redis does not answer, or the key has another type.
pub async fn has_group(pool: impl Into<RedisPool>, names: &StreamNames) -> Result<bool, StreamError> {
    let groups: FredResult<Vec<HashMap<String, Value>>> = pool.into().0.xinfo_groups(&names.stream).await;
    match groups.map_err(|error| RedisError::of_key(&names.stream, error)) {
        Ok(groups) => Ok(groups.iter().any(|group| is_named(group, names))),
        Err(error) if error.is_no_such_key() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_named(group: &HashMap<String, Value>, names: &StreamNames) -> bool {
    group.get("name").and_then(Value::as_string).is_some_and(|name| name == names.group)
}

/// Reads the clock of the Redis server, in Unix milliseconds.
///
/// # Errors
/// When Redis does not answer.
pub async fn server_time_ms(pool: impl Into<RedisPool>) -> Result<u64, StreamError> {
    let RedisPool(pool) = pool.into();
    let command = CustomCommand::new_static("TIME", ClusterHash::Random, false);
    let time = pool.next().custom(command, Vec::<Value>::new()).await;
    let (seconds, micros): (u64, u64) = time.map_err(RedisError::new)?;
    Ok(seconds * 1000 + micros / 1000)
}

pub(crate) async fn key_kind(pool: &Pool, key: &str) -> Result<KeyKind, StreamError> {
    let kind: String = pool.r#type(key).await.map_err(RedisError::new)?;
    Ok(match kind.as_str() {
        "none" => KeyKind::Missing,
        "stream" => KeyKind::Stream,
        _ => KeyKind::Other(kind),
    })
}

async fn group(pool: &Pool, names: &StreamNames, length: u64) -> Result<Option<GroupStatus>, StreamError> {
    let groups = pool.xinfo_groups(&names.stream).await;
    let groups: Vec<HashMap<String, Value>> = groups.map_err(RedisError::new)?;
    let Some(group) = groups.iter().find(|group| is_named(group, names)) else { return Ok(None) };
    let last_delivered = parse_id(group.get("last-delivered-id").unwrap_or(&Value::Null))?;
    let inspector = StreamInspector::new(RedisPool(pool.clone()), names.clone());
    let range = (last_delivered, EntryId::MAX);
    let oldest_undelivered = inspector.page(&names.stream, range, 1).await?.first().map(|entry| entry.id);
    let lag = group.get("lag").and_then(Value::as_u64);
    let (pending, oldest_pending) = pending(pool, &names.stream, &names.group).await?;
    Ok(Some(GroupStatus {
        undelivered: match (oldest_undelivered, lag) {
            (None, _) => Undelivered::Exactly(0),
            // The lag is null after XDEL, absent before Redis 7, and known to be wrong at times.
            (Some(_), Some(lag)) if (1..=length).contains(&lag) => Undelivered::Exactly(lag),
            _ => count_undelivered(inspector.entry_pages(&names.stream, range, COUNT_PAGE)).await?,
        },
        oldest_undelivered,
        pending,
        oldest_pending,
        settled: settled(group),
        consumers: consumers(&RedisPool(pool.clone()), names).await?,
    }))
}

/// Both numbers come from one reply, so no entry is settled between them.
fn settled(group: &HashMap<String, Value>) -> Option<u64> {
    let number = |field: &str| group.get(field).and_then(Value::as_u64);
    number("entries-read")?.checked_sub(number("pending")?)
}

/// Reads the consumers of the stream's consumer group.
///
/// # Errors
/// When Redis does not answer, or stream or group are missing.
pub async fn consumers(
    pool: impl Into<RedisPool>,
    names: &StreamNames,
) -> Result<Vec<ConsumerInfo>, StreamError> {
    let infos = pool.into().0.xinfo_consumers(&names.stream, &names.group).await;
    let infos: Vec<HashMap<String, Value>> =
        infos.map_err(|error| RedisError::of_key(&names.stream, error))?;
    let number = |info: &HashMap<String, Value>, field: &str| {
        info.get(field).and_then(Value::as_u64).unwrap_or_default()
    };
    let name = |info: &HashMap<String, Value>| info.get("name").and_then(Value::as_string);
    let read = infos.iter().filter_map(|info| {
        Some(ConsumerInfo {
            name: name(info)?,
            pending: number(info, "pending"),
            idle_ms: number(info, "idle"),
        })
    });
    Ok(read.collect())
}

/// Reads the summary of a group's pending list: the number of entries, and the first one.
pub(crate) async fn pending(
    pool: &Pool,
    stream: &str,
    group: &str,
) -> Result<(u64, Option<EntryId>), StreamError> {
    let summary: Value =
        pool.xpending(stream, group, ()).await.map_err(|error| RedisError::of_key(stream, error))?;
    let Value::Array(parts) = &summary else {
        return Err(bad_reply("a summary of the pending list", &summary).into());
    };
    let count = parts.first().and_then(Value::as_u64).unwrap_or_default();
    match parts.get(1) {
        Some(Value::Null) | None => Ok((count, None)),
        Some(first) => Ok((count, Some(parse_id(first)?))),
    }
}

/// Counts the entries of `pages`, which are the undelivered ones, up to a limit.
async fn count_undelivered(pages: EntryPages) -> Result<Undelivered, StreamError> {
    Ok(match pages.count(COUNT_LIMIT, |_| {}).await? {
        COUNT_LIMIT.. => Undelivered::AtLeast(COUNT_LIMIT),
        counted => Undelivered::Exactly(counted),
    })
}

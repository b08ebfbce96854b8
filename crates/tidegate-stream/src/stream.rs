//! The one door to the stream: its group, reading, claiming, settling, burying.

mod pending;
mod reader;

use std::{borrow::Cow, collections::HashMap, fmt::Write, iter, sync::Arc, time::Duration};

use fred::{
    bytes::Bytes,
    clients::Pool,
    error::Error,
    interfaces::{ClientLike, StreamsInterface},
    types::{ClusterHash, CustomCommand, Key, Value, config::Options},
};

pub(crate) use self::pending::{Fetch, KEEPALIVE_PAGE, MOST_FETCHED};
pub use self::reader::Reader;
pub(crate) use self::reader::{next_reply, other_replies};
use crate::{
    entry::{BadReply, Entry, EntryId, bad_reply},
    handler::{DeadLetterReason, Outage},
    redis::{RedisError, RedisKey, RedisPool},
    script::ScriptSource,
};

/// Why the stream could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream or its consumer group is not there (any more).
    #[error("the consumer group is missing: {0}")]
    NoGroup(String),
    /// Redis does not answer, or answers with an error.
    #[error(transparent)]
    Redis(RedisError),
    /// Redis answered with something else than it should.
    #[error(transparent)]
    BadReply(#[from] BadReply),
    /// Another server answers than the one that the entries came from, or that one has restarted. Nothing was done.
    #[error("another server answers than the one that handed over these entries, or it has restarted: {0}")]
    OtherServer(String),
}

/// From its start to its end, a server is one run. What it handed over is settled in the same run only: after a failover, another
/// server may have given the same ids to other entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerRun {
    /// There is one server, which is not compared.
    #[default]
    Any,
    /// The one with this `run_id`.
    Only(Arc<str>),
}

impl ServerRun {
    fn as_str(&self) -> &str {
        match self {
            Self::Any => "",
            Self::Only(id) => id,
        }
    }
}

impl From<RedisError> for StreamError {
    fn from(error: RedisError) -> Self {
        // UNBLOCKED: the stream was deleted under a blocked reader (before Redis 7.2). Not only at the start: an
        // error from within a script has the script's name before it.
        let details = error.details();
        if details.contains("OTHERRUN ") {
            return Self::OtherServer(details.to_owned());
        }
        if ["NOGROUP ", "UNBLOCKED "].iter().any(|word| details.contains(word)) {
            return Self::NoGroup(details.to_owned());
        }
        Self::Redis(error)
    }
}

impl From<StreamError> for Outage {
    fn from(error: StreamError) -> Self {
        Self::new("Redis", error)
    }
}

/// Names of a stream, its consumer group and its dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamNames {
    /// Key of the stream.
    pub stream: String,
    /// Key of the stream of dead letters.
    pub dead: String,
    /// Consumer group on the stream.
    pub group: String,
}

impl StreamNames {
    /// Hash beside the stream: how many processes died with an entry in progress, and when entries were made pending again.
    #[must_use]
    pub fn crashes(&self) -> String {
        format!("{}.deaths", self.stream)
    }

    /// Hash beside the stream: what each process has set aside, for those who look.
    #[must_use]
    pub fn set_aside(&self) -> String {
        format!("{}.set_aside", self.stream)
    }
}

/// Whether the group had to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It was there.
    Existed,
    /// It was made just now, and begins at the first entry of the stream.
    Created,
}

/// What became of the wish to bury an entry that a consumer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuryReply {
    /// It is a dead letter now.
    Buried,
    /// It was not pending any more.
    Settled,
    /// Its consumer lives, or another one has it by now: nothing was done.
    InProgress,
}

/// Everything about the stream that does not block; shared by all lanes.
#[derive(Clone, Debug)]
pub struct Stream {
    pool: Pool,
    names: StreamNames,
    bury: ScriptSource,
    settle: ScriptSource,
    keepalive: ScriptSource,
    fetch: ScriptSource,
    count_crashes: ScriptSource,
    set_aside: ScriptSource,
    make_pending: ScriptSource,
}

impl Stream {
    /// The stream `names.stream` in the Redis behind `pool`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        Self {
            pool: pool.into().0,
            names,
            bury: ScriptSource::new("bury", include_str!("../lua/bury.lua")),
            settle: ScriptSource::new("settle", include_str!("../lua/settle.lua")),
            keepalive: ScriptSource::new("keepalive", include_str!("../lua/keepalive.lua")),
            fetch: ScriptSource::new("fetch", include_str!("../lua/fetch.lua")),
            count_crashes: ScriptSource::new("count_crashes", include_str!("../lua/count_crashes.lua")),
            set_aside: ScriptSource::new("set_aside", include_str!("../lua/set_aside.lua")),
            make_pending: ScriptSource::new("make_pending", include_str!("../lua/make_pending.lua")),
        }
    }

    /// Names of the stream, its group and its dead letters.
    #[must_use]
    pub fn names(&self) -> &StreamNames {
        &self.names
    }

    /// Makes the consumer group where it is missing, and the stream with it. The group begins at the first
    /// entry: whatever stands in the stream is delivered, if need be again.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds something else than a stream.
    pub async fn ensure_group(&self) -> Result<GroupState, StreamError> {
        let StreamNames { stream, group, .. } = &self.names;
        let made: Result<Value, Error> = self.pool.xgroup_create(stream, group, "0", true).await;
        match made {
            Ok(_) => Ok(GroupState::Created),
            Err(error) if error.details().starts_with("BUSYGROUP") => Ok(GroupState::Existed),
            Err(error) => Err(RedisError::new(error).into()),
        }
    }

    /// Makes the group again where it is missing although it was there: loudly, because data may be gone.
    ///
    /// # Errors
    /// As [`Stream::ensure_group`].
    pub async fn restore_group(&self) -> Result<(), StreamError> {
        if self.ensure_group().await? == GroupState::Created {
            let found = self.found_without_group().await;
            tracing::error!(
                stream = self.names.stream,
                group = self.names.group,
                "the consumer group was gone and has been made again from the first entry of the stream: {found}"
            );
        }
        Ok(())
    }

    /// What is left where the group was gone: whether Redis lost data, or only the group.
    async fn found_without_group(&self) -> String {
        let info: Result<HashMap<String, Value>, Error> =
            self.pool.xinfo_stream(&self.names.stream, false, None).await;
        let Ok(info) = info else {
            return "whether Redis lost data as well is not known, for it did not answer".to_owned();
        };
        let text = |name: &str| info.get(name).and_then(Value::as_string).unwrap_or_default();
        if text("last-generated-id") == "0-0" {
            return "the stream was gone, too, and is new and empty, so Redis lost data or somebody deleted it"
                .to_owned();
        }
        let length = text("length");
        let oldest = match info.get("first-entry") {
            Some(Value::Array(entry)) => entry.first().and_then(Value::as_string),
            _ => None,
        };
        let oldest = oldest.map_or_else(String::new, |id| format!(", the oldest is {id}"));
        format!(
            "the stream is there (entries: {length}{oldest}), so the group alone was gone, unless older ones are \
             missing"
        )
    }

    /// Shows that Redis takes a write, and that all connections are there: each comes back at a time of its own, and
    /// a batch that went out on one of those still away would fail.
    ///
    /// # Errors
    /// As [`Stream::ensure_group`]. No room in Redis is none: what is in the stream can be written all the same, and
    /// that is what makes room.
    pub async fn probe(&self) -> Result<(), StreamError> {
        match self.restore_group().await {
            Err(StreamError::Redis(error)) if error.is_out_of_memory() => {}
            restored => restored?,
        }
        for client in self.pool.clients() {
            let _pong: Value = client.ping(None).await.map_err(RedisError::new)?;
        }
        Ok(())
    }

    /// Appends an entry with these fields, and returns its id. What is appended side by side stands in the stream in the order
    /// in which it was asked for, where the pool has one connection.
    ///
    /// # Errors
    /// When Redis refuses it, or does not answer: then the entry may be there or not. It is sent once, because a second
    /// sending could make two of it.
    pub async fn append(&self, fields: &[(&str, Cow<'_, str>)]) -> Result<EntryId, StreamError> {
        let command = CustomCommand::new_static("XADD", ClusterHash::FirstKey, false);
        let mut args: Vec<Value> = vec![self.names.stream.as_str().into(), "*".into()];
        args.extend(fields.iter().flat_map(|(name, value)| [Value::from(*name), value.as_ref().into()]));
        let options = Options { max_attempts: SENT_ONCE, ..Default::default() };
        let reply: Value =
            self.pool.next().with_options(&options).custom(command, args).await.map_err(RedisError::new)?;
        let id = reply.as_str().and_then(|id| id.parse().ok());
        Ok(id.ok_or_else(|| bad_reply("the id of an entry", &reply))?)
    }

    /// Acknowledges entries that this run of a server has handed over, in one round trip. Returns how many were pending until now. Without
    /// ids, it calls nothing.
    ///
    /// # Errors
    /// When Redis does not answer; the entries may be acknowledged or not, and asking again does no harm. And
    /// [`StreamError::OtherServer`].
    pub async fn settle_of(&self, run: &ServerRun, ids: &[EntryId]) -> Result<usize, StreamError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut args: Vec<Value> = Vec::with_capacity(2 + ids.len());
        args.push(match run {
            ServerRun::Any => self.names.stream.as_str().into(),
            ServerRun::Only(_) => self.names.group.as_str().into(),
        });
        args.push(match run {
            ServerRun::Any => self.names.group.as_str().into(),
            ServerRun::Only(id) => id.as_ref().into(),
        });
        // One piece of memory for all of them.
        let mut text = String::with_capacity(ids.len() * 24);
        let end_of = |id: &EntryId| {
            let _ = write!(text, "{id}");
            text.len()
        };
        let ends: Vec<usize> = ids.iter().map(end_of).collect();
        let text = Bytes::from(text);
        let begins = iter::once(0).chain(ends.iter().copied());
        args.extend(begins.zip(&ends).map(|(begin, end)| Value::Bytes(text.slice(begin..*end))));
        if *run != ServerRun::Any {
            let keys = vec![self.names.stream.as_str().into()];
            return Ok(self.settle.call(&self.pool, keys, args).await?.convert().map_err(RedisError::new)?);
        }
        let command = CustomCommand::new_static("XACK", ClusterHash::FirstKey, false);
        Ok(self.pool.custom(command, args).await.map_err(RedisError::new)?)
    }

    /// Makes entries pending again that were acknowledged, all of them or none: `consumer` holds them, out of hand. A living lane
    /// claims them once they are idle for long enough, if nobody settles them before. For entries that are in the stream. A process
    /// that remembers what is pending learns of it by [`GroupInspector::made_pending`](crate::GroupInspector::made_pending).
    ///
    /// # Errors
    /// When Redis does not answer; the entries may be pending or not, and asking again does no harm.
    pub async fn make_pending(&self, ids: &[EntryId], consumer: &str) -> Result<(), StreamError> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys = vec![self.names.stream.as_str().into(), self.names.crashes().into()];
        let mut args: Vec<Value> = Vec::with_capacity(2 + ids.len());
        args.extend([self.names.group.as_str(), consumer].map(Value::from));
        args.extend(ids.iter().map(|id| Value::from(id.to_string())));
        let _count = self.make_pending.call(&self.pool, keys, args).await?;
        Ok(())
    }

    /// Copies an entry that this run of a server has handed over to the dead stream and acknowledges it. Returns false when it was
    /// not pending any more.
    ///
    /// # Errors
    /// When Redis does not answer or refuses; the entry is either buried or still pending, never both or none. And
    /// [`StreamError::OtherServer`].
    pub async fn bury_of(&self, run: &ServerRun, entry: &Entry, why: &DeadLetterReason) -> Result<bool, StreamError> {
        Ok(self.call_bury(entry, why, (None, run)).await? == 1)
    }

    /// As [`Stream::bury_of`], for an entry whose payload goes from the one stream to the other within Redis.
    ///
    /// # Errors
    /// As [`Stream::bury_of`].
    pub async fn bury_unread(
        &self,
        run: &ServerRun,
        id: EntryId,
        why: &DeadLetterReason,
    ) -> Result<bool, StreamError> {
        self.bury_of(run, &Entry { id, fields: Vec::new() }, why).await
    }

    /// As [`Stream::bury_of`], for others than the consumer that holds the entry: only while `consumer` does, and while
    /// its process has no heartbeat. Whoever lives may be at work on it.
    ///
    /// # Errors
    /// As [`Stream::bury_of`].
    pub async fn bury_of_dead(
        &self,
        run: &ServerRun,
        entry: &Entry,
        why: &DeadLetterReason,
        consumer: &str,
        heartbeat: impl Into<RedisKey>,
    ) -> Result<BuryReply, StreamError> {
        let of = Some((consumer, heartbeat.into()));
        let reply = match self.call_bury(entry, why, (of, run)).await? {
            1 => BuryReply::Buried,
            2 => return Ok(BuryReply::InProgress),
            _ => BuryReply::Settled,
        };
        self.forget_crashes(&[entry.id]).await?;
        Ok(reply)
    }

    async fn call_bury(
        &self,
        entry: &Entry,
        why: &DeadLetterReason,
        (of, run): (Option<(&str, RedisKey)>, &ServerRun),
    ) -> Result<i64, StreamError> {
        let (consumer, heartbeat) = of.unzip();
        let mut keys: Vec<Key> = vec![self.names.stream.as_str().into(), self.names.dead.as_str().into()];
        keys.extend(heartbeat.map(RedisKey::into_key));
        let mut args: Vec<Value> = vec![
            self.names.group.as_str().into(),
            entry.id.to_string().into(),
            why.reason.into(),
            why.error.as_str().into(),
            consumer.unwrap_or_default().into(),
            run.as_str().into(),
        ];
        for (name, value) in &entry.fields {
            args.extend([Value::Bytes(name.clone()), Value::Bytes(value.clone())]);
        }
        Ok(self.bury.call(&self.pool, keys, args).await?.convert().map_err(RedisError::new)?)
    }
}

/// For commands that hand entries over or append one: when their reply is lost, sending them again would hand over others,
/// and leave the first ones pending unseen, or append a second one.
const SENT_ONCE: Option<u32> = Some(1);

fn millis(duration: Duration) -> Value {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).into()
}

fn length(count: usize) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

//! Access to the stream: its group, reading, claiming, settling, burying.

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

/// The reason why the stream could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream or its consumer group does not exist (any more).
    #[error("the consumer group is missing: {0}")]
    NoGroup(String),
    /// Redis does not answer, or answers with an error.
    #[error(transparent)]
    Redis(RedisError),
    /// Redis answered in an unexpected shape.
    #[error(transparent)]
    BadReply(#[from] BadReply),
    /// Another server answers than the one that the entries came from, or that server has restarted. Nothing was done.
    #[error("another server answers than the one that handed over these entries, or it has restarted: {0}")]
    OtherServer(String),
}

/// One run of a server, from its start to its end. Entries are settled only in the run that handed them over: after a
/// failover, another server may have given the same ids to other entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerRun {
    /// Any run: there is only one server, and runs are not compared.
    #[default]
    Any,
    /// The run with this `run_id`.
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
        // UNBLOCKED: the stream was deleted while a read was blocked (before Redis 7.2). `contains`, because an error
        // from within a script has the script's name before it.
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

/// The names of a stream, its consumer group and its dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamNames {
    /// The key of the stream.
    pub stream: String,
    /// The key of the stream of dead letters.
    pub dead: String,
    /// The name of the consumer group of the stream.
    pub group: String,
}

impl StreamNames {
    /// Returns the key of a hash: how many processes died with each entry in progress, and when entries were last made
    /// pending again.
    #[must_use]
    pub fn crashes(&self) -> String {
        format!("{}.deaths", self.stream)
    }

    /// Returns the key of a hash: what each process has set aside, for commands and metrics.
    #[must_use]
    pub fn set_aside(&self) -> String {
        format!("{}.set_aside", self.stream)
    }
}

/// The result of creating the group where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// The group existed before the call.
    Existed,
    /// The call created the group, which begins at the first entry of the stream.
    Created,
}

/// The result of burying an entry that a consumer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuryReply {
    /// The entry is a dead letter now.
    Buried,
    /// The entry was not pending any more.
    Settled,
    /// The process of the consumer lives, or another consumer holds the entry by now: nothing was done.
    InProgress,
}

/// All operations on the stream that do not block; shared by all lanes.
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
    /// Creates access to the stream `names.stream` in the Redis behind `pool`.
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

    /// Returns the names of the stream, its group and its dead letters.
    #[must_use]
    pub fn names(&self) -> &StreamNames {
        &self.names
    }

    /// Creates the consumer group if it is missing, and the stream with it. The group begins at the first entry, so
    /// every entry in the stream is delivered, if necessary again.
    ///
    /// # Errors
    /// When Redis does not answer, or the key has another type.
    pub async fn ensure_group(&self) -> Result<GroupState, StreamError> {
        let StreamNames { stream, group, .. } = &self.names;
        let made: Result<Value, Error> = self.pool.xgroup_create(stream, group, "0", true).await;
        match made {
            Ok(_) => Ok(GroupState::Created),
            Err(error) if error.details().starts_with("BUSYGROUP") => Ok(GroupState::Existed),
            Err(error) => Err(RedisError::new(error).into()),
        }
    }

    /// Creates the group again if it is missing although it existed before, and logs an error, because data may be
    /// lost.
    ///
    /// # Errors
    /// As for [`Stream::ensure_group`].
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

    /// Describes what exists although the group was gone: whether Redis lost data, or only the group.
    async fn found_without_group(&self) -> String {
        let info: Result<HashMap<String, Value>, Error> =
            self.pool.xinfo_stream(&self.names.stream, false, None).await;
        let Ok(info) = info else {
            return "Redis did not answer, so it is unknown whether Redis lost data as well".to_owned();
        };
        let text = |name: &str| info.get(name).and_then(Value::as_string).unwrap_or_default();
        if text("last-generated-id") == "0-0" {
            return "the stream was gone, too, and is new and empty, so Redis lost data or the stream was deleted"
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

    /// Checks that Redis accepts a write, and that all connections work. Each connection comes back at its own time,
    /// and a batch that is sent over one that is still broken would fail.
    ///
    /// # Errors
    /// As for [`Stream::ensure_group`]. A Redis at its memory limit is no error: the lanes can still process the
    /// entries that are in the stream, and settling them makes room.
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

    /// Appends an entry with these fields, and returns its id. If the pool has one connection, entries that are
    /// appended concurrently come into the stream in the order of the calls.
    ///
    /// # Errors
    /// When Redis refuses the entry, or does not answer: then it may be in the stream or not. It is sent once, because
    /// a second sending could append it twice.
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

    /// Acknowledges entries that this run of a server has handed over, in one round trip. Returns how many of them were
    /// pending until now. Without ids, it sends no command.
    ///
    /// # Errors
    /// When Redis does not answer: then the entries may be acknowledged or not, and a second call does no harm. Also
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
        // One allocation for all ids.
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

    /// Makes acknowledged entries pending again, all of them or none: `consumer` holds them, but not in progress. If no
    /// worker settles them before, a living lane claims them once they are idle for long enough. The entries must be in
    /// the stream. A process that remembers what is pending learns of the change from
    /// [`GroupInspector::made_pending`](crate::GroupInspector::made_pending).
    ///
    /// # Errors
    /// When Redis does not answer: then the entries may be pending or not, and a second call does no harm.
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

    /// Copies an entry that this run of a server has handed over to the dead stream, and acknowledges it. Returns false
    /// if it was not pending any more.
    ///
    /// # Errors
    /// When Redis does not answer, or refuses: the entry is either buried or still pending, never both or neither. Also
    /// [`StreamError::OtherServer`].
    pub async fn bury_of(
        &self,
        run: &ServerRun,
        entry: &Entry,
        why: &DeadLetterReason,
    ) -> Result<bool, StreamError> {
        Ok(self.call_bury(entry, why, (None, run)).await? == 1)
    }

    /// Like [`Stream::bury_of`], for an entry whose payload is copied from one stream to the other within Redis.
    ///
    /// # Errors
    /// As for [`Stream::bury_of`].
    pub async fn bury_unread(
        &self,
        run: &ServerRun,
        id: EntryId,
        why: &DeadLetterReason,
    ) -> Result<bool, StreamError> {
        self.bury_of(run, &Entry { id, fields: Vec::new() }, why).await
    }

    /// Like [`Stream::bury_of`], for callers that do not hold the entry. It buries the entry only while `consumer`
    /// holds it and the process of `consumer` has no heartbeat: a living process may be handling it.
    ///
    /// # Errors
    /// As for [`Stream::bury_of`].
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

/// The number of attempts of commands that hand entries over or append one. If their reply is lost, a second attempt
/// would hand over other entries and leave the first ones pending unseen, or append a second entry.
const SENT_ONCE: Option<u32> = Some(1);

fn millis(duration: Duration) -> Value {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).into()
}

fn length(count: usize) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

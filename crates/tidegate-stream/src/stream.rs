//! Access to the stream: its group, reading, claiming, settling, burying.

mod pending;
mod reader;

use std::{borrow::Cow, collections::HashMap, fmt::Write, iter, sync::Arc, time::Duration};

use fred::{
    bytes::Bytes,
    clients::{Client, Pool},
    error::Error,
    interfaces::{ClientLike, StreamsInterface},
    types::{ClusterHash, CustomCommand, Key, Value, config::Options},
};
use futures_util::future::join_all;

pub(crate) use self::pending::{Fetch, KEEPALIVE_PAGE, MOST_FETCHED};
pub use self::reader::Reader;
pub(crate) use self::reader::{next_reply, other_replies};
use crate::{
    entry::{BadReply, Entry, EntryId, bad_reply},
    handler::{DeadLetterReason, Outage},
    redis::{RedisError, RedisKey, RedisPool},
    script::ScriptSource,
};

/// The reason why a call could not read or change the stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream or its consumer group does not exist.
    #[error("the consumer group is missing: {0}")]
    NoGroup(String),
    /// Redis does not answer, or answers with an error.
    #[error(transparent)]
    Redis(RedisError),
    /// Redis sent a reply in an unexpected form.
    #[error(transparent)]
    BadReply(#[from] BadReply),
    /// The entries came from another server, or from an earlier run of the same server. The call changed nothing.
    #[error("the entries came from another server, or the server has restarted since: {0}")]
    OtherServer(String),
}

/// One run of a Redis server, from its start to its end. A process acknowledges entries only in the run that delivered
/// them. Another server may have given the same ids to other entries.
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
    /// The key of the stream that holds the dead letters.
    pub dead: String,
    /// The name of the consumer group of the stream.
    pub group: String,
}

impl StreamNames {
    /// Returns the key of a hash that has for each entry the number of processes that died while the entry was in
    /// progress. The hash also contains the time of the last call of [`Stream::make_pending`].
    #[must_use]
    pub fn crashes(&self) -> String {
        format!("{}.deaths", self.stream)
    }

    /// Returns the key of a hash in which each process lists the entries that it has set aside, to retry them later.
    #[must_use]
    pub fn set_aside(&self) -> String {
        format!("{}.set_aside", self.stream)
    }
}

/// The result of a call that creates the consumer group if the group is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// The group existed before the call.
    Existed,
    /// The call created the group, which begins at the first entry of the stream.
    Created,
}

/// The result of moving another consumer's entry to the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuryReply {
    /// The entry is a dead letter now.
    Buried,
    /// The entry was not pending any more.
    Settled,
    /// The process of the consumer lives, or another consumer now holds the entry. The call changed nothing.
    InProgress,
}

/// Access to a stream, with all operations that do not block. All consumers of a process share it.
#[derive(Clone, Debug)]
pub struct Stream {
    pool: Pool,
    names: StreamNames,
    counts_crashes: bool,
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
            counts_crashes: true,
            bury: ScriptSource::new("bury", include_str!("../lua/bury.lua")),
            settle: ScriptSource::new("settle", include_str!("../lua/settle.lua")),
            keepalive: ScriptSource::new("keepalive", include_str!("../lua/keepalive.lua")),
            fetch: ScriptSource::new("fetch", include_str!("../lua/fetch.lua")),
            count_crashes: ScriptSource::new("count_crashes", include_str!("../lua/count_crashes.lua")),
            set_aside: ScriptSource::new("set_aside", include_str!("../lua/set_aside.lua")),
            make_pending: ScriptSource::new("make_pending", include_str!("../lua/make_pending.lua")),
        }
    }

    /// Returns access to the stream that counts no crashes: its lanes neither handle an entry alone nor bury it because
    /// processes died with the entry in progress. Several groups of one stream share the counts, so at most one group
    /// may count crashes. Use this for handlers that no entry can crash.
    #[must_use]
    pub fn without_crash_counts(self) -> Self {
        Self { counts_crashes: false, ..self }
    }

    /// Returns the names of the stream, its group and its dead letters.
    #[must_use]
    pub fn names(&self) -> &StreamNames {
        &self.names
    }

    /// Creates the stream and its consumer group if they are missing. A new group begins at the first entry, so all
    /// entries in the stream are delivered again.
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

    /// Creates the consumer group again if it existed before and is missing now. The call then logs an error, because
    /// data may be lost.
    ///
    /// # Errors
    /// As for [`Stream::ensure_group`].
    pub async fn restore_group(&self) -> Result<(), StreamError> {
        if self.ensure_group().await? == GroupState::Created {
            let found = self.found_without_group().await;
            tracing::error!(
                stream = self.names.stream,
                group = self.names.group,
                "the consumer group was gone and was created again from the first entry of the stream: {found}"
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
            return "the stream was also gone and is empty now, so Redis lost data or the stream was deleted"
                .to_owned();
        }
        let length = text("length");
        let oldest = match info.get("first-entry") {
            Some(Value::Array(entry)) => entry.first().and_then(Value::as_string),
            _ => None,
        };
        let oldest = oldest.map_or_else(String::new, |id| format!(", the oldest is {id}"));
        format!(
            "the stream exists (entries: {length}{oldest}), so only the group was lost, unless older entries \
             are missing"
        )
    }

    /// Checks that Redis accepts a write, and that all connections of the pool work. After an outage, each connection
    /// reconnects at its own time, and commands over a broken connection would fail.
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

    /// Appends an entry with the given fields, and returns its id. If the pool has only one connection, concurrent
    /// calls append their entries in the order of the calls.
    ///
    /// # Errors
    /// When Redis refuses the entry, or does not answer: then it may be in the stream or not. It is sent once, because
    /// a second sending could append it twice.
    pub async fn append(&self, fields: &[(&str, Cow<'_, str>)]) -> Result<EntryId, StreamError> {
        self.append_over(self.pool.next(), fields).await
    }

    /// Appends several entries over one connection, in their order, without waiting between them. Returns for each entry
    /// what [`Stream::append`] returns.
    pub async fn append_all(
        &self,
        entries: &[Vec<(&str, Cow<'_, str>)>],
    ) -> Vec<Result<EntryId, StreamError>> {
        let connection = self.pool.next();
        join_all(entries.iter().map(|fields| self.append_over(connection, fields))).await
    }

    async fn append_over(
        &self,
        connection: &Client,
        fields: &[(&str, Cow<'_, str>)],
    ) -> Result<EntryId, StreamError> {
        let command = CustomCommand::new_static("XADD", ClusterHash::FirstKey, false);
        let mut args: Vec<Value> = vec![self.names.stream.as_str().into(), "*".into()];
        args.extend(fields.iter().flat_map(|(name, value)| [Value::from(*name), value.as_ref().into()]));
        let options = Options { max_attempts: SENT_ONCE, ..Default::default() };
        let reply: Value =
            connection.with_options(&options).custom(command, args).await.map_err(RedisError::new)?;
        let id = reply.as_str().and_then(|id| id.parse().ok());
        Ok(id.ok_or_else(|| bad_reply("the id of an entry", &reply))?)
    }

    /// Acknowledges entries that the server delivered in the run `run`, in one round trip. A run lasts from a start of
    /// the server to its end. Returns the number of entries that were still pending.
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

    /// Makes all given acknowledged entries pending again, or none of them. The entries must still be in the stream.
    /// Afterwards, the entries belong to `consumer`, until another consumer claims them after the usual idle time.
    /// Other processes notice the change by [`GroupInspector::made_pending`](crate::GroupInspector::made_pending).
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

    /// Moves an entry to the dead letters: copies it and acknowledges it in one step. The server must have delivered
    /// the entry in the run `run`, which lasts from a start of the server to its end. Returns false if the entry was
    /// not pending any more.
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

    /// Moves an entry to the dead letters like [`Stream::bury_of`], but without reading its payload. Redis copies the
    /// payload from stream to stream.
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

    /// Moves an entry of another consumer to the dead letters, like [`Stream::bury_of`]. The call moves the entry only
    /// if `consumer` holds it and the process of `consumer` has no heartbeat key. A living process may be handling the
    /// entry.
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

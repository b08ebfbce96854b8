//! The one door to the stream: its group, reading, claiming, settling, burying.

use std::{collections::HashMap, fmt::Write, iter, time::Duration};

use fred::{
    bytes::Bytes,
    clients::{Client, Pool},
    error::{Error, ErrorKind},
    interfaces::{ClientInterface, ClientLike, HashesInterface, StreamsInterface},
    prelude::FredResult,
    types::{ClusterHash, CustomCommand, Key, Resp3Frame as Frame, Value, config::Options},
};

use crate::{
    entry::{self, BadReply, Claimed, Delivery, Entry, EntryId, Fetched},
    handler::{Death, Outage},
    redis::{is_out_of_memory, is_refusal, lacks_permission},
    script::Script,
};

/// How much longer than its block time a read may take before its connection is given up.
const READ_MARGIN: Duration = Duration::from_secs(2);

/// Entries that are kept in one call, or whose deaths are counted: Redis copies each of them, payload and all, to see
/// whether it is there, and serves nobody else meanwhile.
const KEEP_PAGE: usize = 200;

/// Ids that `lua/fetch.lua` takes in one call: up to two values for each go on Lua's stack, which has room for 8000.
pub(crate) const MOST_FETCHED: usize = 2000;

/// For commands that hand entries over: when their reply is lost, sending them again would hand over others,
/// and leave the first ones pending unseen.
const SENT_ONCE: Option<u32> = Some(1);

/// Why the stream could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream or its consumer group is not there (any more).
    #[error("the consumer group is missing: {0}")]
    NoGroup(String),
    /// Redis does not answer, or answers with an error.
    #[error(transparent)]
    Redis(Error),
    /// Redis answered with something else than it should.
    #[error(transparent)]
    BadReply(#[from] BadReply),
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        // UNBLOCKED: the stream was deleted under a blocked reader (before Redis 7.2). Not only at the start: an
        // error from within a script has the script's name before it.
        let details = error.details();
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
    /// Hash beside the stream: how many processes died with an entry in hand.
    #[must_use]
    pub fn deaths(&self) -> String {
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
    InHand,
}

/// Everything about the stream that does not block; shared by all lanes.
#[derive(Clone, Debug)]
pub struct Stream {
    pool: Pool,
    names: StreamNames,
    bury: Script,
    keep: Script,
    fetch: Script,
    count_deaths: Script,
    set_aside: Script,
}

/// One of the pending entries of a consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) id: EntryId,
    /// 0: nobody has it in hand.
    pub(crate) deliveries: u64,
}

/// How entries are fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    /// Of names and values, and 64 for each field, at most; but the first entry comes whatever it weighs.
    pub(crate) bytes: usize,
    /// The same of the largest entry that is fetched.
    pub(crate) largest: usize,
    /// Deaths from which on an entry is withheld.
    pub(crate) limit: u32,
}

impl Stream {
    /// The stream `names.stream` in the Redis behind `pool`.
    #[must_use]
    pub fn new(pool: Pool, names: StreamNames) -> Self {
        Self {
            pool,
            names,
            bury: Script::new("bury", include_str!("../../../lua/bury.lua")),
            keep: Script::new("keep", include_str!("../../../lua/keep.lua")),
            fetch: Script::new("fetch", include_str!("../../../lua/fetch.lua")),
            count_deaths: Script::new("count_deaths", include_str!("../../../lua/count_deaths.lua")),
            set_aside: Script::new("set_aside", include_str!("../../../lua/set_aside.lua")),
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
            Err(error) => Err(error.into()),
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
                "the consumer group was gone and has been made again from the first entry of the stream: {found}; \
                 run `tidegate audit`"
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
            Err(StreamError::Redis(error)) if is_out_of_memory(&error) => {}
            restored => restored?,
        }
        for client in self.pool.clients() {
            let _pong: Value = client.ping(None).await?;
        }
        Ok(())
    }

    /// Claims up to `count` entries that nobody has touched for `idle`, scanning the pending list from
    /// `cursor`: their ids only, and no delivery is counted.
    ///
    /// # Errors
    /// As for every call here: Redis, the group, or the shape of the reply.
    pub(crate) async fn claim(
        &self,
        consumer: &str,
        idle: Duration,
        cursor: EntryId,
        count: usize,
    ) -> Result<Claimed, StreamError> {
        let StreamNames { stream, group, .. } = &self.names;
        let command = CustomCommand::new_static("XAUTOCLAIM", ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![
            stream.as_str().into(),
            group.as_str().into(),
            consumer.into(),
            millis(idle),
            cursor.to_string().into(),
            "COUNT".into(),
            length(count),
            "JUSTID".into(),
        ];
        let options = Options { max_attempts: SENT_ONCE, ..Default::default() };
        let reply = self.pool.next().with_options(&options).custom_raw(command, args).await;
        Ok(entry::parse_claim(no_error(reply)?)?)
    }

    /// Acknowledges entries, in one round trip. Returns how many were pending until now.
    ///
    /// # Errors
    /// When Redis does not answer; the entries may be acknowledged or not, and asking again does no harm.
    pub async fn settle(&self, ids: &[EntryId]) -> Result<usize, StreamError> {
        let command = CustomCommand::new_static("XACK", ClusterHash::FirstKey, false);
        let mut args: Vec<Value> = Vec::with_capacity(2 + ids.len());
        args.extend([&self.names.stream, &self.names.group].map(|name| name.as_str().into()));
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
        Ok(self.pool.custom(command, args).await?)
    }

    /// Copies an entry to the dead stream and acknowledges it. Returns false when it was not pending any more.
    ///
    /// # Errors
    /// When Redis does not answer or refuses; the entry is either buried or still pending, never both or none.
    pub async fn bury(&self, entry: &Entry, death: &Death) -> Result<bool, StreamError> {
        Ok(self.call_bury(entry, death, None).await? == 1)
    }

    /// As [`Stream::bury`], for an entry whose payload goes from the one stream to the other within Redis.
    ///
    /// # Errors
    /// As [`Stream::bury`].
    pub async fn bury_unread(&self, id: EntryId, death: &Death) -> Result<bool, StreamError> {
        self.bury(&Entry { id, fields: Vec::new() }, death).await
    }

    /// As [`Stream::bury`], for others than the consumer that holds the entry: only while `consumer` does, and while
    /// its process has no heartbeat. Whoever lives may be at work on it.
    ///
    /// # Errors
    /// As [`Stream::bury`].
    pub async fn bury_of_dead(
        &self,
        entry: &Entry,
        death: &Death,
        consumer: &str,
        heartbeat: Key,
    ) -> Result<BuryReply, StreamError> {
        let reply = match self.call_bury(entry, death, Some((consumer, heartbeat))).await? {
            1 => BuryReply::Buried,
            2 => return Ok(BuryReply::InHand),
            _ => BuryReply::Settled,
        };
        self.forget_deaths(&[entry.id]).await?;
        Ok(reply)
    }

    async fn call_bury(
        &self,
        entry: &Entry,
        death: &Death,
        of: Option<(&str, Key)>,
    ) -> Result<i64, StreamError> {
        let (consumer, heartbeat) = of.unzip();
        let mut keys = vec![self.names.stream.as_str().into(), self.names.dead.as_str().into()];
        keys.extend(heartbeat);
        let mut args: Vec<Value> = vec![
            self.names.group.as_str().into(),
            entry.id.to_string().into(),
            death.reason.into(),
            death.error.as_str().into(),
            consumer.unwrap_or_default().into(),
        ];
        for (name, value) in &entry.fields {
            args.extend([Value::Bytes(name.clone()), Value::Bytes(value.clone())]);
        }
        Ok(self.bury.call(&self.pool, keys, args).await?.convert()?)
    }

    /// Tells the group that `consumer` lives and works on some of its entries that come after `after`, or keeps them
    /// for later. Returns the last of them; None: there are no more.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn keep(&self, consumer: &str, after: EntryId) -> Result<Option<EntryId>, StreamError> {
        let keys = vec![self.names.stream.as_str().into()];
        let args = vec![
            self.names.group.as_str().into(),
            consumer.into(),
            format!("({after}").into(),
            "+".into(),
            length(KEEP_PAGE),
        ];
        match self.keep.call(&self.pool, keys, args).await? {
            Value::Integer(0) => Ok(None),
            last => Ok(Some(entry::parse_id(&last)?)),
        }
    }

    /// Makes `consumer` known to its group: others see it before it has read anything.
    ///
    /// # Errors
    /// As for every call here. A user who may not is none: the first entry that it is given makes it known, too.
    pub(crate) async fn enlist(&self, consumer: &str) -> Result<(), StreamError> {
        let command = CustomCommand::new_static("XGROUP", ClusterHash::Random, false);
        let StreamNames { stream, group, .. } = &self.names;
        let args: Vec<Value> =
            ["CREATECONSUMER", stream, group, consumer].into_iter().map(Value::from).collect();
        match self.pool.next().custom::<Value, Value>(command, args).await {
            Err(error) if !is_refusal(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Up to `count` entries of `consumer` that are pending and come after `after`.
    ///
    /// # Errors
    /// As for every call here.
    pub(crate) async fn own(
        &self,
        consumer: &str,
        after: EntryId,
        count: usize,
    ) -> Result<Vec<Own>, StreamError> {
        let StreamNames { stream, group, .. } = &self.names;
        let args: Vec<Value> = vec![
            stream.as_str().into(),
            group.as_str().into(),
            format!("({after}").into(),
            "+".into(),
            length(count),
            consumer.into(),
        ];
        let Value::Array(rows) = self.xpending(args).await? else { return Ok(Vec::new()) };
        let own = |row: &Value| match row {
            Value::Array(parts) if parts.len() == 4 => {
                Ok(Own { id: entry::parse_id(&parts[0])?, deliveries: parts[3].as_u64().unwrap_or_default() })
            }
            other => Err(entry::bad_reply("[id, consumer, idle, deliveries]", other)),
        };
        Ok(rows.iter().map(own).collect::<Result<_, _>>()?)
    }

    /// Number of entries of `consumer` that are pending.
    ///
    /// # Errors
    /// As for every call here.
    pub(crate) async fn count_own(&self, consumer: &str) -> Result<usize, StreamError> {
        let StreamNames { stream, group, .. } = &self.names;
        let summary = self.xpending(vec![stream.as_str().into(), group.as_str().into()]).await?;
        let Value::Array(parts) = &summary else {
            return Err(entry::bad_reply("a summary of the pending list", &summary).into());
        };
        let Some(Value::Array(consumers)) = parts.get(3) else { return Ok(0) };
        let own = consumers.iter().find_map(|row| match row {
            Value::Array(row) if row.first()?.as_bytes() == Some(consumer.as_bytes()) => {
                row.get(1)?.as_usize()
            }
            _ => None,
        });
        Ok(own.unwrap_or_default())
    }

    async fn xpending(&self, args: Vec<Value>) -> Result<Value, StreamError> {
        let command = CustomCommand::new_static("XPENDING", ClusterHash::FirstKey, false);
        Ok(self.pool.next().custom(command, args).await?)
    }

    /// Hands pending entries to the consumer that holds them, and says that it has them in hand. Ids, ascending, that
    /// are not its own any more are passed over.
    ///
    /// # Errors
    /// As for every call here; asking again does no harm.
    pub(crate) async fn fetch(
        &self,
        consumer: &str,
        ids: &[EntryId],
        fetch: Fetch,
    ) -> Result<Fetched, StreamError> {
        let mut args: Vec<Value> = vec![
            self.names.group.as_str().into(),
            consumer.into(),
            length(fetch.bytes),
            length(fetch.largest),
            i64::from(fetch.limit).into(),
        ];
        args.extend(ids.iter().map(|id| Value::from(id.to_string())));
        Ok(entry::parse_fetched(self.call_with_deaths(&self.fetch, args).await?)?)
    }

    /// Counts a death of each of these entries of `consumer` that a process had in hand; from then on nobody has.
    ///
    /// # Errors
    /// As for every call here; asking again does no harm.
    pub(crate) async fn count_deaths(&self, consumer: &str, ids: &[EntryId]) -> Result<(), StreamError> {
        for ids in ids.chunks(KEEP_PAGE) {
            let mut args: Vec<Value> = vec![self.names.group.as_str().into(), consumer.into()];
            args.extend(ids.iter().map(|id| Value::from(id.to_string())));
            let _count = self.call_with_deaths(&self.count_deaths, args).await?;
        }
        Ok(())
    }

    /// Calls a script that knows of deaths. Where this user may not touch their notes, Redis refuses the whole call: then
    /// the script does without them.
    async fn call_with_deaths(&self, script: &Script, args: Vec<Value>) -> Result<Frame, StreamError> {
        let keys = vec![self.names.stream.as_str().into(), self.names.deaths().into()];
        match script.call_raw(&self.pool, keys, args.clone()).await {
            Err(error) if lacks_permission(&error) => {
                Ok(script.call_raw(&self.pool, vec![self.names.stream.as_str().into()], args).await?)
            }
            reply => Ok(reply?),
        }
    }

    /// Notes that nobody has these entries of `consumer` in hand, though it keeps them.
    ///
    /// # Errors
    /// As for every call here; asking again does no harm.
    pub(crate) async fn set_aside(&self, consumer: &str, ids: &[EntryId]) -> Result<(), StreamError> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys = vec![self.names.stream.as_str().into()];
        let mut args: Vec<Value> = vec![self.names.group.as_str().into(), consumer.into()];
        args.extend(ids.iter().map(|id| Value::from(id.to_string())));
        let _count = self.set_aside.call(&self.pool, keys, args).await?;
        Ok(())
    }

    /// Forgets how many processes died with these entries in hand: they are settled. Notes that Redis does not let go of
    /// expire by themselves.
    ///
    /// # Errors
    /// As for every call here; asking again does no harm.
    pub async fn forget_deaths(&self, ids: &[EntryId]) -> Result<(), StreamError> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        match self.pool.hdel::<Value, _, _>(self.names.deaths(), ids).await {
            Err(error) if !is_refusal(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Ends the wait of `reader` for new entries: its read answers as if the block time were over. Does nothing
    /// when that read is not blocked, or not yet.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn unblock(&self, reader: &Reader) -> Result<(), StreamError> {
        for id in reader.client.connection_ids().into_values() {
            let command = CustomCommand::new_static("CLIENT", ClusterHash::FirstKey, false);
            // TIMEOUT and not ERROR: should the id be one of before a restart of Redis, then whoever has it now
            // sees an empty read and nothing worse.
            let args: Vec<Value> = vec!["UNBLOCK".into(), id.into(), "TIMEOUT".into()];
            let _count: Value = self.pool.custom(command, args).await?;
        }
        Ok(())
    }
}

/// Reads the stream as one consumer of its group, over a connection of its own.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    names: StreamNames,
    consumer: String,
    reconnects: tokio::sync::broadcast::Receiver<fred::types::config::Server>,
}

impl Reader {
    /// Reads as `consumer` over `client`, which nothing else may use: a blocked read holds up all behind it.
    #[must_use]
    pub fn new(client: Client, names: StreamNames, consumer: String) -> Self {
        let reconnects = fred::interfaces::EventInterface::reconnect_rx(&client);
        Self { client, names, consumer, reconnects }
    }

    /// Name of the consumer.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Whether the connection was made anew since this was last asked.
    pub fn has_reconnected(&mut self) -> bool {
        let mut seen = false;
        // Lagged means that there were more of them than the channel holds.
        while !matches!(
            self.reconnects.try_recv(),
            Err(tokio::sync::broadcast::error::TryRecvError::Empty
                | tokio::sync::broadcast::error::TryRecvError::Closed)
        ) {
            seen = true;
        }
        seen
    }

    /// Reads up to `count` entries that nobody has seen, waiting up to `block` for the first; if zero, not at all.
    ///
    /// Never cancel this: the server hands entries over even when nobody listens any more.
    ///
    /// # Errors
    /// After any error, entries may have been delivered unseen: read the own pending list.
    pub async fn read_new(&self, count: usize, block: Duration) -> Result<Delivery, StreamError> {
        // BLOCK 0 would mean for ever, and BLOCK 1 up to a tenth of a second: Redis looks after those who wait when
        // something happens, or ten times a second.
        let block = (!block.is_zero()).then(|| block.max(Duration::from_millis(1)));
        self.read(&self.client, count, block).await
    }

    /// As [`Reader::read_new`] without waiting, over a connection that it shares with other readers, one at a time.
    pub(crate) async fn read_new_over(&self, client: &Client, count: usize) -> Result<Delivery, StreamError> {
        self.read(client, count, None).await
    }

    async fn read(
        &self,
        client: &Client,
        count: usize,
        block: Option<Duration>,
    ) -> Result<Delivery, StreamError> {
        let mut args: Vec<Value> = Vec::with_capacity(11);
        args.extend(["GROUP", &self.names.group, &self.consumer, "COUNT"].map(Value::from));
        args.push(length(count));
        if let Some(block) = block {
            args.extend(["BLOCK".into(), millis(block)]);
        }
        args.extend(["STREAMS", &self.names.stream, ">"].map(Value::from));

        let slot = ClusterHash::Custom(fred::util::redis_keyslot(self.names.stream.as_bytes()));
        let command = CustomCommand::new_static("XREADGROUP", slot, block.is_some());
        let options = Options {
            timeout: Some(block.unwrap_or_default() + READ_MARGIN),
            max_attempts: SENT_ONCE,
            ..Default::default()
        };
        match no_error(client.with_options(&options).custom_raw(command, args).await) {
            Ok(reply) => Ok(entry::parse_read(reply)?),
            Err(error) => {
                if *error.kind() == ErrorKind::Timeout && client.is_connected() {
                    // The connection swallowed the read; another one may not. Nobody waits for it here: while
                    // Redis is away it takes as long as that lasts, and the outage has to be told now.
                    let client = client.clone();
                    tokio::spawn(async move { client.force_reconnection().await });
                }
                Err(error.into())
            }
        }
    }
}

/// A reply as it came, unless it is the error of the server.
pub(crate) fn no_error(reply: FredResult<Frame>) -> FredResult<Frame> {
    match reply? {
        error @ (Frame::SimpleError { .. } | Frame::BlobError { .. }) => Err(match Value::try_from(error) {
            Err(error) => error,
            Ok(value) => Error::new(ErrorKind::Protocol, format!("{value:?}")),
        }),
        reply => Ok(reply),
    }
}

fn millis(duration: Duration) -> Value {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).into()
}

fn length(count: usize) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

//! Reads of a stream without a consumer group, by readers that keep their positions themselves. Trimming does not wait
//! for such readers, so each reader must check whether entries after its position were trimmed.

use std::{
    slice,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value, config::Options},
};

use crate::{
    entry::{self, Entry, EntryId, bad_reply, parse_id},
    inspector::{StreamInspector, field},
    redis::{
        Reconnects, RedisConnection, RedisConnectionSettings, RedisError, RedisErrorKind, connect_reader,
        no_error,
    },
    stream::{StreamError, StreamNames},
};

/// The time that a waiting read may take beyond its block time before its connection is given up.
const WAIT_MARGIN: Duration = Duration::from_secs(2);

/// The span of a stream: its first entry, its newest id, and the numbers of its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSpan {
    /// The id of the oldest entry in the stream. None: the stream is empty, or its key does not exist.
    pub first: Option<EntryId>,
    /// The highest id that the stream ever had. It stays when the entry is trimmed.
    pub last_id: EntryId,
    /// The number of entries in the stream.
    pub length: u64,
    /// The number of entries that were ever added to the stream. None: the server is older than Redis 7 and does not
    /// know this number.
    pub added: Option<u64>,
}

impl StreamSpan {
    /// Returns the number of entries that were added once and are not in the stream any more. If no entry was deleted
    /// singly, these are the oldest entries.
    #[must_use]
    pub fn removed(&self) -> Option<u64> {
        self.added.map(|added| added.saturating_sub(self.length))
    }
}

/// A reader of one stream over one connection, without a consumer group.
#[derive(Debug)]
pub struct PositionReader {
    client: Client,
    inspector: StreamInspector,
    key: String,
    reconnects: Mutex<(Reconnects, u64)>,
}

impl PositionReader {
    /// Opens a connection for reading the stream `key`.
    ///
    /// # Errors
    /// When the URL is wrong or the first connection fails.
    pub async fn connect(settings: &RedisConnectionSettings, key: &str) -> Result<Self, StreamError> {
        let RedisConnection(client) = connect_reader(settings).await?;
        let reconnects = Mutex::new((Reconnects::of(slice::from_ref(&client)), 0));
        let pool = Pool::from_clients(vec![client.clone()]).map_err(RedisError::new)?;
        let names = StreamNames { stream: key.to_owned(), dead: String::new(), group: String::new() };
        let inspector = StreamInspector::new(crate::redis::RedisPool(pool), names);
        Ok(Self { client, inspector, key: key.to_owned(), reconnects })
    }

    /// Returns how often the connection has reconnected. If the number is the same before the first and after the last
    /// of several reads, then all replies came from one process of Redis.
    pub fn reconnects(&self) -> u64 {
        let (reconnects, count) = &mut *self.reconnects.lock().unwrap_or_else(PoisonError::into_inner);
        *count += u64::from(reconnects.seen());
        *count
    }

    /// Returns a text that identifies the data of the server. A restart changes the text, and so does the promotion of
    /// a replica: the data may then lack the newest entries, and give their ids to others.
    ///
    /// # Errors
    /// When the server does not answer, or is a replica, whose data may be replaced at any time.
    pub async fn history(&self) -> Result<String, StreamError> {
        let (server, replication) = tokio::try_join!(self.info("server"), self.info("replication"))?;
        if value_of(&replication, "role") == Some("slave") {
            return Err(bad_reply("the INFO of a master", &replication.as_str().into()).into());
        }
        let run = value_of(&server, "run_id");
        let run = run.ok_or_else(|| bad_reply("a text with run_id", &server.as_str().into()))?;
        // A master that became a replica, and then a master again, has the same run id and another replication id.
        Ok(format!("{run} {}", value_of(&replication, "master_replid").unwrap_or_default()))
    }

    async fn info(&self, section: &'static str) -> Result<String, StreamError> {
        let command = CustomCommand::new_static("INFO", ClusterHash::FirstKey, false);
        Ok(self.client.custom(command, vec![section]).await.map_err(RedisError::new)?)
    }

    /// Returns the span of the stream. A missing key has the span of a stream without entries.
    ///
    /// # Errors
    /// When Redis does not answer, or the key has another type.
    pub async fn span(&self) -> Result<StreamSpan, StreamError> {
        let info = match self.inspector.call("XINFO", vec!["STREAM".into(), self.key.as_str().into()]).await {
            Err(StreamError::Redis(error)) if error.is_no_such_key() => {
                return Ok(StreamSpan { added: Some(0), ..StreamSpan::default() });
            }
            info => info?,
        };
        let first = match field(&info, "first-entry") {
            Some(Value::Array(entry)) => entry.first().map(parse_id).transpose()?,
            _ => None,
        };
        let last_id = field(&info, "last-generated-id").unwrap_or(&Value::Null);
        let length = field(&info, "length").and_then(Value::as_u64);
        Ok(StreamSpan {
            first,
            last_id: parse_id(last_id)?,
            length: length.ok_or_else(|| bad_reply("the length of a stream", &info))?,
            added: field(&info, "entries-added").and_then(Value::as_u64),
        })
    }

    /// Reads up to `count` entries with ids greater than `after`. If the entries are larger than about 4 MiB together,
    /// the result has fewer entries, but at least one.
    ///
    /// # Errors
    /// As for [`PositionReader::span`].
    pub async fn page(&self, after: EntryId, count: u16) -> Result<Vec<Entry>, StreamError> {
        self.inspector.page(&self.key, (after, EntryId::MAX), count).await
    }

    /// Returns whether the stream has an entry with this id.
    ///
    /// # Errors
    /// As for [`PositionReader::span`].
    pub async fn has(&self, id: EntryId) -> Result<bool, StreamError> {
        Ok(self.inspector.entry(&self.key, id).await?.is_some())
    }

    /// Waits up to `block` for entries with ids greater than `after`, and returns up to `count` of them. No other call
    /// may use the connection meanwhile.
    ///
    /// # Errors
    /// As for [`PositionReader::span`].
    pub async fn wait(&self, after: EntryId, count: u16, block: Duration) -> Result<Vec<Entry>, StreamError> {
        let block_ms = i64::try_from(block.as_millis()).unwrap_or(i64::MAX).max(1);
        let mut args: Vec<Value> =
            vec!["COUNT".into(), i64::from(count).into(), "BLOCK".into(), block_ms.into()];
        args.extend(["STREAMS".into(), self.key.as_str().into(), after.to_string().into()]);
        let slot = ClusterHash::Custom(fred::util::redis_keyslot(self.key.as_bytes()));
        let command = CustomCommand::new_static("XREAD", slot, true);
        let options = Options { timeout: Some(block + WAIT_MARGIN), ..Default::default() };
        let reply = no_error(self.client.with_options(&options).custom_raw(command, args).await);
        let reply = reply.map_err(|error| RedisError::of_key(&self.key, error));
        if let Err(error) = &reply
            && error.kind() == RedisErrorKind::Timeout
        {
            // The old connection may have lost the read.
            let client = self.client.clone();
            tokio::spawn(async move { client.force_reconnection().await });
        }
        Ok(entry::parse_read(reply?)?.entries)
    }

    /// Closes the connection of this reader.
    pub async fn close(&self) {
        let _gone = self.client.quit().await;
    }
}

/// The value of a line `name:value` in a reply of INFO.
fn value_of<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

//! Read-only access to a stream: nothing here changes anything.

use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Resp3Frame as Frame, Value},
};

use crate::{
    entry::{self, Entry, EntryId, bad_reply},
    page_size::PAGE_BYTES,
    redis::{RedisError, RedisPool, no_error},
    script::ScriptSource,
    stream::{ServerRun, StreamError, StreamNames},
};

/// A reader of a stream and its dead letters. [`StreamInspector::group`] reads the stream's consumer group.
#[derive(Clone, Debug)]
pub struct StreamInspector {
    pool: Pool,
    names: StreamNames,
    peek: ScriptSource,
    read_page: ScriptSource,
}

/// The fields of an entry that a read returns: all fields, or only the given fields.
#[derive(Clone, Copy, Debug)]
pub enum Read<'a> {
    /// The whole entry, with all fields.
    Whole,
    /// Only the fields with the given names, without values of more than 256 bytes. If a name occurs twice, the first
    /// field counts.
    Fields(&'a [&'a str]),
}

/// The number of bytes that a value may have to be read by [`Read::Fields`].
const LONGEST_VALUE: i64 = 256;

/// The number of entries up to which a page is read by XRANGE, whatever they weigh.
const FEW: u16 = 4;

/// The number of ids that one call reads at most.
const IDS_A_CALL: usize = 1_000;

impl StreamInspector {
    /// Creates a reader of the stream in `names`, in the Redis that `pool` is connected to.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        let peek = ScriptSource::new("peek", include_str!("../lua/peek.lua"));
        let read_page = ScriptSource::new("read_page", include_str!("../lua/read_page.lua"));
        Self { pool: pool.into().0, names, peek, read_page }
    }

    /// Returns a reader of the stream that uses only one connection. Call [`StreamInspector::server_run`] before and
    /// after your reads: if the results are equal, all reads came from the same start of the server.
    #[must_use]
    pub fn over_one_connection(&self) -> Self {
        let pool = Pool::from_clients(vec![self.one_client()]).unwrap_or_else(|_| self.pool.clone());
        Self { pool, ..self.clone() }
    }

    pub(crate) fn one_client(&self) -> Client {
        self.pool.next().clone()
    }

    /// Returns an id of the present run of the Redis server. Each start of a server begins a new run.
    ///
    /// # Errors
    /// When the server does not answer, or does not send its run id.
    pub async fn server_run(&self) -> Result<ServerRun, StreamError> {
        ServerRun::of(self.pool.next()).await
    }

    /// Returns the names of the stream, its group and its dead letters.
    #[must_use]
    pub fn names(&self) -> &StreamNames {
        &self.names
    }

    /// Returns the number of entries in the stream `key`. 0: the stream is empty or does not exist.
    ///
    /// # Errors
    /// As for every call here: Redis does not answer, the key has another type, or the reply has an unknown shape.
    pub async fn length(&self, key: &str) -> Result<u64, StreamError> {
        let length = self.call("XLEN", vec![key.into()]).await?;
        length.as_u64().ok_or_else(|| bad_reply("a length", &length).into())
    }

    /// Returns the id of the last entry in the stream `key`. The result is [`EntryId::MIN`] if the stream is empty or
    /// does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn last_id(&self, key: &str) -> Result<EntryId, StreamError> {
        let reply = self
            .call_raw("XREVRANGE", vec![key.into(), "+".into(), "-".into(), "COUNT".into(), 1.into()])
            .await?;
        Ok(entry::parse_entries(reply)?.last_id().unwrap_or_default())
    }

    /// Reads up to `count` entries of the stream `key` with ids greater than `after`, up to and including `last`. If
    /// the entries are larger than about 4 MiB together, the result has fewer entries, but at least one.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn page(
        &self,
        key: &str,
        (after, last): (EntryId, EntryId),
        count: u16,
    ) -> Result<Vec<Entry>, StreamError> {
        let (from, to) = (format!("({after}"), last.to_string());
        if count > FEW {
            let args: Vec<Value> = vec![
                from.as_str().into(),
                to.as_str().into(),
                i64::from(count).into(),
                i64::try_from(PAGE_BYTES).unwrap_or(i64::MAX).into(),
            ];
            match self.read_page.call_raw(&self.pool, vec![key.into()], args).await {
                // The user may have no permission to call scripts, for example. If not, the command below reports a
                // clearer error.
                Err(error) if error.is_refusal() => {}
                reply => return Ok(entry::parse_entries(reply?)?.entries),
            }
        }
        let args = vec![key.into(), from.into(), to.into(), "COUNT".into(), i64::from(count).into()];
        Ok(entry::parse_entries(self.call_raw("XRANGE", args).await?)?.entries)
    }

    /// Reads the entry `id` of the stream `key`. None: the entry was deleted, trimmed, or never written.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn entry(&self, key: &str, id: EntryId) -> Result<Option<Entry>, StreamError> {
        let args = vec![key.into(), id.to_string().into(), id.to_string().into()];
        Ok(entry::parse_entries(self.call_raw("XRANGE", args).await?)?.entries.pop())
    }

    /// Reads the given entries of the stream `key`, beginning with the first id, until the result is larger than about
    /// 4 MiB. It reads at least one entry. An entry that does not exist is None. To read all given entries, call
    /// [`StreamInspector::entries`].
    ///
    /// # Errors
    /// As for every call here.
    pub async fn read(
        &self,
        key: &str,
        ids: &[EntryId],
        read: Read<'_>,
    ) -> Result<Vec<Option<Entry>>, StreamError> {
        let ids = &ids[..ids.len().min(IDS_A_CALL)];
        let names = match read {
            Read::Whole => &[],
            Read::Fields(names) => names,
        };
        let length = |length: usize| Value::from(i64::try_from(length).unwrap_or(i64::MAX));
        let mut args: Vec<Value> = vec![length(PAGE_BYTES), LONGEST_VALUE.into(), length(names.len())];
        args.extend(names.iter().map(|name| Value::from(*name)));
        args.extend(ids.iter().map(|id| Value::from(id.to_string())));
        match (self.peek.call_raw(&self.pool, vec![key.into()], args).await, read) {
            (Err(error), Read::Whole) if error.lacks_permission() => self.read_one_by_one(key, ids).await,
            (reply, _) => {
                let fields = entry::parse_glimpsed(reply?)?;
                if fields.is_empty() && !ids.is_empty() {
                    return Err(bad_reply("the fields of an entry", &Value::Null).into());
                }
                let entry = |(id, fields): (&EntryId, Option<_>)| Some(Entry { id: *id, fields: fields? });
                Ok(ids.iter().zip(fields).map(entry).collect())
            }
        }
    }

    /// Reads the entries one by one, for users of Redis that may not call scripts.
    async fn read_one_by_one(&self, key: &str, ids: &[EntryId]) -> Result<Vec<Option<Entry>>, StreamError> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for id in ids {
            let entry = self.entry(key, *id).await?;
            bytes += entry.as_ref().map_or(0, Entry::bytes);
            entries.push(entry);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(entries)
    }

    /// Reads up to `count` entries of the stream `key` backwards: ids less than `before`, down to and including
    /// `first`. The latest entry comes first.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn page_back(
        &self,
        key: &str,
        (first, before): (EntryId, EntryId),
        count: u16,
    ) -> Result<Vec<Entry>, StreamError> {
        let (from, to) = (format!("({before}"), first.to_string());
        let args = vec![key.into(), from.into(), to.into(), "COUNT".into(), i64::from(count).into()];
        Ok(entry::parse_entries(self.call_raw("XREVRANGE", args).await?)?.entries)
    }

    pub(crate) fn pool(&self) -> RedisPool {
        RedisPool(self.pool.clone())
    }

    pub(crate) async fn call(&self, command: &'static str, args: Vec<Value>) -> Result<Value, StreamError> {
        Ok(Value::try_from(self.call_raw(command, args).await?).map_err(RedisError::new)?)
    }

    pub(crate) async fn call_raw(
        &self,
        command: &'static str,
        args: Vec<Value>,
    ) -> Result<Frame, StreamError> {
        // The key of XINFO is its second argument.
        let key = args.get(usize::from(command == "XINFO")).and_then(Value::as_bytes).unwrap_or_default();
        let slot = ClusterHash::Custom(fred::util::redis_keyslot(key));
        let key = String::from_utf8_lossy(key).into_owned();
        let command = CustomCommand::new_static(command, slot, false);
        let reply = no_error(self.pool.next().custom_raw(command, args).await);
        Ok(reply.map_err(|error| RedisError::of_key(&key, error))?)
    }
}

/// Returns a field of a map, which RESP2 writes as `[name, value, name, value]`.
pub(crate) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    match map {
        Value::Array(items) => items
            .chunks_exact(2)
            .find(|pair| pair[0].as_bytes() == Some(name.as_bytes()))
            .map(|pair| &pair[1]),
        Value::Map(map) => {
            map.iter().find(|(key, _)| key.as_bytes() == name.as_bytes()).map(|(_, value)| value)
        }
        _ => None,
    }
}

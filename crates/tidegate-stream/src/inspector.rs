//! Looks at a stream without taking part: nothing here changes anything.

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

/// Reads a stream and its dead letters. [`StreamInspector::group`] reads its consumer group.
#[derive(Clone, Debug)]
pub struct StreamInspector {
    pool: Pool,
    names: StreamNames,
    peek: ScriptSource,
    read_page: ScriptSource,
}

/// What is read of entries.
#[derive(Clone, Copy, Debug)]
pub enum Read<'a> {
    /// All of them.
    Whole,
    /// The fields of these names, but for values that are longer than any id, reference or trace context. Of a field that stands
    /// twice, the first one.
    Fields(&'a [&'a str]),
}

/// Bytes of a value that [`Read::Fields`] reads, at most.
const LONGEST_VALUE: i64 = 256;

/// So few entries are read as they are, whatever they weigh.
const FEW: u16 = 4;

/// Ids that one call looks at, at most.
const IDS_A_CALL: usize = 1_000;

impl StreamInspector {
    /// A look at `names` in the Redis behind `pool`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        let peek = ScriptSource::new("peek", include_str!("../lua/peek.lua"));
        let read_page = ScriptSource::new("read_page", include_str!("../lua/read_page.lua"));
        Self { pool: pool.into().0, names, peek, read_page }
    }

    /// The same over one connection. What [`StreamInspector::server_run`] says first is then true of all that is read behind it, or
    /// the server has changed since.
    #[must_use]
    pub fn over_one_connection(&self) -> Self {
        let pool = Pool::from_clients(vec![self.one_client()]).unwrap_or_else(|_| self.pool.clone());
        Self { pool, ..self.clone() }
    }

    pub(crate) fn one_client(&self) -> Client {
        self.pool.next().clone()
    }

    /// Which run of which server answers.
    ///
    /// # Errors
    /// When it does not answer, or does not say.
    pub async fn server_run(&self) -> Result<ServerRun, StreamError> {
        ServerRun::of(self.pool.next()).await
    }

    /// The names that are looked at.
    #[must_use]
    pub fn names(&self) -> &StreamNames {
        &self.names
    }

    /// Number of entries in the stream `key`, 0 when there is none.
    ///
    /// # Errors
    /// As for every call here: Redis, a key of another type, or the shape of the reply.
    pub async fn length(&self, key: &str) -> Result<u64, StreamError> {
        let length = self.call("XLEN", vec![key.into()]).await?;
        length.as_u64().ok_or_else(|| bad_reply("a length", &length).into())
    }

    /// The id of the last entry in the stream `key`, [`EntryId::MIN`] when it is empty or missing.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn last_id(&self, key: &str) -> Result<EntryId, StreamError> {
        let reply = self
            .call_raw("XREVRANGE", vec![key.into(), "+".into(), "-".into(), "COUNT".into(), 1.into()])
            .await?;
        Ok(entry::parse_entries(reply)?.last_id().unwrap_or_default())
    }

    /// Up to `count` entries of the stream `key` that come after `after`, none later than `last`; fewer, but at least one, where
    /// they weigh more than about 4 MiB.
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
                // Of a user who may call no script, for example. Or the error of the command tells more.
                Err(error) if error.is_refusal() => {}
                reply => return Ok(entry::parse_entries(reply?)?.entries),
            }
        }
        let args = vec![key.into(), from.into(), to.into(), "COUNT".into(), i64::from(count).into()];
        Ok(entry::parse_entries(self.call_raw("XRANGE", args).await?)?.entries)
    }

    /// The entry `id` of the stream `key`; None: it was deleted, trimmed, or never there.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn entry(&self, key: &str, id: EntryId) -> Result<Option<Entry>, StreamError> {
        let args = vec![key.into(), id.to_string().into(), id.to_string().into()];
        Ok(entry::parse_entries(self.call_raw("XRANGE", args).await?)?.entries.pop())
    }

    /// Of these entries of the stream `key` the first ones, until they weigh about 4 MiB; at least one. None as for
    /// [`StreamInspector::entry`]. [`StreamInspector::entries`] goes on to the last of them.
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

    /// For users of Redis that may call no script.
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

    /// Up to `count` entries of the stream `key` that come before `before`, none earlier than `first`; the latest
    /// first.
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
        // XINFO's key stands second.
        let key = args.get(usize::from(command == "XINFO")).and_then(Value::as_bytes).unwrap_or_default();
        let slot = ClusterHash::Custom(fred::util::redis_keyslot(key));
        let key = String::from_utf8_lossy(key).into_owned();
        let command = CustomCommand::new_static(command, slot, false);
        let reply = no_error(self.pool.next().custom_raw(command, args).await);
        Ok(reply.map_err(|error| RedisError::of_key(&key, error))?)
    }
}

/// A field of a map, which RESP2 writes as `[name, value, name, value]`.
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

//! The pending list of the group: claiming, handing over, setting aside, and the crash counts of pending entries.

use std::time::Duration;

use fred::{
    clients::Client,
    interfaces::{ClientLike, HashesInterface},
    types::{ClusterHash, CustomCommand, Resp3Frame as Frame, Value, config::Options},
};

use super::{SENT_ONCE, ServerRun, Stream, StreamError, StreamNames, length, millis};
use crate::{
    entry::{self, Claimed, EntryId, Fetched},
    redis::{RedisError, no_error},
    script::ScriptSource,
};

/// The number of entries that one call keeps from being claimed, counts crashes of, or sets aside because a batch had
/// no room. Redis copies each entry with its payload to see whether it exists, and serves no other client in the
/// meantime.
pub(crate) const KEEPALIVE_PAGE: usize = 200;

/// The number of ids that `lua/fetch.lua` takes in one call: up to two values for each id go on Lua's stack, which has
/// room for 8000.
pub(crate) const MOST_FETCHED: usize = 2000;

/// One pending entry of a consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerEntry {
    pub(crate) id: EntryId,
    /// The number of deliveries; 0: no process has the entry in progress.
    pub(crate) deliveries: u64,
}

/// The conditions under which entries are fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch<'a> {
    /// The run of the server that handed the entries over.
    pub(crate) run: &'a ServerRun,
    /// The bytes of names and values, and 64 for each field, that a batch may have; the first entry comes whatever it
    /// weighs.
    pub(crate) bytes: usize,
    /// The bytes of the largest entry that is fetched, counted in the same way.
    pub(crate) largest: usize,
    /// The number of crashes from which on an entry is withheld.
    pub(crate) limit: u32,
}

impl Stream {
    /// Claims up to `count` entries that were idle for `idle`, scanning the pending list from `cursor`. It reads only
    /// their ids, and does not count a delivery.
    ///
    /// # Errors
    /// As for every call here: Redis does not answer, the group is missing, or the reply has an unknown shape.
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
        Ok(entry::parse_claim(no_error(reply).map_err(RedisError::new)?)?)
    }

    /// Resets the idle time of some entries of `consumer` that come after `after`: the consumer lives, and has them in
    /// progress or set aside. Returns the last of them; None: there are no more.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn keepalive(
        &self,
        consumer: &str,
        after: EntryId,
    ) -> Result<Option<EntryId>, StreamError> {
        let range = (format!("({after}"), "+".to_owned());
        Ok(self.keep(self.pool.next(), consumer, range, KEEPALIVE_PAGE).await?.map(|(last, _)| last))
    }

    /// Like [`Stream::keepalive`] for one entry, over one connection. Returns whether the idle time was written, which
    /// means that the consumer has the entry.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn keep_one(
        &self,
        client: &Client,
        consumer: &str,
        id: EntryId,
    ) -> Result<bool, StreamError> {
        let range = (id.to_string(), id.to_string());
        Ok(self.keep(client, consumer, range, 1).await?.is_some_and(|(_, kept)| kept > 0))
    }

    /// Returns the last entry that the script checked, and the number of entries whose idle time it reset; None: there
    /// are none.
    async fn keep(
        &self,
        client: &Client,
        consumer: &str,
        (from, last): (String, String),
        count: usize,
    ) -> Result<Option<(EntryId, u64)>, StreamError> {
        let keys = vec![self.names.stream.as_str().into()];
        let args =
            vec![self.names.group.as_str().into(), consumer.into(), from.into(), last.into(), length(count)];
        match self.keepalive.call_over(client, keys, args).await? {
            Value::Integer(0) => Ok(None),
            Value::Array(parts) if parts.len() == 2 => {
                Ok(Some((entry::parse_id(&parts[0])?, parts[1].as_u64().unwrap_or_default())))
            }
            other => Err(entry::bad_reply("[id, number]", &other).into()),
        }
    }

    /// Creates `consumer` in its group, so that others see it before it has read anything.
    ///
    /// # Errors
    /// As for every call here. A missing permission is no error: the first entry that the consumer gets creates it,
    /// too.
    pub(crate) async fn enlist(&self, consumer: &str) -> Result<(), StreamError> {
        let command = CustomCommand::new_static("XGROUP", ClusterHash::Random, false);
        let StreamNames { stream, group, .. } = &self.names;
        let args: Vec<Value> =
            ["CREATECONSUMER", stream, group, consumer].into_iter().map(Value::from).collect();
        match self.pool.next().custom::<Value, Value>(command, args).await.map_err(RedisError::new) {
            Err(error) if !error.is_refusal() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Reads up to `count` pending entries of `consumer` that come after `after`.
    ///
    /// # Errors
    /// As for every call here.
    pub(crate) async fn own(
        &self,
        consumer: &str,
        after: EntryId,
        count: usize,
    ) -> Result<Vec<ConsumerEntry>, StreamError> {
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
            Value::Array(parts) if parts.len() == 4 => Ok(ConsumerEntry {
                id: entry::parse_id(&parts[0])?,
                deliveries: parts[3].as_u64().unwrap_or_default(),
            }),
            other => Err(entry::bad_reply("[id, consumer, idle, deliveries]", other)),
        };
        Ok(rows.iter().map(own).collect::<Result<_, _>>()?)
    }

    /// Returns the number of pending entries of `consumer`.
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
        Ok(self.pool.next().custom(command, args).await.map_err(RedisError::new)?)
    }

    /// Reads pending entries for the consumer that holds them, and notes that it has them in progress. Ids (ascending)
    /// that the consumer does not hold any more are skipped.
    ///
    /// # Errors
    /// As for every call here, and [`StreamError::OtherServer`]; a second call does no harm.
    pub(crate) async fn fetch(
        &self,
        consumer: &str,
        ids: &[EntryId],
        fetch: &Fetch<'_>,
    ) -> Result<Fetched, StreamError> {
        debug_assert!(ids.is_sorted(), "the script looks for them in one range");
        let mut args: Vec<Value> = vec![
            self.names.group.as_str().into(),
            consumer.into(),
            length(fetch.bytes),
            length(fetch.largest),
            i64::from(fetch.limit).into(),
            fetch.run.as_str().into(),
        ];
        args.extend(ids.iter().map(|id| Value::from(id.to_string())));
        Ok(entry::parse_fetched(self.call_with_crashes(&self.fetch, args).await?)?)
    }

    /// Counts a crash for each of these entries of `consumer` that a process had in progress; afterwards no process has
    /// them in progress.
    ///
    /// # Errors
    /// As for every call here; a second call does no harm.
    pub(crate) async fn count_crashes(&self, consumer: &str, ids: &[EntryId]) -> Result<(), StreamError> {
        for ids in ids.chunks(KEEPALIVE_PAGE) {
            let mut args: Vec<Value> = vec![self.names.group.as_str().into(), consumer.into()];
            args.extend(ids.iter().map(|id| Value::from(id.to_string())));
            let _count = self.call_with_crashes(&self.count_crashes, args).await?;
        }
        Ok(())
    }

    /// Calls a script that uses crash counts. If this user may not access the hash of counts, Redis refuses the whole
    /// call; then the script runs without that hash.
    async fn call_with_crashes(&self, script: &ScriptSource, args: Vec<Value>) -> Result<Frame, StreamError> {
        if !self.counts_crashes {
            return Ok(script.call_raw(&self.pool, vec![self.names.stream.as_str().into()], args).await?);
        }
        let keys = vec![self.names.stream.as_str().into(), self.names.crashes().into()];
        match script.call_raw(&self.pool, keys, args.clone()).await {
            Err(error) if error.lacks_permission() => {
                Ok(script.call_raw(&self.pool, vec![self.names.stream.as_str().into()], args).await?)
            }
            reply => Ok(reply?),
        }
    }

    /// Notes that no process has these entries of `consumer` in progress, although it keeps them.
    ///
    /// # Errors
    /// As for every call here; a second call does no harm.
    pub(crate) async fn set_aside(&self, consumer: &str, ids: &[EntryId]) -> Result<(), StreamError> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys = vec![self.names.stream.as_str().into()];
        let mut args: Vec<Value> = vec![self.names.group.as_str().into(), consumer.into()];
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        args.extend(ids.iter().map(|id| Value::from(id.to_string())));
        let _count = self.set_aside.call(&self.pool, keys, args).await?;
        Ok(())
    }

    /// Deletes the crash counts of the given entries: how many processes died while each entry was in progress. The
    /// entries must be acknowledged. If this Redis user may not delete the counts, they expire.
    ///
    /// # Errors
    /// As for every call here; a second call does no harm.
    pub async fn forget_crashes(&self, ids: &[EntryId]) -> Result<(), StreamError> {
        if ids.is_empty() || !self.counts_crashes {
            return Ok(());
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        match self.pool.hdel::<Value, _, _>(self.names.crashes(), ids).await.map_err(RedisError::new) {
            Err(error) if !error.is_refusal() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

//! Reading new entries, over a connection of its own.

use std::{
    future::ready,
    slice,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{ClientInterface, ClientLike},
    types::{ClusterHash, CustomCommand, Value, config::Options},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::{SENT_ONCE, ServerRun, Stream, StreamError, StreamNames, length, millis};
use crate::{
    entry::{self, Delivery, bad_reply},
    redis::{Reconnects, RedisConnection, RedisError, RedisErrorKind, no_error},
};

/// How much longer than its block time a read may take before its connection is given up. Of several that go out together, each
/// has as long from the reply before it.
const READ_MARGIN: Duration = Duration::from_secs(2);

/// The next of several replies, as long as it comes in the time that a read without waiting has.
pub(crate) async fn next_reply<T>(
    replies: &mut (impl futures_util::Stream<Item = T> + Unpin),
) -> Result<Option<T>, StreamError> {
    let late = |_| RedisError::new(Error::new(ErrorKind::Timeout, "no further reply"));
    Ok(timeout(READ_MARGIN, replies.next()).await.map_err(late)?)
}

/// Lets the others of several replies come, but for no longer than one of them may take: if Redis is silent, that has to be told. What
/// was not sent yet may be sent over the next connection, unseen; a look at the own pending list finds what it brought.
pub(crate) async fn other_replies<T>(replies: impl futures_util::Stream<Item = T>) {
    let _late = timeout(READ_MARGIN, replies.for_each(|_| ready(()))).await;
}

/// Reads the stream as one consumer of its group, over a connection of its own.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    names: StreamNames,
    consumer: String,
    reconnects: Mutex<Reconnects>,
}

impl Reader {
    /// Reads as `consumer` over `connection`.
    #[must_use]
    pub fn new(connection: RedisConnection, names: StreamNames, consumer: String) -> Self {
        let RedisConnection(client) = connection;
        let reconnects = Reconnects::of(slice::from_ref(&client));
        Self { client, names, consumer, reconnects: Mutex::new(reconnects) }
    }

    /// Name of the consumer.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Whether the connection was made anew since this was last asked; see [`Reconnects`].
    pub fn has_reconnected(&self) -> bool {
        self.reconnects.lock().unwrap_or_else(PoisonError::into_inner).seen()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Which run of which server is at the other end of the connection.
    ///
    /// # Errors
    /// When it does not answer, or does not say.
    pub async fn server_run(&self) -> Result<ServerRun, StreamError> {
        ServerRun::of(&self.client).await
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
        let time = block.unwrap_or_default() + READ_MARGIN;
        let read = self.read(&self.client, count, block, time).await;
        read.inspect_err(|error| self.reconnect_after(&self.client, error))
    }

    /// As [`Reader::read_new`] without waiting, over a connection that it may share with other readers, and behind so many other reads
    /// that go out together. After an error it is for the caller to call [`Reader::reconnect_after`], once.
    pub(crate) async fn read_new_over(
        &self,
        client: &Client,
        count: usize,
        before: usize,
    ) -> Result<Delivery, StreamError> {
        // Only so that it is not sent when it is too late: [`next_reply`] notices before that if nothing comes.
        let replies = u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1);
        self.read(client, count, None, READ_MARGIN.saturating_mul(replies)).await
    }

    /// Where a read was not answered in time, its connection has swallowed it; another one may not. Nobody waits for the new
    /// one: while Redis is away it takes as long as that lasts, and the outage has to be told now.
    pub(crate) fn reconnect_after(&self, client: &Client, error: &StreamError) {
        let StreamError::Redis(error) = error else { return };
        if error.kind() == RedisErrorKind::Timeout && client.is_connected() {
            let client = client.clone();
            tokio::spawn(async move { client.force_reconnection().await });
        }
    }

    async fn read(
        &self,
        client: &Client,
        count: usize,
        block: Option<Duration>,
        time: Duration,
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
        let options = Options { timeout: Some(time), max_attempts: SENT_ONCE, ..Default::default() };
        let reply = no_error(client.with_options(&options).custom_raw(command, args).await);
        Ok(entry::parse_read(reply.map_err(RedisError::new)?)?)
    }
}

impl ServerRun {
    pub(crate) async fn of(client: &Client) -> Result<Self, StreamError> {
        let options = Options { timeout: Some(READ_MARGIN), max_attempts: SENT_ONCE, ..Default::default() };
        let command = CustomCommand::new_static("INFO", ClusterHash::FirstKey, false);
        let info = client.with_options(&options).custom(command, vec!["server"]).await;
        let info: String = info.map_err(RedisError::new)?;
        let id = info.lines().find_map(|line| line.trim_end().strip_prefix("run_id:"));
        let id = id.ok_or_else(|| bad_reply("a text with run_id", &info.as_str().into()))?;
        Ok(Self::Only(id.into()))
    }
}

impl Stream {
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
            let _count: Value = self.pool.custom(command, args).await.map_err(RedisError::new)?;
        }
        Ok(())
    }
}

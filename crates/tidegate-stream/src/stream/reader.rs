//! Reads of new entries, over a connection of their own.

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

/// The time that a read may take beyond its block time before its connection is given up. If several reads are sent
/// together, each has this time from the reply before it.
const READ_MARGIN: Duration = Duration::from_secs(2);

/// Returns the next of several replies, if it comes within the timeout of a read that does not wait.
pub(crate) async fn next_reply<T>(
    replies: &mut (impl futures_util::Stream<Item = T> + Unpin),
) -> Result<Option<T>, StreamError> {
    let late = |_| RedisError::new(Error::new(ErrorKind::Timeout, "no further reply"));
    Ok(timeout(READ_MARGIN, replies.next()).await.map_err(late)?)
}

/// Waits for the remaining replies, but no longer than one of them may take, so that an outage is reported in time.
/// Reads that were not sent yet may be sent over the next connection, unseen; the next scan of the own pending list
/// finds the entries that they bring.
pub(crate) async fn other_replies<T>(replies: impl futures_util::Stream<Item = T>) {
    let _late = timeout(READ_MARGIN, replies.for_each(|_| ready(()))).await;
}

/// A reader of the stream for one consumer of its group, with its own connection.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    names: StreamNames,
    consumer: String,
    reconnects: Mutex<Reconnects>,
}

impl Reader {
    /// Creates a reader over `connection` for the consumer `consumer`.
    #[must_use]
    pub fn new(connection: RedisConnection, names: StreamNames, consumer: String) -> Self {
        let RedisConnection(client) = connection;
        let reconnects = Reconnects::of(slice::from_ref(&client));
        Self { client, names, consumer, reconnects: Mutex::new(reconnects) }
    }

    /// Returns the name of the reader's consumer.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Returns whether the connection has reconnected since the last call of this method; see [`Reconnects`].
    pub fn has_reconnected(&self) -> bool {
        self.reconnects.lock().unwrap_or_else(PoisonError::into_inner).seen()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the run (from a start to an end) of the Redis server that the reader is connected to.
    ///
    /// # Errors
    /// When the server does not answer, or does not send its run id.
    pub async fn server_run(&self) -> Result<ServerRun, StreamError> {
        ServerRun::of(&self.client).await
    }

    /// Reads up to `count` new entries, and waits up to `block` for the first entry. If `block` is zero, the call does
    /// not wait.
    ///
    /// Never cancel this call: the server hands entries over even if the caller does not wait for the reply any more.
    ///
    /// # Errors
    /// After any error, entries may have been delivered unseen: read the pending list of the consumer.
    pub async fn read_new(&self, count: usize, block: Duration) -> Result<Delivery, StreamError> {
        // BLOCK 0 would mean for ever. BLOCK 1 may last up to a tenth of a second: Redis checks blocked clients when
        // something happens, or ten times a second.
        let block = (!block.is_zero()).then(|| block.max(Duration::from_millis(1)));
        let time = block.unwrap_or_default() + READ_MARGIN;
        let read = self.read(&self.client, count, block, time).await;
        read.inspect_err(|error| self.reconnect_after(&self.client, error))
    }

    /// Like [`Reader::read_new`] without waiting, over a connection that other readers may share, after `before` other
    /// reads that are sent together with it. After an error the caller must call [`Reader::reconnect_after`], once.
    pub(crate) async fn read_new_over(
        &self,
        client: &Client,
        count: usize,
        before: usize,
    ) -> Result<Delivery, StreamError> {
        // This timeout only prevents a send that is too late: if no reply comes, [`next_reply`] notices that earlier.
        let replies = u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1);
        self.read(client, count, None, READ_MARGIN.saturating_mul(replies)).await
    }

    /// Reconnects after a read that timed out: the old connection may have lost the read; a new one may work. No task
    /// waits for the new connection, because while Redis is unavailable it takes as long as the outage, which has to be
    /// reported now.
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
    /// Ends the wait of `reader` for new entries. The blocked read returns as if its time was over. If no read is
    /// blocked, the call does nothing.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn unblock(&self, reader: &Reader) -> Result<(), StreamError> {
        for id in reader.client.connection_ids().into_values() {
            let command = CustomCommand::new_static("CLIENT", ClusterHash::FirstKey, false);
            // TIMEOUT, not ERROR: after a restart of Redis another client may have this id. Then that client only sees
            // an empty read.
            let args: Vec<Value> = vec!["UNBLOCK".into(), id.into(), "TIMEOUT".into()];
            let _count: Value = self.pool.custom(command, args).await.map_err(RedisError::new)?;
        }
        Ok(())
    }
}

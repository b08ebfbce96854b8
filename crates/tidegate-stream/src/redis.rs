//! Connections to Redis, with their timeouts. They reconnect without limit.
//!
//! The client library is an implementation detail. A program that has its own connections can pass them in with the
//! feature `fred`.

mod error;
mod reconnects;

use std::{fmt, slice, sync::Arc, time::Duration};

use bytes::Bytes;
use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    prelude::{Builder, Config, FredResult, ReconnectPolicy},
    types::{Key, RespVersion, config::ReconnectError},
};

use crate::{cluster::SlotMaster, sentinel::Sentinels};

pub(crate) use self::error::no_error;
pub use self::{
    error::{RedisError, RedisErrorKind, is_disk_full, readable},
    reconnects::Reconnects,
};

const RECONNECT_MIN_MS: u32 = 50;
const RECONNECT_MAX_MS: u32 = 2_000;
/// The number of messages on channels that wait for their reader. Later ones push out the earliest.
const MESSAGES: usize = 1_024;

/// The settings of the connections to Redis. The `Debug` output leaves out the URL, because the URL may contain a
/// password.
#[derive(Clone)]
pub struct RedisConnectionSettings {
    /// The URL of Redis: `redis://`, `rediss://` (TLS) or `redis-sentinel://`, with a user and a password if necessary.
    pub url: String,
    /// The master in a Redis Cluster to connect to. If this field is set, `url` is not used.
    pub master: Option<SlotMaster>,
    /// The Sentinels that `url` names, shared by all connections with the same URL. None: if `url` names Sentinels,
    /// each pool and each reader queries them separately.
    pub sentinels: Option<Arc<Sentinels>>,
    /// The number of connections in the pool for commands. Each blocking reader also has one connection outside of the
    /// pool.
    pub connections: usize,
    /// The longest time that a caller waits for the reply to a command.
    pub command_timeout: Duration,
    /// The timeout for opening a TCP connection, including its TLS handshake.
    pub connect_timeout: Duration,
}

impl RedisConnectionSettings {
    /// Creates settings with four connections to the Redis at `url`, and a timeout of two seconds for each command and
    /// each attempt to connect.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        let patience = Duration::from_secs(2);
        Self {
            url: url.into(),
            master: None,
            sentinels: None,
            connections: 4,
            command_timeout: patience,
            connect_timeout: patience,
        }
    }
}

impl fmt::Debug for RedisConnectionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnectionSettings")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// A pool of connections for commands. All clones of a pool share the same connections.
#[derive(Clone)]
pub struct RedisPool(pub(crate) Pool);

impl fmt::Debug for RedisPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisPool").field("connections", &self.0.size()).finish_non_exhaustive()
    }
}

impl From<&RedisPool> for RedisPool {
    fn from(pool: &RedisPool) -> Self {
        pool.clone()
    }
}

/// One connection for blocking reads. Each reader needs a separate connection, because a blocked read delays every
/// later command on the same connection.
pub struct RedisConnection(pub(crate) Client);

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection").finish_non_exhaustive()
    }
}

/// The name of a key in Redis, which may contain any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RedisKey(Bytes);

impl RedisKey {
    /// Returns the name of the key as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_key(self) -> Key {
        self.0.into()
    }
}

impl From<&str> for RedisKey {
    fn from(name: &str) -> Self {
        Self(Bytes::copy_from_slice(name.as_bytes()))
    }
}

impl From<String> for RedisKey {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<Vec<u8>> for RedisKey {
    fn from(name: Vec<u8>) -> Self {
        Self(name.into())
    }
}

impl From<Bytes> for RedisKey {
    fn from(name: Bytes) -> Self {
        Self(name)
    }
}

/// Opens a pool of connections for commands.
///
/// # Errors
/// When the URL is wrong or the first connection fails. If a connection breaks later, the client reconnects without
/// limit.
pub async fn connect_pool(settings: &RedisConnectionSettings) -> Result<RedisPool, RedisError> {
    open_pool(settings).await.map(RedisPool).map_err(RedisError::new)
}

async fn open_pool(settings: &RedisConnectionSettings) -> FredResult<Pool> {
    let pool = builder(settings)?.build_pool(settings.connections.max(1))?;
    follow_master(settings, pool.clients()).await;
    pool.init().await?;
    Ok(pool)
}

/// Opens one connection for blocking reads. The client sends each command only once. If the client sent a read twice,
/// the entries of the first read would stay pending unnoticed.
///
/// # Errors
/// As for [`connect_pool`].
pub async fn connect_reader(settings: &RedisConnectionSettings) -> Result<RedisConnection, RedisError> {
    let client = async { open(settings, builder(settings)?).await };
    client.await.map(RedisConnection).map_err(RedisError::new)
}

/// Opens a connection for messages on channels. In RESP3, Redis still answers other commands over it.
pub(crate) async fn open_subscriber(settings: &RedisConnectionSettings) -> FredResult<Client> {
    let mut builder = builder(settings)?;
    builder.with_config(|config| config.version = RespVersion::RESP3);
    builder.with_performance_config(|config| config.broadcast_channel_capacity = MESSAGES);
    open(settings, builder).await
}

async fn open(settings: &RedisConnectionSettings, mut builder: Builder) -> FredResult<Client> {
    builder.with_connection_config(|config| config.max_command_attempts = 1);
    let client = builder.build()?;
    follow_master(settings, slice::from_ref(&client)).await;
    client.init().await?;
    Ok(client)
}

async fn follow_master(settings: &RedisConnectionSettings, clients: &[Client]) {
    if let Some(master) = &settings.master {
        master.follow(clients).await;
    } else if let Some(sentinels) = settings.sentinels.clone().or_else(|| Sentinels::of_url(&settings.url)) {
        sentinels.follow(clients);
    }
}

fn builder(settings: &RedisConnectionSettings) -> FredResult<Builder> {
    let mut config = match &settings.master {
        Some(master) => master.config(),
        None => Config::from_url(&settings.url)?,
    };
    // A connection begins with database 0. Selecting it would need the permission for SELECT, which our users do not
    // have.
    config.database = config.database.filter(|database| *database != 0);
    let mut builder = Builder::from_config(config);
    // 0 attempts = without limit; by default fred does not reconnect at all, and the next command would hang for ever.
    builder.set_policy(ReconnectPolicy::new_exponential(0, RECONNECT_MIN_MS, RECONNECT_MAX_MS, 2));
    builder.with_performance_config(|config| config.default_command_timeout = settings.command_timeout);
    builder.with_connection_config(|config| {
        config.connection_timeout = settings.connect_timeout;
        config.internal_command_timeout = settings.command_timeout;
        config.tcp.nodelay = Some(true);
        // A node that is no longer the master answers with MOVED; the new connection leads to the current master.
        config.reconnect_errors.push(ReconnectError::Custom("MOVED"));
        // If a reply is this late, the client closes the connection, and all commands that wait on it fail.
        config.unresponsive.max_timeout = Some(settings.command_timeout);
        config.unresponsive.interval = Duration::from_millis(500);
    });
    Ok(builder)
}

//! Connections to Redis: how they time out, and that they never give up reconnecting.
//!
//! The client behind them is an implementation detail. Whoever has connections of their own can pass them in with the
//! feature `fred`.

mod error;
mod reconnects;

use std::{fmt, slice, sync::Arc, time::Duration};

use bytes::Bytes;
use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    prelude::{Builder, Config, FredResult, ReconnectPolicy},
    types::{Key, config::ReconnectError},
};

use crate::{cluster::SlotMaster, sentinel::Sentinels};

pub(crate) use self::error::no_error;
pub use self::{
    error::{RedisError, RedisErrorKind, is_disk_full, readable},
    reconnects::Reconnects,
};

const RECONNECT_MIN_MS: u32 = 50;
const RECONNECT_MAX_MS: u32 = 2_000;

/// How to reach Redis. Its `Debug` leaves the URL out: there may be a password in it.
#[derive(Clone)]
pub struct RedisConnectionSettings {
    /// `redis://`, `rediss://` (TLS) or `redis-sentinel://`, with user and password where needed.
    pub url: String,
    /// In a Redis Cluster, whose URL is of no use here, the master to connect to.
    pub master: Option<SlotMaster>,
    /// The Sentinels of the URL, where it names some, to be shared by all that connect by it; None: each asks for itself.
    pub sentinels: Option<Arc<Sentinels>>,
    /// Connections for commands; blocking readers have one of their own each.
    pub connections: usize,
    /// How long a command may wait for its reply.
    pub command_timeout: Duration,
    /// How long a TCP connection with its TLS handshake may take.
    pub connect_timeout: Duration,
}

impl RedisConnectionSettings {
    /// Four connections to the Redis at `url`, and two seconds for each command and each attempt to connect.
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

/// Connections on which commands are sent. Clones share them.
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

/// One connection for blocking reads. It belongs to one reader: a blocked read holds up all behind it.
pub struct RedisConnection(pub(crate) Client);

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection").finish_non_exhaustive()
    }
}

/// The name of a key in Redis: any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RedisKey(Bytes);

impl RedisKey {
    /// Its bytes.
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

/// Opens the connections on which commands are sent.
///
/// # Errors
/// When the URL is wrong or the first connection fails. Later losses are repaired by reconnecting, without end.
pub async fn connect_pool(settings: &RedisConnectionSettings) -> Result<RedisPool, RedisError> {
    open_pool(settings).await.map(RedisPool).map_err(RedisError::new)
}

async fn open_pool(settings: &RedisConnectionSettings) -> FredResult<Pool> {
    let pool = builder(settings)?.build_pool(settings.connections.max(1))?;
    follow_master(settings, pool.clients()).await;
    pool.init().await?;
    Ok(pool)
}

/// Opens one connection for blocking reads. Commands are sent once, never again by themselves: a read that
/// was sent twice would leave the first one's entries pending unseen.
///
/// # Errors
/// As [`connect_pool`].
pub async fn connect_reader(settings: &RedisConnectionSettings) -> Result<RedisConnection, RedisError> {
    open_reader(settings).await.map(RedisConnection).map_err(RedisError::new)
}

async fn open_reader(settings: &RedisConnectionSettings) -> FredResult<Client> {
    let mut builder = builder(settings)?;
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
    // A connection begins there. Asking for it takes the right to SELECT, which our users do not have.
    config.database = config.database.filter(|database| *database != 0);
    let mut builder = Builder::from_config(config);
    // 0 attempts = without end; fred's default is none at all, and the next command would hang for ever.
    builder.set_policy(ReconnectPolicy::new_exponential(0, RECONNECT_MIN_MS, RECONNECT_MAX_MS, 2));
    builder.with_performance_config(|config| config.default_command_timeout = settings.command_timeout);
    builder.with_connection_config(|config| {
        config.connection_timeout = settings.connect_timeout;
        config.internal_command_timeout = settings.command_timeout;
        config.tcp.nodelay = Some(true);
        // A node that is no longer the master says so; the new connection leads to who is.
        config.reconnect_errors.push(ReconnectError::Custom("MOVED"));
        // A black-holed connection is closed, and with it all that waits on it, when a reply is this late.
        config.unresponsive.max_timeout = Some(settings.command_timeout);
        config.unresponsive.interval = Duration::from_millis(500);
    });
    Ok(builder)
}

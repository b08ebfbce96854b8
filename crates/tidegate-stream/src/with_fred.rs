//! With the feature `fred`: the way from the client's types to those of this crate, and back.
//!
//! This is the only public part of the crate that names a type of `fred`. It is bound to the exact version of `fred`
//! that this crate is built with: a new one may come with any release.

use fred::{
    clients::{Client, Pool},
    error::Error,
    prelude::FredResult,
    types::{Key, Value},
};

use crate::{
    handler::Outage,
    redis::{Reconnects, RedisConnection, RedisError, RedisKey, RedisPool},
    replicas::Confirmation,
    script,
    stream::StreamError,
};

impl From<Pool> for RedisPool {
    fn from(pool: Pool) -> Self {
        Self(pool)
    }
}

impl From<&Pool> for RedisPool {
    fn from(pool: &Pool) -> Self {
        Self(pool.clone())
    }
}

impl From<RedisPool> for Pool {
    fn from(RedisPool(pool): RedisPool) -> Self {
        pool
    }
}

impl From<&Pool> for Reconnects {
    fn from(pool: &Pool) -> Self {
        Self::of(pool.clients())
    }
}

impl AsRef<Pool> for RedisPool {
    fn as_ref(&self) -> &Pool {
        &self.0
    }
}

impl From<Client> for RedisConnection {
    /// The client should send a command once only: see [`crate::connect_reader`].
    fn from(client: Client) -> Self {
        Self(client)
    }
}

impl From<Key> for RedisKey {
    fn from(key: Key) -> Self {
        key.into_bytes().into()
    }
}

impl From<RedisKey> for Key {
    fn from(key: RedisKey) -> Self {
        key.into_key()
    }
}

impl From<Error> for RedisError {
    fn from(error: Error) -> Self {
        Self::new(error)
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        error.into_inner()
    }
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        RedisError::new(error).into()
    }
}

impl From<Error> for Outage {
    fn from(error: Error) -> Self {
        RedisError::new(error).into()
    }
}

impl Confirmation {
    /// Waits until replicas have all that was written before the last write over this connection, and blocks the connection
    /// meanwhile. Over one that has written nothing, Redis 7.2 and Valkey answer at once.
    ///
    /// # Errors
    /// Why nobody knows whether they have it.
    pub async fn wait_over(&self, client: &Client) -> Result<(), String> {
        self.wait(client).await
    }
}

/// A Lua script that is compiled into the program and called by its SHA1.
///
/// `NOSCRIPT` is normal after a restart, a failover or a SCRIPT FLUSH: the text is loaded and the call sent
/// again. The server ran nothing in that case, so nothing happens twice.
///
/// A call whose connection breaks may be sent again by the client: every script must be harmless when it
/// runs twice with the same arguments.
#[derive(Debug, Clone)]
pub struct Script(script::ScriptSource);

impl Script {
    /// A script named `name` (for error messages) with the text `lua`.
    #[must_use]
    pub fn new(name: &'static str, lua: &'static str) -> Self {
        Self(script::ScriptSource::new(name, lua))
    }

    /// The SHA1 of the text, in lower-case hexadecimal.
    #[must_use]
    pub fn sha1(&self) -> &str {
        self.0.sha1()
    }

    /// Runs the script; `keys` become KEYS, `args` become ARGV, byte for byte.
    ///
    /// # Errors
    /// Whatever the server or the connection answers; the script's name stands before the message.
    pub async fn call(&self, pool: &Pool, keys: Vec<Key>, args: Vec<Value>) -> FredResult<Value> {
        self.call_over(pool.next(), keys, args).await
    }

    /// As [`Script::call`], over one connection: calls that are made one after the other run in this order, once the server
    /// knows the script.
    ///
    /// # Errors
    /// As [`Script::call`].
    pub async fn call_over(&self, client: &Client, keys: Vec<Key>, args: Vec<Value>) -> FredResult<Value> {
        self.0.call_over(client, keys, args).await.map_err(Error::from)
    }
}

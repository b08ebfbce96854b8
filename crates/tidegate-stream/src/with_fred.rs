//! Conversions between the types of the client `fred` and those of this crate, with the feature `fred`.
//!
//! This is the only public part of the crate that names a type of `fred`. It is bound to the exact version of `fred`
//! that this crate is built with, and any release may change that version.

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
    /// Takes over a client, which should send each command only once: see [`crate::connect_reader`].
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
    /// Waits until replicas have everything that was written over `client` before its last write. Meanwhile, no other
    /// command can use the connection. If nothing was written over `client`, Redis 7.2 and Valkey answer at once.
    ///
    /// # Errors
    /// When replicas do not have it in time, or the server does not answer; the text says why.
    pub async fn wait_over(&self, client: &Client) -> Result<(), String> {
        self.wait(client).await
    }
}

/// A Lua script that is compiled into the program. Redis runs the script by its SHA1.
///
/// `NOSCRIPT` is normal after a restart, a failover or a SCRIPT FLUSH: then this type loads the text and sends the call
/// again. The server ran nothing in that case, so nothing happens twice.
///
/// If the connection of a call breaks, the client may send the call again. So every script must be harmless when it
/// runs twice with the same arguments.
#[derive(Debug, Clone)]
pub struct Script(script::ScriptSource);

impl Script {
    /// Creates a script with the text `lua`. The name `name` identifies the script in error messages.
    #[must_use]
    pub fn new(name: &'static str, lua: &'static str) -> Self {
        Self(script::ScriptSource::new(name, lua))
    }

    /// Returns the SHA1 of the script, in lower-case hexadecimal.
    #[must_use]
    pub fn sha1(&self) -> &str {
        self.0.sha1()
    }

    /// Runs the script with `keys` as KEYS and `args` as ARGV, byte for byte.
    ///
    /// # Errors
    /// Any error of the server or the connection, with the name of the script before the message.
    pub async fn call(&self, pool: &Pool, keys: Vec<Key>, args: Vec<Value>) -> FredResult<Value> {
        self.call_over(pool.next(), keys, args).await
    }

    /// Runs the script like [`Script::call`], but over the given connection. If the server knows the script,
    /// consecutive calls run in the order of the calls.
    ///
    /// # Errors
    /// As for [`Script::call`].
    pub async fn call_over(&self, client: &Client, keys: Vec<Key>, args: Vec<Value>) -> FredResult<Value> {
        self.0.call_over(client, keys, args).await.map_err(Error::from)
    }
}

//! A Lua script with its text and its SHA1, and the calls of it.

use fred::{
    clients::{Client, Pool},
    error::Error,
    interfaces::{ClientLike, LuaInterface},
    types::{ClusterHash, CustomCommand, Key, Resp3Frame as Frame, Value},
};

use crate::redis::{RedisError, no_error};

/// A Lua script that is compiled into the program and called by its SHA1.
///
/// `NOSCRIPT` is normal after a restart, a failover or a SCRIPT FLUSH: then this type loads the text and sends the call
/// again. The server ran nothing in that case, so nothing happens twice.
///
/// If the connection of a call breaks, the client may send the call again. So every script must be harmless when it
/// runs twice with the same arguments.
#[derive(Debug, Clone)]
pub(crate) struct ScriptSource {
    name: &'static str,
    lua: &'static str,
    sha1: String,
}

impl ScriptSource {
    /// Creates a script named `name` (for error messages) with the text `lua`.
    pub(crate) fn new(name: &'static str, lua: &'static str) -> Self {
        Self { name, lua, sha1: fred::util::sha1_hash(lua) }
    }

    /// Returns the SHA1 of the text, in lower-case hexadecimal.
    #[cfg(feature = "fred")]
    pub(crate) fn sha1(&self) -> &str {
        &self.sha1
    }

    /// Runs the script; `keys` become KEYS, `args` become ARGV, byte for byte.
    ///
    /// # Errors
    /// Any error of the server or the connection, with the name of the script before the message.
    pub(crate) async fn call(
        &self,
        pool: &Pool,
        keys: Vec<Key>,
        args: Vec<Value>,
    ) -> Result<Value, RedisError> {
        self.call_over(pool.next(), keys, args).await
    }

    /// Like [`ScriptSource::call`], over `client` instead of a connection of the pool.
    ///
    /// # Errors
    /// As [`ScriptSource::call`].
    pub(crate) async fn call_over(
        &self,
        client: &Client,
        keys: Vec<Key>,
        args: Vec<Value>,
    ) -> Result<Value, RedisError> {
        let reply = match client.evalsha(self.sha1.as_str(), keys.clone(), args.clone()).await {
            Err(error) if is_noscript(&error) => {
                self.load(client).await?;
                client.evalsha(self.sha1.as_str(), keys, args).await
            }
            reply => reply,
        };
        reply.map_err(|error| self.named(&error))
    }

    /// Like [`ScriptSource::call`], but returns the frame unchanged. It is meant for large replies.
    ///
    /// # Errors
    /// As [`ScriptSource::call`].
    pub(crate) async fn call_raw(
        &self,
        pool: &Pool,
        keys: Vec<Key>,
        args: Vec<Value>,
    ) -> Result<Frame, RedisError> {
        let client = pool.next();
        let slot = keys.first().map_or(0, |key| fred::util::redis_keyslot(key.as_bytes()));
        let call = || {
            let command = CustomCommand::new_static("EVALSHA", ClusterHash::Custom(slot), false);
            let mut all: Vec<Value> = Vec::with_capacity(2 + keys.len() + args.len());
            all.extend([self.sha1.as_str().into(), i64::try_from(keys.len()).unwrap_or(i64::MAX).into()]);
            all.extend(keys.iter().map(|key| Value::Bytes(key.as_bytes().to_vec().into())));
            all.extend(args.iter().cloned());
            client.custom_raw(command, all)
        };
        let reply = match no_error(call().await) {
            Err(error) if is_noscript(&error) => {
                self.load(client).await?;
                no_error(call().await)
            }
            reply => reply,
        };
        reply.map_err(|error| self.named(&error))
    }

    async fn load(&self, client: &Client) -> Result<(), RedisError> {
        client.script_load::<Value, _>(self.lua).await.map_err(RedisError::new)?;
        Ok(())
    }

    fn named(&self, error: &Error) -> RedisError {
        // Redis 7.0 does not name the command.
        let hint = if error.details().contains("can't run this command") {
            " (`ACL LOG` in Redis names the denied command)"
        } else {
            ""
        };
        let details = format!("{}.lua: {}{hint}", self.name, error.details());
        RedisError::new(Error::new(error.kind().clone(), details))
    }
}

fn is_noscript(error: &Error) -> bool {
    error.details().starts_with("NOSCRIPT")
}

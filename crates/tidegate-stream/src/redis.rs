//! Connections to Redis: how they time out, and that they never give up reconnecting.

use std::{fmt, sync::Arc, time::Duration};

use fred::{
    clients::{Client, Pool},
    interfaces::{ClientLike, EventInterface},
    prelude::{Builder, Config, Error, FredResult, ReconnectPolicy},
};

use crate::counters::Counters;

const RECONNECT_MIN_MS: u32 = 50;
const RECONNECT_MAX_MS: u32 = 2_000;

/// How to reach Redis. Its `Debug` leaves the URL out: there may be a password in it.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://`, `rediss://` (TLS) or `redis-sentinel://`, with user and password where needed.
    pub url: String,
    /// Connections for commands; blocking readers have one of their own each.
    pub connections: usize,
    /// How long a command may wait for its reply.
    pub command_timeout: Duration,
    /// How long a TCP connection with its TLS handshake may take.
    pub connect_timeout: Duration,
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// Opens the connections on which commands are sent.
///
/// # Errors
/// When the URL is wrong or the first connection fails. Later losses are repaired by reconnecting, without end.
pub async fn connect_pool(settings: &RedisSettings) -> FredResult<Pool> {
    let pool = builder(settings)?.build_pool(settings.connections.max(1))?;
    pool.init().await?;
    Ok(pool)
}

/// Counts from now on how often a connection of `pool` is made anew. Readers count their own.
pub fn count_reconnects(pool: &Pool, counters: &Arc<Counters>) {
    for client in pool.clients() {
        let counters = Arc::clone(counters);
        // Ends with the client.
        client.on_reconnect(move |_server| {
            counters.reconnected();
            async { Ok(()) }
        });
    }
}

/// Opens one connection for blocking reads. Commands are sent once, never again by themselves: a read that
/// was sent twice would leave the first one's entries pending unseen.
///
/// # Errors
/// As [`connect_pool`].
pub async fn connect_reader(settings: &RedisSettings) -> FredResult<Client> {
    let mut builder = builder(settings)?;
    builder.with_connection_config(|config| config.max_command_attempts = 1);
    let client = builder.build()?;
    client.init().await?;
    Ok(client)
}

/// Redis takes no more data (`maxmemory`). Reading and acknowledging go on.
#[must_use]
pub fn is_out_of_memory(error: &Error) -> bool {
    error.details().contains("OOM command")
}

/// Redis works, but does not take this write: wrong type of the key, memory limit, missing permission. That is no
/// outage: everything else can go on.
#[must_use]
pub fn is_refusal(error: &Error) -> bool {
    // Not at the start: before Redis 7, an error from within a script has a text before it.
    ["WRONGTYPE ", "OOM command", "NOPERM "].iter().any(|words| error.details().contains(words))
}

/// Redis works, but this user may not use one of the keys or commands.
pub(crate) fn lacks_permission(error: &Error) -> bool {
    error.details().contains("NOPERM ")
}

/// Redis takes no more writes, because it cannot write its own file. So says a text, for it is within scripts' errors,
/// too, and in what is told of them.
#[must_use]
pub fn is_disk_full(error: &str) -> bool {
    error.contains("MISCONF ")
}

fn builder(settings: &RedisSettings) -> FredResult<Builder> {
    let mut builder = Builder::from_config(Config::from_url(&settings.url)?);
    // 0 attempts = without end; fred's default is none at all, and the next command would hang for ever.
    builder.set_policy(ReconnectPolicy::new_exponential(0, RECONNECT_MIN_MS, RECONNECT_MAX_MS, 2));
    builder.with_performance_config(|config| config.default_command_timeout = settings.command_timeout);
    builder.with_connection_config(|config| {
        config.connection_timeout = settings.connect_timeout;
        config.internal_command_timeout = settings.command_timeout;
        config.tcp.nodelay = Some(true);
        // A black-holed connection is closed, and with it all that waits on it, when a reply is this late.
        config.unresponsive.max_timeout = Some(settings.command_timeout);
        config.unresponsive.interval = Duration::from_millis(500);
    });
    Ok(builder)
}

/// What the client says of an error, for people: it passes on the errors of the operating system as `Os { code: 111,
/// kind: ConnectionRefused, message: "Connection refused" }`, of which only the message is left here.
#[must_use]
pub fn readable(error: &str) -> String {
    if is_disk_full(error) {
        return format!("{error} (Redis cannot write its file: is its disk full?)");
    }
    for (opening, message) in [("Os { code: ", "message: \""), ("Custom { kind: ", "error: \"")] {
        if let Some((before, rest)) = error.split_once(opening)
            && let Some((_, rest)) = rest.split_once(message)
            && let Some((message, after)) = rest.split_once("\" }")
        {
            return [before, message, after].concat();
        }
    }
    error.to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::readable;

    #[test]
    fn a_redis_that_cannot_write_its_file_is_asked_about_its_disk() {
        let full = "lock.lua: MISCONF Errors writing to the AOF file: No space left on device";
        assert_eq!(readable(full), format!("{full} (Redis cannot write its file: is its disk full?)"));
    }

    #[test]
    fn of_an_error_of_the_operating_system_only_its_message_is_left() {
        let refused = format!("IO Error: {:?}", Error::from_raw_os_error(111));
        assert_eq!(readable(&refused), "IO Error: Connection refused");
        let unknown = format!("{:?}", Error::new(ErrorKind::NotFound, "no such host"));
        assert_eq!(readable(&unknown), "no such host");
        for other in ["", "Timeout Error: Request timed out.", "Os { code: ", "Kind(UnexpectedEof)"] {
            assert_eq!(readable(other), other);
        }
    }
}

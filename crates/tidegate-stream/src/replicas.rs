//! Waits until replicas have what was written.

use std::{
    num::NonZeroU32,
    slice,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value, config::Options},
};

use crate::{
    entry::{Entry, bad_reply},
    handler::Outage,
    inspector::StreamInspector,
    lease::Leases,
    redis::{Reconnects, RedisConnection, RedisError, RedisErrorKind, RedisKey, RedisPool, readable},
    stream::{Reader, Stream, StreamError},
};

/// How much longer than [`Confirmation::within`] the reply may take to come.
const MARGIN: Duration = Duration::from_secs(1);
/// Replicas say of themselves what they have once a second.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at what they said.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// When something counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// So many replicas have it.
    pub replicas: NonZeroU32,
    /// How long is waited for that.
    pub within: Duration,
    /// Where they have it.
    pub place: ConfirmedIn,
}

/// Where replicas must have what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmedIn {
    /// In their memory: `WAIT`.
    Memory,
    /// In their append-only files, and in that of the master: `WAITAOF`, of Redis 7.2 and Valkey on. With `appendfsync everysec` that
    /// takes up to a second.
    AppendOnlyFile,
}

impl Confirmation {
    /// Waits until replicas have all that was written before the last write over this connection, and blocks the connection
    /// meanwhile. Over one that has written nothing, Redis 7.2 and Valkey answer at once.
    ///
    /// # Errors
    /// Why nobody knows whether they have it.
    pub(crate) async fn wait(&self, client: &Client) -> Result<(), String> {
        let within_ms = i64::try_from(self.within.as_millis()).unwrap_or(i64::MAX).max(1);
        let (name, wanted) = (self.place.command(), i64::from(self.replicas.get()));
        let counts = match self.call(client, (1, wanted), within_ms).await {
            Ok(counts) => counts,
            Err(error) => return Err(format!("{name}: {}", readable(&error.to_string()))),
        };
        match (self.place, &counts[..]) {
            (ConfirmedIn::Memory, [have]) if *have >= wanted => Ok(()),
            (ConfirmedIn::AppendOnlyFile, [own, have]) if *own >= 1 && *have >= wanted => Ok(()),
            (_, [.., have]) => Err(format!("{have} of {wanted} replicas had it within {within_ms} ms")),
            (_, []) => Err(format!("{name} answered with something else than a number")),
        }
    }

    /// How many have it: for the file, the master at first.
    async fn call(
        &self,
        client: &Client,
        (own, wanted): (i64, i64),
        within_ms: i64,
    ) -> Result<Vec<i64>, RedisError> {
        let args: Vec<Value> = match self.place {
            ConfirmedIn::Memory => vec![wanted.into(), within_ms.into()],
            ConfirmedIn::AppendOnlyFile => vec![own.into(), wanted.into(), within_ms.into()],
        };
        let command = CustomCommand::new_static(self.place.command(), ClusterHash::FirstKey, false);
        let options =
            Options { timeout: Some(self.within + MARGIN), max_attempts: Some(1), ..Options::default() };
        let reply: Value =
            client.with_options(&options).custom(command, args).await.map_err(RedisError::new)?;
        Ok(match reply {
            Value::Array(counts) => counts.iter().filter_map(Value::as_i64).collect(),
            count => count.as_i64().into_iter().collect(),
        })
    }
}

impl ConfirmedIn {
    fn command(self) -> &'static str {
        match self {
            Self::Memory => "WAIT",
            Self::AppendOnlyFile => "WAITAOF",
        }
    }
}

/// Asks over a connection of its own, by the same command as lanes do, whether replicas have what is written.
#[derive(Debug)]
pub struct ReplicaProbe {
    client: Client,
    reconnects: Mutex<Reconnects>,
    leases: Leases,
    wanted: Confirmation,
}

impl ReplicaProbe {
    /// Asks over `connection`.
    ///
    /// # Errors
    /// None that is known of: a pool of one connection can be made.
    pub fn new(connection: RedisConnection, wanted: Confirmation) -> Result<Self, RedisError> {
        let RedisConnection(client) = connection;
        let reconnects = Mutex::new(Reconnects::of(slice::from_ref(&client)));
        let pool = Pool::from_clients(vec![client.clone()]).map_err(RedisError::new)?;
        Ok(Self { client, reconnects, leases: Leases::new(RedisPool(pool)), wanted })
    }

    /// The right that this user of Redis lacks to ask so; None: it may ask. Waits for nobody.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn missing_right(&self) -> Result<Option<String>, RedisError> {
        match self.wanted.call(&self.client, (0, 0), 1).await {
            Err(error) if error.lacks_permission() => {
                Ok(Some(format!("+{}", self.wanted.place.command().to_lowercase())))
            }
            Err(error) if error.kind() != RedisErrorKind::Other => Err(error),
            // A server that does not know the command, or keeps no file, is told of by whoever asks in earnest.
            _ => Ok(None),
        }
    }

    /// Whether replicas have all that is written by now. Renews the lease of `token` on `name` for that: the command is about what
    /// its own connection has written.
    ///
    /// # Errors
    /// When they do not have it in time, or nobody can tell.
    pub async fn replicas_have_all(
        &self,
        name: impl Into<RedisKey>,
        token: &str,
        lease: Duration,
    ) -> Result<(), Outage> {
        self.has_reconnected();
        if !self.leases.take(vec![name], token, lease).await?.is_empty() {
            return Err(not_replicated("another process has the name of this one"));
        }
        self.wanted.wait(&self.client).await.map_err(|why| not_replicated(&why))?;
        // A new connection has written nothing, and the command is answered at once.
        match self.has_reconnected() {
            true => Err(not_replicated("the connection was made anew meanwhile")),
            false => Ok(()),
        }
    }

    fn has_reconnected(&self) -> bool {
        self.reconnects.lock().unwrap_or_else(PoisonError::into_inner).seen()
    }
}

impl Stream {
    /// Waits until replicas have `entries`, which `reader` has in hand, ascending. So what is done with them does not outlive them: a
    /// promoted replica knows them. Returns false when its consumer has none of them any more: others do, or they were deleted.
    ///
    /// # Errors
    /// When replicas do not have them in time, or nobody can tell.
    pub(crate) async fn await_replicas(
        &self,
        reader: &Reader,
        entries: &[Entry],
        wanted: &Confirmation,
    ) -> Result<bool, Outage> {
        // WAIT is about what its own connection has written, so something has to be: that the consumer still has one of them. Mostly,
        // that is the first one that is asked for.
        for entry in entries.iter().rev() {
            if self.keep_one(reader.client(), reader.consumer(), entry.id).await? {
                let outcome = wanted.wait(reader.client()).await;
                return outcome.map(|()| true).map_err(|why| not_replicated(&why));
            }
        }
        Ok(false)
    }
}

impl StreamInspector {
    /// Whether replicas have all that is written by now, in their memory: files are not looked at. Asks what they say of themselves,
    /// which takes up to a second and writes nothing.
    ///
    /// # Errors
    /// When they do not have it in time, or Redis does not answer.
    pub async fn replicas_have_all(&self, wanted: &Confirmation) -> Result<(), Outage> {
        let (client, began) = (self.one_client(), Instant::now());
        let at_first = Replication::of(&client).await?;
        let mut now = at_first.clone();
        loop {
            let have = now.offsets.iter().filter(|offset| **offset >= at_first.written).count();
            if now.id == at_first.id && have >= wanted.replicas.get() as usize {
                return Ok(());
            }
            if began.elapsed() > wanted.within + TOLD_EVERY {
                let (replicas, took_ms) = (wanted.replicas, began.elapsed().as_millis());
                return Err(not_replicated(&format!(
                    "{have} of {replicas} replicas had it within {took_ms} ms"
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
            now = Replication::of(&client).await?;
        }
    }
}

fn not_replicated(why: &str) -> Outage {
    Outage::new("Redis", format!("nothing is handled until replicas have what was read: {why}"))
}

/// What a server says of its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replication {
    /// Another one after a failover.
    id: String,
    written: u64,
    /// How far each replica is.
    offsets: Vec<u64>,
}

impl Replication {
    async fn of(client: &Client) -> Result<Self, StreamError> {
        let command = CustomCommand::new_static("INFO", ClusterHash::FirstKey, false);
        let info: String = client.custom(command, vec!["replication"]).await.map_err(RedisError::new)?;
        Ok(Self::parse(&info).ok_or_else(|| bad_reply("what it has replicated", &info.as_str().into()))?)
    }

    fn parse(info: &str) -> Option<Self> {
        let value =
            |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
        let is_replica = |line: &&str| line.starts_with("slave") && line.contains(",state=online,");
        let offset = |line: &str| {
            line.split(',').find_map(|part| part.strip_prefix("offset=")?.trim_end().parse().ok())
        };
        Some(Self {
            id: value("master_replid")?.to_owned(),
            written: value("master_repl_offset")?.parse().ok()?,
            offsets: info.lines().filter(is_replica).filter_map(offset).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_are_online_count() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
            slave0:ip=10.0.0.2,port=6379,state=online,offset=120,lag=0\r\n\
            slave1:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\r\n\
            slave_expires_tracked_keys:0\r\nmaster_replid:8c8b\r\nmaster_repl_offset:130\r\n";
        let replication = Replication { id: "8c8b".to_owned(), written: 130, offsets: vec![120] };
        assert_eq!(Replication::parse(info), Some(replication));
        assert_eq!(Replication::parse("# Server\r\n"), None);
    }
}

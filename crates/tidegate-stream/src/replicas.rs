//! Waiting until replicas have what was written to Redis.

use std::{
    num::NonZeroU32,
    slice,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value, config::Options},
};

use crate::{
    entry::Entry,
    handler::Outage,
    lease::Leases,
    redis::{Reconnects, RedisConnection, RedisError, RedisErrorKind, RedisKey, RedisPool, readable},
    stream::{Reader, ServerRun, Stream, StreamError},
};

/// The time that the reply may take beyond [`Confirmation::within`].
const MARGIN: Duration = Duration::from_secs(1);

/// The replicas that must have a write before the write counts as confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The number of replicas that must have the write.
    pub replicas: NonZeroU32,
    /// The longest time to wait for the replicas.
    pub within: Duration,
    /// The memory or file in which the replicas must have the write.
    pub place: ConfirmedIn,
}

/// The memory or file in which replicas must have a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmedIn {
    /// In the memory of the replicas: `WAIT`.
    Memory,
    /// In the append-only files of the replicas and of the master: `WAITAOF`, from Redis 7.2 and in Valkey. With
    /// `appendfsync everysec` the wait takes up to a second.
    AppendOnlyFile,
}

impl Confirmation {
    /// Waits until replicas have everything that was written before the last write over this connection. The connection
    /// is blocked in the meantime. If it has written nothing, Redis 7.2 and Valkey answer at once.
    ///
    /// # Errors
    /// When replicas do not have it in time, or the server does not answer; the text says why.
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
            (_, [.., have]) => Err(format!("{have} of {wanted} replicas had the data within {within_ms} ms")),
            (_, []) => Err(format!("Redis did not answer {name} with a number")),
        }
    }

    /// Returns how many replicas have it; for the append-only file, the number of masters (0 or 1) comes first.
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

/// A probe that checks over its own connection whether replicas have all writes. It uses the same Redis command as the
/// consumers use before they handle a batch.
#[derive(Debug)]
pub struct ReplicaProbe {
    client: Client,
    reconnects: Mutex<Reconnects>,
    leases: Leases,
    wanted: Confirmation,
}

impl ReplicaProbe {
    /// Creates a probe that checks replicas over `connection`.
    ///
    /// # Errors
    /// When a pool of this one connection cannot be made; no cause is known for that.
    pub fn new(connection: RedisConnection, wanted: Confirmation) -> Result<Self, RedisError> {
        let RedisConnection(client) = connection;
        let reconnects = Mutex::new(Reconnects::of(slice::from_ref(&client)));
        let pool = Pool::from_clients(vec![client.clone()]).map_err(RedisError::new)?;
        Ok(Self { client, reconnects, leases: Leases::new(RedisPool(pool)), wanted })
    }

    /// Returns the permission that this Redis user lacks for the check. None: no permission is missing. This call does
    /// not wait for replicas.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn missing_right(&self) -> Result<Option<String>, RedisError> {
        match self.wanted.call(&self.client, (0, 0), 1).await {
            Err(error) if error.lacks_permission() => {
                Ok(Some(format!("+{}", self.wanted.place.command().to_lowercase())))
            }
            Err(error) if error.kind() != RedisErrorKind::Other => Err(error),
            // If the server does not know the command or keeps no append-only file, the real check reports that.
            _ => Ok(None),
        }
    }

    /// Checks whether replicas have everything that was written before this call. The Redis command only covers writes
    /// of its own connection, so the call first writes: it renews the lease of `token` on `name`.
    ///
    /// # Errors
    /// When the replicas do not have it in time, or the server does not answer.
    pub async fn replicas_have_all(
        &self,
        name: impl Into<RedisKey>,
        token: &str,
        lease: Duration,
    ) -> Result<(), Outage> {
        self.replicas_have_all_of(&ServerRun::Any, name, token, lease).await
    }

    /// Checks whether replicas have everything that was written before this call, but only if `run` is still the
    /// present run of the server: no other server has started since.
    ///
    /// # Errors
    /// As there, and when another server answers.
    pub async fn replicas_have_all_of(
        &self,
        run: &ServerRun,
        name: impl Into<RedisKey>,
        token: &str,
        lease: Duration,
    ) -> Result<(), Outage> {
        self.has_reconnected();
        if *run != ServerRun::Any && ServerRun::of(&self.client).await? != *run {
            return Err(StreamError::OtherServer("read the stream again".to_owned()).into());
        }
        if !self.leases.take(vec![name], token, lease).await?.is_empty() {
            return Err(not_replicated("another process uses the name of this process"));
        }
        self.wanted.wait(&self.client).await.map_err(|why| not_replicated(&why))?;
        // A new connection has written nothing, so Redis answers the command at once.
        match self.has_reconnected() {
            true => Err(not_replicated("the connection to Redis was replaced during the check")),
            false => Ok(()),
        }
    }

    fn has_reconnected(&self) -> bool {
        self.reconnects.lock().unwrap_or_else(PoisonError::into_inner).seen()
    }
}

impl Stream {
    /// Waits until replicas have `entries` (ascending), which `reader` has in progress. So a promoted replica knows all
    /// entries that were handled. Returns false when the consumer holds none of them any more: other consumers do, or
    /// the entries were deleted.
    ///
    /// # Errors
    /// When replicas do not have them in time, or the server does not answer.
    pub(crate) async fn await_replicas(
        &self,
        reader: &Reader,
        entries: &[Entry],
        wanted: &Confirmation,
    ) -> Result<bool, Outage> {
        // WAIT only covers writes of its own connection, so the connection has to write something: that the consumer
        // still has one of the entries. Mostly that is the first entry that is tried.
        for entry in entries.iter().rev() {
            if self.keep_one(reader.client(), reader.consumer(), entry.id).await? {
                let outcome = wanted.wait(reader.client()).await;
                return outcome.map(|()| true).map_err(|why| not_replicated(&why));
            }
        }
        Ok(false)
    }
}

fn not_replicated(why: &str) -> Outage {
    Outage::new("Redis", format!("no entries are handled until replicas have the entries: {why}"))
}

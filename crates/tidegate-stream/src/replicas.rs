//! Waits until replicas have what was written.

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

/// How much longer than [`Confirmation::within`] the reply may take to come.
const MARGIN: Duration = Duration::from_secs(1);

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
        self.replicas_have_all_of(&ServerRun::Any, name, token, lease).await
    }

    /// As [`ReplicaProbe::replicas_have_all`], of a server that answers as this run of it.
    ///
    /// # Errors
    /// As there, and if another server answers.
    pub async fn replicas_have_all_of(
        &self,
        run: &ServerRun,
        name: impl Into<RedisKey>,
        token: &str,
        lease: Duration,
    ) -> Result<(), Outage> {
        self.has_reconnected();
        if *run != ServerRun::Any && ServerRun::of(&self.client).await? != *run {
            return Err(StreamError::OtherServer("the stream is to be read again".to_owned()).into());
        }
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
    /// Waits until replicas have `entries`, which `reader` has in progress, ascending. So what is done with them does not outlive them: a
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

fn not_replicated(why: &str) -> Outage {
    Outage::new("Redis", format!("nothing is handled until replicas have what was read: {why}"))
}

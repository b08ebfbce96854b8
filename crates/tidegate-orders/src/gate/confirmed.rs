//! Says "admitted" only when replicas have the order: one WAIT behind each call.
//!
//! WAIT waits for what was written before over the same connection, and blocks that connection. So there are connections for it, and
//! each is one caller's at a time. One that was made anew in between has written nothing, and would be answered at once: what
//! it says then counts for nothing.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::{
    clients::Pool,
    interfaces::{ClientLike, EventInterface},
    types::{
        ClusterHash, CustomCommand, Key, Value,
        config::{Options, Server},
    },
};
use tidegate_stream::{Script, readable};
use tokio::sync::{Semaphore, SemaphorePermit, broadcast::Receiver};

use crate::order::OrderId;

/// How much longer than [`Confirmation::within`] the reply may take to come.
const MARGIN: Duration = Duration::from_secs(1);

/// When an order counts as admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// So many replicas have it.
    pub replicas: NonZeroU32,
    /// How long the gate waits for that.
    pub within: Duration,
    /// Where they have it.
    pub place: ConfirmedIn,
}

/// Where replicas must have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmedIn {
    /// In their memory: `WAIT`.
    Memory,
    /// In their append-only files, and in that of the master: `WAITAOF`, of Redis 7.2 and Valkey on. With `appendfsync everysec` that
    /// takes up to a second.
    AppendOnlyFile,
}

/// The connections on which calls wait.
#[derive(Debug)]
pub(super) struct ConfirmedCalls {
    confirmation: Confirmation,
    confirm: Script,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

#[derive(Debug)]
struct Connection {
    /// Of one connection.
    pool: Pool,
    reconnects: Receiver<Server>,
}

impl ConfirmedCalls {
    /// Over these pools of one connection each.
    pub(super) fn new(confirmation: Confirmation, connections: Vec<Pool>) -> Self {
        let connections = connections.into_iter().map(|pool| {
            let reconnects = pool.next().reconnect_rx();
            Connection { pool, reconnects }
        });
        let idle: Vec<Connection> = connections.collect();
        Self {
            confirmation,
            confirm: Script::new("confirm", include_str!("../../../../lua/confirm.lua")),
            permits: Semaphore::new(idle.len()),
            idle: Mutex::new(idle),
        }
    }

    /// Waits for a connection that nobody uses.
    pub(super) async fn begin(&self) -> ConfirmedCall<'_> {
        let permit = self.permits.acquire().await.expect("nobody closes it");
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = connection.expect("there are as many as permits");
        connection.has_reconnected();
        ConfirmedCall { calls: self, connection: Some(connection), _permit: permit }
    }
}

impl Connection {
    /// Whether it was made anew since this was last asked. The client says so before the first reply comes over the new one.
    fn has_reconnected(&mut self) -> bool {
        has_reconnected(&mut self.reconnects)
    }
}

/// Whether a connection was made anew since this was last asked of what its client says ([`EventInterface::reconnect_rx`]).
pub fn has_reconnected(reconnects: &mut Receiver<Server>) -> bool {
    use tokio::sync::broadcast::error::TryRecvError::{Closed, Empty};
    let mut seen = false;
    while !matches!(reconnects.try_recv(), Err(Empty | Closed)) {
        seen = true;
    }
    seen
}

/// A call on a connection of its own. Whoever drops it gives the connection back; what it still waits for comes before
/// the replies of the next.
pub(super) struct ConfirmedCall<'a> {
    calls: &'a ConfirmedCalls,
    connection: Option<Connection>,
    // Behind the connection: given back after it.
    _permit: SemaphorePermit<'a>,
}

impl Drop for ConfirmedCall<'_> {
    fn drop(&mut self) {
        self.calls.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}

impl ConfirmedCall<'_> {
    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is there until the end")
    }

    /// Where to send the call.
    pub(super) fn pool(&mut self) -> Pool {
        self.connection().pool.clone()
    }

    /// Waits until replicas have all that was written.
    ///
    /// # Errors
    /// Why nobody knows whether they have it.
    pub(super) async fn wait(mut self) -> Result<(), String> {
        let Confirmation { replicas, within, place } = self.calls.confirmation;
        let within_ms = i64::try_from(within.as_millis()).unwrap_or(i64::MAX).max(1);
        let wanted = i64::from(replicas.get());
        let (name, args): (_, Vec<Value>) = match place {
            ConfirmedIn::Memory => ("WAIT", vec![wanted.into(), within_ms.into()]),
            ConfirmedIn::AppendOnlyFile => ("WAITAOF", vec![1_i64.into(), wanted.into(), within_ms.into()]),
        };
        let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
        let options = Options { timeout: Some(within + MARGIN), max_attempts: Some(1), ..Options::default() };
        let client = self.pool().next().clone();
        let reply: Value = match client.with_options(&options).custom(command, args).await {
            Ok(reply) => reply,
            Err(error) => return Err(format!("{name}: {}", readable(&error.to_string()))),
        };
        if self.connection().has_reconnected() {
            return Err("the connection was made anew meanwhile".to_owned());
        }
        let counts: Vec<i64> = match reply {
            Value::Array(counts) => counts.iter().filter_map(Value::as_i64).collect(),
            count => count.as_i64().into_iter().collect(),
        };
        match (place, &counts[..]) {
            (ConfirmedIn::Memory, [have]) if *have >= wanted => Ok(()),
            (ConfirmedIn::AppendOnlyFile, [own, have]) if *own >= 1 && *have >= wanted => Ok(()),
            (_, [.., have]) => Err(format!("{have} of {wanted} replicas had it within {within_ms} ms")),
            (_, []) => Err(format!("{name} answered with something else than a number")),
        }
    }

    /// As [`ConfirmedCall::wait`], for an order that was admitted before, perhaps over another connection.
    ///
    /// # Errors
    /// As [`ConfirmedCall::wait`].
    pub(super) async fn wait_for(mut self, journal: Key, order: OrderId) -> Result<(), String> {
        let (confirm, pool) = (&self.calls.confirm, self.pool());
        match confirm.call(&pool, vec![journal], vec![order.get().into()]).await {
            Ok(Value::Integer(1)) => self.wait().await,
            Ok(_) => Err("its note in the journal is gone".to_owned()),
            Err(error) => Err(readable(&error.to_string())),
        }
    }
}

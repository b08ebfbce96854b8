//! Confirms admissions by replicas: one WAIT after each call, so that "admitted" means that replicas have the order.
//!
//! WAIT waits for earlier writes over the same connection, and blocks that connection. So these calls have connections
//! of their own, and one caller uses a connection at a time. A connection that was made anew in between has written
//! nothing, so its WAIT returns at once. Such an answer is ignored.

use std::sync::{Mutex, PoisonError};

use fred::{
    clients::Pool,
    types::{Key, Value},
};
use tidegate_stream::{Confirmation, Reconnects, Script, readable};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::order::OrderId;

/// The connections for calls that wait for replicas.
#[derive(Debug)]
pub(super) struct ConfirmedCalls {
    confirmation: Confirmation,
    confirm: Script,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

#[derive(Debug)]
struct Connection {
    /// A pool of one connection.
    pool: Pool,
    reconnects: Reconnects,
}

impl ConfirmedCalls {
    /// Uses these pools of one connection each.
    pub(super) fn new(confirmation: Confirmation, connections: Vec<Pool>) -> Self {
        let connections = connections.into_iter().map(|pool| {
            let reconnects = Reconnects::from(&pool);
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

    /// Waits for a connection that no other call uses.
    pub(super) async fn begin(&self) -> ConfirmedCall<'_> {
        let permit = self.permits.acquire().await.expect("it is never closed");
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = connection.expect("there are as many connections as permits");
        connection.reconnects.seen();
        ConfirmedCall { calls: self, connection: Some(connection), _permit: permit }
    }
}

/// A call on a connection of its own. Dropping it returns the connection. Replies that it still waits for come before
/// the replies of the next call.
pub(super) struct ConfirmedCall<'a> {
    calls: &'a ConfirmedCalls,
    connection: Option<Connection>,
    // Declared after the connection, so that it is released after it.
    _permit: SemaphorePermit<'a>,
}

impl Drop for ConfirmedCall<'_> {
    fn drop(&mut self) {
        self.calls.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}

impl ConfirmedCall<'_> {
    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a call has its connection until the end")
    }

    /// The pool over which to send the call.
    pub(super) fn pool(&mut self) -> Pool {
        self.connection().pool.clone()
    }

    /// Waits until replicas have everything that was written.
    ///
    /// # Errors
    /// The reason why it is unknown whether replicas have it.
    pub(super) async fn wait(mut self) -> Result<(), String> {
        let pool = self.pool();
        self.calls.confirmation.wait_over(pool.next()).await?;
        if self.connection().reconnects.seen() {
            return Err("the connection to Redis was lost and opened again during the wait".to_owned());
        }
        Ok(())
    }

    /// As [`ConfirmedCall::wait`], for an order that was admitted before, perhaps over another connection.
    ///
    /// # Errors
    /// As [`ConfirmedCall::wait`].
    pub(super) async fn wait_for(mut self, journal: Key, order: OrderId) -> Result<(), String> {
        let (confirm, pool) = (&self.calls.confirm, self.pool());
        match confirm.call(&pool, vec![journal], vec![order.get().into()]).await {
            Ok(Value::Integer(1)) => self.wait().await,
            Ok(_) => Err("the voucher's journal in Redis has no note of the order any more".to_owned()),
            Err(error) => Err(readable(&error.to_string())),
        }
    }
}

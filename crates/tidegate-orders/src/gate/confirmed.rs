//! Says "admitted" only when replicas have the order: one WAIT behind each call.
//!
//! WAIT waits for what was written before over the same connection, and blocks that connection. So there are connections for it, and
//! each is one caller's at a time. One that was made anew in between has written nothing, and would be answered at once: what
//! it says then counts for nothing.

use std::sync::{Mutex, PoisonError};

use fred::{
    clients::Pool,
    types::{Key, Value},
};
use tidegate_stream::{Confirmation, Reconnects, Script, readable};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::order::OrderId;

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
    reconnects: Reconnects,
}

impl ConfirmedCalls {
    /// Over these pools of one connection each.
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

    /// Waits for a connection that nobody uses.
    pub(super) async fn begin(&self) -> ConfirmedCall<'_> {
        let permit = self.permits.acquire().await.expect("nobody closes it");
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = connection.expect("there are as many as permits");
        connection.reconnects.seen();
        ConfirmedCall { calls: self, connection: Some(connection), _permit: permit }
    }
}

/// A call on a connection of its own. Whoever drops it returns the connection; what it still waits for comes before
/// the replies of the next.
pub(super) struct ConfirmedCall<'a> {
    calls: &'a ConfirmedCalls,
    connection: Option<Connection>,
    // Behind the connection: released after it.
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
        let pool = self.pool();
        self.calls.confirmation.wait_over(pool.next()).await?;
        if self.connection().reconnects.seen() {
            return Err("the connection was made anew meanwhile".to_owned());
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
            Ok(_) => Err("its note in the journal is gone".to_owned()),
            Err(error) => Err(readable(&error.to_string())),
        }
    }
}

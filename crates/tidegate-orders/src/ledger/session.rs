//! A connection in the middle of a transaction.

use std::ops::{Deref, DerefMut};

use sqlx::{MySql, MySqlPool, pool::PoolConnection};

use super::{fault::Fault, sql};

/// A connection that is closed when it is dropped, unless it was given back. Dropped in the middle of a transaction (a timeout,
/// an outage), a pooled connection would hand the open transaction to its next user.
pub(super) struct Session(Option<PoolConnection<MySql>>);

impl Session {
    pub(super) async fn open(pool: &MySqlPool) -> Result<Self, Fault> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }

    /// Rolls a failed transaction back, and gives the connection back where it is usable.
    pub(super) async fn end<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        let is_clean = match outcome {
            Ok(_) => true,
            // When this fails, too, the session is closed; the first fault is what happened.
            Err(Fault::Row(_) | Fault::Contention(_) | Fault::LockWait(_) | Fault::Unclear(_)) => {
                sql::run(&mut self, sql::ROLLBACK.to_owned()).await.is_ok()
            }
            Err(Fault::Outage(_)) => false,
        };
        if is_clean {
            self.give_back();
        }
        outcome
    }
}

impl Deref for Session {
    type Target = PoolConnection<MySql>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("a session has its connection until it is given back")
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("a session has its connection until it is given back")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

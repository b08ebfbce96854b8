//! A connection in the middle of a transaction.

use std::ops::{Deref, DerefMut};

use sqlx::{MySql, MySqlPool, pool::PoolConnection};

use super::{fault::Fault, sql};

/// A connection that is closed, not pooled, unless it is given back: dropped in the middle of a transaction
/// (a timeout, an outage), it would hand that open transaction to the next user.
pub(super) struct Session(Option<PoolConnection<MySql>>);

impl Session {
    pub(super) async fn open(pool: &MySqlPool) -> Result<Self, Fault> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }

    /// Gives it back after all that has come of it, with nothing of a failed transaction left in it.
    pub(super) async fn end<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        let is_clean = match outcome {
            Ok(_) => true,
            // When this fails, too, the session is closed; the first fault is what happened.
            Err(Fault::Row(_) | Fault::Contention(_) | Fault::Locked(_) | Fault::Doubtful(_)) => {
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

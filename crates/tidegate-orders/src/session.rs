//! A connection that may be in the middle of a transaction.

use std::ops::{Deref, DerefMut};

use sqlx::{Executor, MySql, MySqlPool, pool::PoolConnection, raw_sql};

/// A connection that is closed when it is dropped, unless its transaction has ended and it was returned.
///
/// A transaction begins this way here, and not by `Pool::begin`. If that future is dropped before MySQL has answered
/// BEGIN (a timeout, a stop), the connection goes back to the pool with an open transaction. The next user of the
/// connection then writes into this transaction, and nothing of it is ever committed.
#[derive(Debug)]
pub(crate) struct Session(Option<PoolConnection<MySql>>);

impl Session {
    /// Takes a connection of the pool, without a transaction yet.
    pub(crate) async fn open(pool: &MySqlPool) -> sqlx::Result<Self> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    /// Takes a connection of the pool, and begins a transaction.
    pub(crate) async fn begin(pool: &MySqlPool) -> sqlx::Result<Self> {
        let mut session = Self::open(pool).await?;
        session.execute(raw_sql("BEGIN")).await?;
        Ok(session)
    }

    /// Commits in a packet of its own. After an error, the transaction may be committed or not.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        self.execute(raw_sql("COMMIT")).await?;
        self.return_to_pool();
        Ok(())
    }

    /// Rolls back the transaction of this session. If the server does not get this statement, the end of the session
    /// rolls back.
    pub(crate) async fn roll_back(mut self) {
        if self.execute(raw_sql("ROLLBACK")).await.is_ok() {
            self.return_to_pool();
        }
    }

    /// Returns the connection to its pool; no transaction may be open in it.
    pub(crate) fn return_to_pool(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Session {
    type Target = PoolConnection<MySql>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("a session has its connection until it is returned")
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("a session has its connection until it is returned")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

//! Reads that see whatever any node of the cluster has committed before them. A node applies what the others commit a moment
//! later, so a row that is absent there may be in the database all the same.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{Executor, MySqlPool, raw_sql};
use tokio::time::timeout;

use super::node_status::{NodeStatus, Replication};
use crate::{
    mysql_error::{explain, is_behind},
    session::Session,
};

/// How long a node may take to catch up with the others, at most, where no lane waits for it.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(5);

/// A node that was waited for in vain is not waited for again for so long: a stalled one must not take all the time of a lane.
const PAUSE: Duration = Duration::from_secs(5);

/// What was in vain so long ago was another time.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// How the servers replicate that the sessions of a process are with, and when one was waited for in vain.
#[derive(Debug, Default)]
pub struct CausalReads {
    replication: AtomicU8,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// The host that new sessions go to, as `name:port`.
    host: String,
    in_vain: Option<Instant>,
    /// When a wait in vain was logged, or would have been but for the one before.
    logged: Option<Instant>,
}

/// A node does not show what the others have committed: nothing can be decided by a row that is absent there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the MySQL node {host} lags: it does not show what the other nodes have committed ({reason}). Try again when it has caught \
     up, or name another host first in mysql.url / TIDEGATE_MYSQL_URL"
)]
pub struct NodeBehind {
    /// As `name:port`.
    pub host: String,
    /// What shows it.
    pub reason: String,
}

/// Why absent rows decide nothing now.
#[derive(Debug, thiserror::Error)]
pub enum CatchUpError {
    /// The node lags.
    #[error(transparent)]
    Behind(#[from] NodeBehind),
    /// The server does not answer, or refuses the setting.
    #[error(transparent)]
    Server(#[from] sqlx::Error),
}

impl CausalReads {
    /// A session is with a server of this status.
    pub(super) fn note(&self, status: &NodeStatus) {
        let code = match status.replication() {
            Replication::None => 0,
            Replication::Galera => 1,
            Replication::Group => 2,
        };
        self.replication.store(code, Relaxed);
    }

    /// New sessions go to this host.
    pub(super) fn note_host(&self, host: String) {
        self.waits().host = host;
    }

    /// Other servers may hold rows that the one of our sessions does not show yet.
    #[must_use]
    pub(crate) fn has_other_nodes(&self) -> bool {
        self.statements().is_some()
    }

    /// Waits until the node of these sessions shows what the others had committed by now, for a bounded time. Where there is one
    /// server, it does nothing.
    ///
    /// # Errors
    /// When the node still lags, or does not answer.
    pub async fn catch_up(&self, pool: &MySqlPool) -> Result<(), CatchUpError> {
        if !self.has_other_nodes() {
            return Ok(());
        }
        let mut session = Session::open(pool).await?;
        self.catch_up_within(CATCH_UP_WITHIN, &mut session).await?;
        session.return_to_pool();
        Ok(())
    }

    /// As [`CausalReads::catch_up`], by a session that is in no transaction. After an error, close the session: the answer may still
    /// come, and its variable may not be as before.
    pub(crate) async fn catch_up_within(
        &self,
        within: Duration,
        session: &mut Session,
    ) -> Result<(), CatchUpError> {
        let Some(statements) = self.statements() else { return Ok(()) };
        if self.is_paused() {
            return Err(self.behind("a moment ago it was waited for in vain".to_owned()).into());
        }
        let reason = match timeout(within, session.execute(raw_sql(statements))).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) if is_behind(&error) => explain(&error),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => format!("no answer within {} ms", within.as_millis()),
        };
        self.waits().in_vain = Some(Instant::now());
        Err(self.behind(reason).into())
    }

    /// Statements that wait until the server shows what any node had committed before them, and whose session is as before after
    /// them. None: there is one server, and what it has committed it shows.
    ///
    /// MariaDB waits at most `repl.causal_read_timeout` (30 s), and no other limit of the server shortens that.
    fn statements(&self) -> Option<&'static str> {
        match self.replication.load(Relaxed) {
            1 => Some(
                "SET SESSION wsrep_sync_wait = 1; SELECT id FROM tidegate_probe WHERE id = 1; \
                 SET SESSION wsrep_sync_wait = DEFAULT",
            ),
            2 => Some(
                "SET SESSION group_replication_consistency = 'BEFORE'; SELECT id FROM tidegate_probe WHERE id = 1; \
                 SET SESSION group_replication_consistency = DEFAULT",
            ),
            _ => None,
        }
    }

    /// A wait in vain is to be logged: it is not the next of several in a row.
    pub(crate) fn is_news(&self) -> bool {
        let before = self.waits().logged.replace(Instant::now());
        before.is_none_or(|at| at.elapsed() > IN_A_ROW)
    }

    /// A server was waited for in vain a moment ago.
    fn is_paused(&self) -> bool {
        self.waits().in_vain.is_some_and(|at| at.elapsed() < PAUSE)
    }

    fn behind(&self, reason: String) -> NodeBehind {
        NodeBehind { host: self.waits().host.clone(), reason }
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Reads that see everything that any node of the cluster committed before them. A node applies the commits of other
//! nodes with a delay, so a row that is absent on it may still exist in the database.

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

/// The longest time that a node may take to catch up with the others, if no lane waits for it.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(5);

/// The time without another wait after a wait in vain, so that a stalled node does not take all the time of a lane.
const PAUSE: Duration = Duration::from_secs(5);

/// The time after which another wait in vain is logged again.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// The way in which the servers of this process replicate, and the time of the last failed wait for a server.
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
    /// The last wait in vain, whether it was logged or not because it followed another one.
    logged: Option<Instant>,
}

/// The error that a node does not show what the others have committed: the absence of a row there decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the MySQL node {host} lags: it does not show what the other nodes have committed ({reason}). Try again when the node \
     has caught up, or put another host first in mysql.url / TIDEGATE_MYSQL_URL"
)]
pub struct NodeBehind {
    /// The host of the node, as `name:port`.
    pub host: String,
    /// The reason why the node counts as lagging, such as an error of the server.
    pub reason: String,
}

/// The reason why a missing row does not prove that the order was not written.
#[derive(Debug, thiserror::Error)]
pub enum CatchUpError {
    /// The node lags behind the cluster.
    #[error(transparent)]
    Behind(#[from] NodeBehind),
    /// The server does not answer, or refuses the setting.
    #[error(transparent)]
    Server(#[from] sqlx::Error),
}

impl CausalReads {
    /// Notes how the server of a new session replicates.
    pub(super) fn note(&self, status: &NodeStatus) {
        let code = match status.replication() {
            Replication::None => 0,
            Replication::Galera => 1,
            Replication::Group => 2,
        };
        self.replication.store(code, Relaxed);
    }

    /// Notes the host that new sessions go to.
    pub(super) fn note_host(&self, host: String) {
        self.waits().host = host;
    }

    /// Whether other servers may hold rows that the server of our sessions does not show yet.
    #[must_use]
    pub(crate) fn has_other_nodes(&self) -> bool {
        self.statements().is_some()
    }

    /// Waits for a limited time until this process's MySQL node shows everything that the other nodes of the cluster
    /// had committed before the call. With a single server, the call does nothing.
    ///
    /// # Errors
    /// Fails if the node still lags, or does not answer.
    pub async fn catch_up(&self, pool: &MySqlPool) -> Result<(), CatchUpError> {
        if !self.has_other_nodes() {
            return Ok(());
        }
        let mut session = Session::open(pool).await?;
        self.catch_up_within(CATCH_UP_WITHIN, &mut session).await?;
        session.return_to_pool();
        Ok(())
    }

    /// Waits like [`CausalReads::catch_up`], with a session that is not in a transaction. After an error, close the
    /// session: the answer may still come, and its variable may have another value.
    pub(crate) async fn catch_up_within(
        &self,
        within: Duration,
        session: &mut Session,
    ) -> Result<(), CatchUpError> {
        let Some(statements) = self.statements() else { return Ok(()) };
        if self.is_paused() {
            return Err(self.behind("a moment ago, this node did not catch up in time".to_owned()).into());
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

    /// Statements that wait until the server shows what any node had committed before them, and that leave the session
    /// unchanged. `None` if there is a single server, which shows everything that it has committed.
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

    /// Whether this wait in vain must be logged: yes, unless another one came shortly before.
    pub(crate) fn is_news(&self) -> bool {
        let before = self.waits().logged.replace(Instant::now());
        before.is_none_or(|at| at.elapsed() > IN_A_ROW)
    }

    /// Whether a wait for the server was in vain a moment ago.
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

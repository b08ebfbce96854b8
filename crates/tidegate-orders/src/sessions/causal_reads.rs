//! Reads that see whatever any node of the cluster has committed before them. A node applies what the others commit a moment
//! later, so a row that is absent there may be in the database all the same.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::node_status::{NodeStatus, Replication};

/// A node that was waited for in vain is not waited for again for so long: a stalled one must not take all the time of a lane.
const PAUSE: Duration = Duration::from_secs(5);

/// What was in vain so long ago was another time.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// How the servers replicate that the sessions of a process are with, and when one was waited for in vain.
#[derive(Debug, Default)]
pub struct CausalReads {
    replication: AtomicU8,
    in_vain: Mutex<Option<Instant>>,
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

    /// Statements that wait until the server shows what any node had committed before them, and whose session is as before after
    /// them. None: there is one server, and what it has committed it shows.
    ///
    /// MariaDB waits at most `repl.causal_read_timeout` (30 s), and no other limit of the server shortens that.
    #[must_use]
    pub(crate) fn statements(&self) -> Option<&'static str> {
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

    /// A server was waited for in vain. Answers whether that is new, and not the next of several times in a row.
    pub(crate) fn pause(&self) -> bool {
        let mut in_vain = self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        let before = in_vain.replace(Instant::now());
        before.is_none_or(|at| at.elapsed() > IN_A_ROW)
    }

    /// A server was waited for in vain a moment ago.
    pub(crate) fn is_paused(&self) -> bool {
        let in_vain = *self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        in_vain.is_some_and(|at| at.elapsed() < PAUSE)
    }
}

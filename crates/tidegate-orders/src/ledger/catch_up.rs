//! Waits until a node of a cluster shows what the other nodes have committed, before the absence of a row decides
//! anything.

use std::time::Duration;

use tidegate_stream::Outage;

use super::{Ledger, fault::Fault, session::Session, verdict::Freshness};
use crate::{
    mysql_error::explain,
    sessions::{CatchUpError, NodeBehind},
};

/// The longest time that a node may take to catch up with the others. A batch waits all that time.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);

impl Ledger {
    /// Whether other servers may hold rows that the server of our sessions does not show yet.
    pub(super) fn has_other_nodes(&self) -> bool {
        self.causal_reads.has_other_nodes()
    }

    /// Waits for a bounded time until the node of this session shows what the other nodes had committed before the
    /// call. The session must not be in a transaction. If the node does not catch up, this replaces the session with a
    /// new one.
    pub(super) async fn catch_up(&self, session: &mut Session) -> Result<Freshness, Fault> {
        let Err(NodeBehind { host, reason }) = self.wait_for_node(session).await? else {
            return Ok(Freshness::Current);
        };
        if self.causal_reads.is_news() {
            tracing::warn!(
                host,
                reason,
                "this MySQL node does not show what the other nodes have committed: entries that need missing rows wait and are tried again"
            );
        }
        *session = Session::open(&self.pool).await?;
        Ok(Freshness::Behind)
    }

    /// Waits like [`Ledger::catch_up`], for a caller that cannot set anything aside: if the node does not catch up,
    /// this is an outage.
    pub(super) async fn must_catch_up(&self, session: &mut Session) -> Result<(), Fault> {
        let waited = self.wait_for_node(session).await?;
        waited.map_err(|behind| Outage::new("MySQL", behind).into())
    }

    async fn wait_for_node(&self, session: &mut Session) -> Result<Result<(), NodeBehind>, Fault> {
        let within = CATCH_UP_WITHIN.min(self.timeout / 2);
        match self.causal_reads.catch_up_within(within, session).await {
            Ok(()) => Ok(Ok(())),
            Err(CatchUpError::Behind(behind)) => Ok(Err(behind)),
            // No row is at fault. The session may have changed, so it is closed.
            Err(CatchUpError::Server(error)) => Err(Outage::new("MySQL", explain(&error)).into()),
        }
    }
}

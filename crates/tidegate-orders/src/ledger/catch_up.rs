//! Before the absence of a row decides anything on a cluster: whether this node shows what the others had committed by now.

use std::time::Duration;

use tidegate_stream::Outage;

use super::{Ledger, fault::Fault, session::Session, verdict::Freshness};
use crate::{
    mysql_error::explain,
    sessions::{CatchUpError, NodeBehind},
};

/// How long a node may take to catch up with the others, at most. It takes a batch all that time.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);

impl Ledger {
    /// Other servers may hold rows that the one of our sessions does not show yet.
    pub(super) fn has_other_nodes(&self) -> bool {
        self.causal_reads.has_other_nodes()
    }

    /// Waits until the node of this session shows what the others had committed by now, for a bounded time. The session must be in
    /// no transaction. Where the wait was in vain, it is another one afterwards.
    pub(super) async fn catch_up(&self, session: &mut Session) -> Result<Freshness, Fault> {
        let Err(NodeBehind { host, reason }) = self.wait_for_node(session).await? else {
            return Ok(Freshness::Current);
        };
        if self.causal_reads.is_news() {
            tracing::warn!(
                host,
                reason,
                "this MySQL node does not show what the other nodes have committed: what depends on that is set aside"
            );
        }
        *session = Session::open(&self.pool).await?;
        Ok(Freshness::Behind)
    }

    /// As [`Ledger::catch_up`], for a caller that cannot set anything aside: an outage where the wait was in vain.
    pub(super) async fn must_catch_up(&self, session: &mut Session) -> Result<(), Fault> {
        let waited = self.wait_for_node(session).await?;
        waited.map_err(|behind| Outage::new("MySQL", behind).into())
    }

    async fn wait_for_node(&self, session: &mut Session) -> Result<Result<(), NodeBehind>, Fault> {
        let within = CATCH_UP_WITHIN.min(self.timeout / 2);
        match self.causal_reads.catch_up_within(within, session).await {
            Ok(()) => Ok(Ok(())),
            Err(CatchUpError::Behind(behind)) => Ok(Err(behind)),
            // No row is at fault, and the session may not be as before: it is closed.
            Err(CatchUpError::Server(error)) => Err(Outage::new("MySQL", explain(&error)).into()),
        }
    }
}

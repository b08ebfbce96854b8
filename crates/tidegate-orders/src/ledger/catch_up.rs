//! Before the absence of a row decides anything on a cluster: whether this node shows what the others had committed by now.

use std::time::Duration;

use tidegate_stream::Outage;
use tokio::time::timeout;

use super::{Ledger, fault::Fault, session::Session, sql, verdict::Freshness};
use crate::mysql_error::{explain, is_behind};

/// How long a node may take to catch up with the others, at most. It takes a batch all that time.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);

impl Ledger {
    /// Other servers may hold rows that the one of our sessions does not show yet.
    pub(super) fn has_other_nodes(&self) -> bool {
        self.causal_reads.statements().is_some()
    }

    /// Waits until the node of this session shows what the others had committed by now, for a bounded time. The session must be in
    /// no transaction. Where the wait was in vain, it is another one afterwards.
    pub(super) async fn catch_up(&self, session: &mut Session) -> Result<Freshness, Fault> {
        let Some(statements) = self.causal_reads.statements() else { return Ok(Freshness::Current) };
        if self.causal_reads.is_paused() {
            return Ok(Freshness::Behind);
        }
        let within = CATCH_UP_WITHIN.min(self.timeout / 2);
        let waited = timeout(within, sql::run(session, statements.to_owned())).await;
        let reason = match waited {
            Ok(Ok(())) => return Ok(Freshness::Current),
            Ok(Err(error)) if is_behind(&error) => explain(&error),
            // No row is at fault, and the session may not be as before: it is closed.
            Ok(Err(error)) => return Err(Outage::new("MySQL", explain(&error)).into()),
            Err(_) => format!("no answer within {} ms", within.as_millis()),
        };
        if self.causal_reads.pause() {
            tracing::warn!(
                reason,
                "this MySQL node does not show what the other nodes have committed: what depends on that is set aside"
            );
        }
        // The answer may still come, and its variable may not be as before.
        *session = Session::open(&self.pool).await?;
        Ok(Freshness::Behind)
    }
}

/// For a caller that cannot set anything aside.
pub(super) fn behind() -> Fault {
    Fault::Outage(Outage::new("MySQL", "this node does not show what the other nodes have committed"))
}

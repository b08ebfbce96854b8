//! Ends a transaction of the ledger.

use super::{fault::Fault, sql};
pub(super) use crate::session::Session;

impl Session {
    /// Rolls a failed transaction back, and returns the connection to the pool if it is usable.
    pub(super) async fn end<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        let is_clean = match outcome {
            Ok(_) => true,
            // If the rollback also fails, the session is closed. The first fault is reported.
            Err(Fault::Row(_) | Fault::Contention(_) | Fault::LockWait(_) | Fault::Unclear(_)) => {
                sql::run(&mut self, sql::ROLLBACK.to_owned()).await.is_ok()
            }
            Err(Fault::Outage(_)) => false,
        };
        if is_clean {
            self.return_to_pool();
        }
        outcome
    }
}

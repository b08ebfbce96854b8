//! How a batch of orders was handled, for whoever traces single orders.

use std::fmt::Debug;

use tidegate_stream::{Entry, Stage};

use crate::ledger::Verdict;

/// Traces batches. Without one, an [`crate::OrderHandler`] makes no [`BatchTrace`].
pub trait BatchTracer: Debug + Send + Sync + 'static {
    /// Whether this batch is to be traced.
    fn wants(&self, batch: &[Entry]) -> bool;

    /// Takes the trace of a batch that was wanted, before the batch is settled; also when a store failed. The batch waits
    /// for this call.
    fn take(&self, batch_trace: BatchTrace);
}

/// How a batch was handled. A store that fails ends it early: the last stage here is where it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTrace {
    /// The users of the batch were locked.
    pub locking: Option<Stage>,
    /// The orders of those users were written and committed.
    pub writing: Option<Stage>,
    /// The ledger's verdicts, one an entry. None where the ledger was not asked: the entry is no order, its voucher is held,
    /// or another worker has locked its user.
    pub verdicts: Vec<Option<Verdict>>,
}

impl BatchTrace {
    pub(crate) fn of(entries: usize) -> Self {
        Self { locking: None, writing: None, verdicts: vec![None; entries] }
    }

    pub(crate) fn wrote(&mut self, places: &[usize], verdicts: &[Verdict]) {
        for (at, verdict) in places.iter().zip(verdicts) {
            self.verdicts[*at] = Some(verdict.clone());
        }
    }
}

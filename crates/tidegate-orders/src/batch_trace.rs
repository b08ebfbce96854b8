//! Traces of batches, for callers that trace single orders.

use std::fmt::Debug;

use tidegate_stream::{Entry, Stage};

use crate::ledger::Verdict;

/// Receives the traces of batches. Without a tracer, an [`crate::OrderHandler`] makes no [`BatchTrace`].
pub trait BatchTracer: Debug + Send + Sync + 'static {
    /// Whether this batch must be traced.
    fn wants(&self, batch: &[Entry]) -> bool;

    /// Takes the trace of a batch that the tracer wanted, before the lane settles the batch. The handler also calls it
    /// when a store failed. The batch waits for this call.
    fn take(&self, batch_trace: BatchTrace);
}

/// The trace of a batch: its stages and verdicts. If a store fails, the batch ends early; the last stage in the trace
/// is the one that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTrace {
    /// The stage that locked the users of the batch.
    pub locking: Option<Stage>,
    /// The stage that wrote and committed the orders of those users.
    pub writing: Option<Stage>,
    /// The verdicts of the ledger, one for each entry. None: the ledger did not decide the entry, because the entry is
    /// not an order, its voucher is held, or another worker has locked its user.
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

//! Traces of batches, for callers that trace single orders.

use std::fmt::Debug;

use tidegate_stream::{Entry, Stage};

use crate::ledger::Verdict;

/// A receiver of batch traces. Without a tracer, an [`crate::OrderHandler`] makes no [`BatchTrace`].
pub trait BatchTracer: Debug + Send + Sync + 'static {
    /// Whether this batch must be traced.
    fn wants(&self, batch: &[Entry]) -> bool;

    /// Takes the trace of a batch that the tracer wanted, before the lane settles the batch. The handler also calls it
    /// when a store failed. The batch waits for this call.
    fn take(&self, batch_trace: BatchTrace);
}

/// The trace of a batch: the times of its stages, and the decision on each order. If a store fails, the batch ends
/// early, and the last stage in the trace is the stage that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTrace {
    /// The start and end time of locking the users of the batch.
    pub locking: Option<Stage>,
    /// The start and end time of writing and committing the orders of the batch.
    pub writing: Option<Stage>,
    /// The decisions on the orders of the batch, one for each entry. `None` for an entry without a decision: it is not
    /// an order, or another process has locked its voucher or user.
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

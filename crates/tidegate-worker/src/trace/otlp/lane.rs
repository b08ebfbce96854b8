//! The traces of the orders of one lane. A lane handles one batch at a time, so the trace that its handler returns
//! belongs to the batch that the lane reports next.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use tidegate_orders::{BatchTrace, BatchTracer};
use tidegate_stream::{Entry, Observer, ProcessedBatch};

use super::{
    permits::SpanPermits,
    span::{Batch, OrderSpans},
};

/// The observer of one lane (a consumer within the worker), which creates traces of the lane's orders.
#[derive(Debug)]
pub struct LaneTrace {
    spans: OrderSpans,
    permits: Arc<SpanPermits>,
    asks_sampler: bool,
    batch_trace: Mutex<Option<BatchTrace>>,
}

impl LaneTrace {
    /// Creates the observer of one lane (a consumer within the worker) before its first batch.
    pub fn new(spans: OrderSpans, permits: Arc<SpanPermits>, asks_sampler: bool) -> Self {
        Self { spans, permits, asks_sampler, batch_trace: Mutex::default() }
    }

    fn is_traced(&self, entry: &Entry) -> bool {
        self.asks_sampler || self.spans.fields.traceparent(entry).is_some_and(|parent| parent.is_sampled())
    }

    fn batch_trace(&self) -> std::sync::MutexGuard<'_, Option<BatchTrace>> {
        self.batch_trace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchTracer for LaneTrace {
    fn wants(&self, batch: &[Entry]) -> bool {
        batch.iter().any(|entry| self.is_traced(entry))
    }

    fn take(&self, batch_trace: BatchTrace) {
        *self.batch_trace() = Some(batch_trace);
    }
}

impl Observer for LaneTrace {
    fn batch_processed(&self, worked: &ProcessedBatch<'_>) {
        // If there is no batch trace, no order of this batch is traced.
        let Some(batch_trace) = mem::take(&mut *self.batch_trace()) else { return };
        let batch = Batch::new(worked, &batch_trace);
        for (at, entry) in worked.entries.iter().enumerate() {
            if self.is_traced(entry) {
                let order = batch.order(&self.spans.fields, at);
                let spans = order.spans();
                if self.permits.take(spans) && !self.spans.emit(&batch, &order) {
                    self.permits.free(spans);
                }
            }
        }
    }
}

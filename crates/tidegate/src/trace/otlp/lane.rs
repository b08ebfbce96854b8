//! Traces the orders of one lane. A lane has one batch in hand, so the account that its handler gives belongs to the
//! batch that the lane tells of next.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use tidegate_orders::{Account, Accountant};
use tidegate_stream::{Entry, Observer, WorkedOff};

use super::{
    room::Room,
    span::{Batch, OrderSpans},
};

/// Looks on in one lane.
#[derive(Debug)]
pub struct LaneTrace {
    spans: OrderSpans,
    room: Arc<Room>,
    asks_sampler: bool,
    account: Mutex<Option<Account>>,
}

impl LaneTrace {
    /// Nothing looked at yet.
    pub fn new(spans: OrderSpans, room: Arc<Room>, asks_sampler: bool) -> Self {
        Self { spans, room, asks_sampler, account: Mutex::default() }
    }

    fn is_traced(&self, entry: &Entry) -> bool {
        self.asks_sampler || self.spans.fields.traceparent(entry).is_some_and(|parent| parent.is_sampled())
    }

    fn account(&self) -> std::sync::MutexGuard<'_, Option<Account>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accountant for LaneTrace {
    fn wants(&self, batch: &[Entry]) -> bool {
        batch.iter().any(|entry| self.is_traced(entry))
    }

    fn take(&self, account: Account) {
        *self.account() = Some(account);
    }
}

impl Observer for LaneTrace {
    fn worked_off(&self, worked: &WorkedOff<'_>) {
        // None: no order of this batch is traced.
        let Some(account) = mem::take(&mut *self.account()) else { return };
        let batch = Batch::new(worked, &account);
        for (at, entry) in worked.entries.iter().enumerate() {
            if self.is_traced(entry) {
                let order = batch.order(&self.spans.fields, at);
                let spans = order.spans();
                if self.room.take(spans) && !self.spans.emit(&batch, &order) {
                    self.room.give_back(spans);
                }
            }
        }
    }
}

//! Permits for spans that wait to be sent. If its queue is full, the library drops single spans. Here, an order is
//! traced completely or not at all.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::{Duration, Instant},
};

/// The shortest time between two warnings of the same kind about traces.
pub const LOG_EVERY: Duration = Duration::from_secs(60);

/// The counter of free places for trace spans in the send queue of the OpenTelemetry library.
#[derive(Debug)]
pub struct SpanPermits {
    capacity: usize,
    waiting: AtomicUsize,
    under_way: AtomicUsize,
    untraced: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl SpanPermits {
    /// Creates the counter of free places for a send queue of `capacity` spans.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            waiting: AtomicUsize::default(),
            under_way: AtomicUsize::default(),
            untraced: AtomicU64::default(),
            told: Mutex::default(),
        }
    }

    /// The number of spans that wait to be sent or are being sent.
    pub fn unsent(&self) -> usize {
        self.waiting.load(Acquire) + self.under_way.load(Acquire)
    }

    /// Reserves places in the send queue for the spans of an order. If there are too few places, this returns false and
    /// counts the order as untraced.
    pub fn take(&self, spans: usize) -> bool {
        let after = |waiting: usize| waiting.checked_add(spans).filter(|after| *after <= self.capacity);
        if self.waiting.fetch_update(AcqRel, Acquire, after).is_ok() {
            return true;
        }
        let orders = self.untraced.fetch_add(1, Relaxed) + 1;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= LOG_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(orders, "there are more traces than can be sent, so some orders have no trace");
        }
        false
    }

    /// Frees the places of spans that leave the send queue, because the exporter sends them now.
    pub fn leave(&self, spans: usize) {
        self.under_way.fetch_add(spans, AcqRel);
        self.free(spans);
    }

    /// Notes that this number of spans is no longer being sent: the spans were sent or lost.
    pub fn arrive(&self, spans: usize) {
        self.under_way.fetch_sub(spans, AcqRel);
    }

    /// Frees the reserved places of spans that were not created.
    pub fn free(&self, spans: usize) {
        self.waiting.fetch_sub(spans, AcqRel);
    }
}

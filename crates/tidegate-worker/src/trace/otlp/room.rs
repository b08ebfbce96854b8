//! Room for spans that wait to be sent. The library drops single spans where its queue is full; an order is better
//! traced whole or not at all.

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

/// Of each warning about traces, one comes in this time.
pub const TELL_EVERY: Duration = Duration::from_secs(60);

/// What of the library's queue is free.
#[derive(Debug)]
pub struct Room {
    capacity: usize,
    waiting: AtomicUsize,
    under_way: AtomicUsize,
    untraced: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Room {
    /// For so many spans.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            waiting: AtomicUsize::default(),
            under_way: AtomicUsize::default(),
            untraced: AtomicU64::default(),
            told: Mutex::default(),
        }
    }

    /// Spans that wait to be sent, and those that are on their way.
    pub fn unsent(&self) -> usize {
        self.waiting.load(Acquire) + self.under_way.load(Acquire)
    }

    /// Takes the place of an order's spans. Where there is none, that is counted, and told now and then.
    pub fn take(&self, spans: usize) -> bool {
        let after = |waiting: usize| waiting.checked_add(spans).filter(|after| *after <= self.capacity);
        if self.waiting.fetch_update(AcqRel, Acquire, after).is_ok() {
            return true;
        }
        let orders = self.untraced.fetch_add(1, Relaxed) + 1;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(orders, "more traces than can be sent: some orders have none");
        }
        false
    }

    /// Frees places whose spans are on their way now.
    pub fn leave(&self, spans: usize) {
        self.under_way.fetch_add(spans, AcqRel);
        self.free(spans);
    }

    /// What became of them is known.
    pub fn arrive(&self, spans: usize) {
        self.under_way.fetch_sub(spans, AcqRel);
    }

    /// Frees places whose spans were not made.
    pub fn free(&self, spans: usize) {
        self.waiting.fetch_sub(spans, AcqRel);
    }
}

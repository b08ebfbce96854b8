//! A cached value. At most one task queries it at a time, and not too often, however many callers want it.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

/// A cache for the result of a query. All callers share the last result while the result is fresh.
#[derive(Debug)]
pub struct Cached<T> {
    fresh_for: Duration,
    last: Arc<Mutex<Option<Answer<T>>>>,
}

/// The last answer and its time.
#[derive(Debug)]
struct Answer<T> {
    at: Instant,
    what: Arc<T>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// Creates a cache without a result. A result stays fresh for `fresh_for`.
    pub fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, last: Arc::default() }
    }

    /// Returns the last result if the result is fresh. Otherwise runs the query `ask`, while all other callers wait for
    /// the result. The query runs to its end even if the caller stops waiting, because an interrupted query costs a
    /// connection.
    pub async fn get(&self, ask: impl Future<Output = T> + Send + 'static) -> Arc<T> {
        let (last, fresh_for) = (Arc::clone(&self.last), self.fresh_for);
        let answered = tokio::spawn(async move {
            let mut last = last.lock().await;
            if let Some(answer) = last.as_ref().filter(|answer| answer.at.elapsed() < fresh_for) {
                return Arc::clone(&answer.what);
            }
            let what = Arc::new(ask.await);
            *last = Some(Answer { at: Instant::now(), what: Arc::clone(&what) });
            what
        });
        answered.await.expect("a query of the stores does not panic")
    }
}

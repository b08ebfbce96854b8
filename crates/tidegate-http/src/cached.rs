//! A cached value. At most one task queries it at a time, and not too often, however many callers want it.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

/// The last answer, which callers share while it is fresh.
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
    /// Creates a cache that has no answer yet.
    pub fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, last: Arc::default() }
    }

    /// Returns the last answer if it is fresh. Otherwise this runs `ask`, and all other callers wait for its answer.
    /// `ask` runs to its end even if its caller has gone: to cut off a query to a store costs a connection.
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
        answered.await.expect("asking the stores does not panic")
    }
}

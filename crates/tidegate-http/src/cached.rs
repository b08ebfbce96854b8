//! A value that is asked for by one at a time and not too often, however many want it.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

/// The last answer, for as long as it is fresh.
#[derive(Debug)]
pub struct Cached<T> {
    fresh_for: Duration,
    last: Arc<Mutex<Option<Answer<T>>>>,
}

/// What was answered, and when.
#[derive(Debug)]
struct Answer<T> {
    at: Instant,
    what: Arc<T>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// Nothing was asked yet.
    pub fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, last: Arc::default() }
    }

    /// The last answer if it is fresh; otherwise that of `ask`, for which all others wait. It runs to its end also
    /// when the one who wanted it has gone: a question to a store that is cut off costs a connection.
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

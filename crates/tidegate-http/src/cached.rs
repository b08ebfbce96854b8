//! Cached values. At most one task queries a value at a time, and not too often, however many callers want it.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex as StdMutex, PoisonError},
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

    /// Whether the last result is fresh, or a query is running.
    fn is_in_use(&self) -> bool {
        let Ok(last) = self.last.try_lock() else { return true };
        last.as_ref().is_some_and(|answer| answer.at.elapsed() < self.fresh_for)
    }

    /// Returns the last result if the result is fresh. Otherwise runs the query `ask`, while all other callers wait for
    /// the result. The query runs to its end even if the caller stops waiting, because an interrupted query costs a
    /// connection.
    pub fn get<F>(&self, ask: F) -> impl Future<Output = Arc<T>> + use<T, F>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (last, fresh_for) = (Arc::clone(&self.last), self.fresh_for);
        // Boxed at once: otherwise each answer that may look something up would take the memory for all its queries.
        let asking = Box::pin(async move {
            let mut last = last.lock().await;
            if let Some(answer) = last.as_ref().filter(|answer| answer.at.elapsed() < fresh_for) {
                return Arc::clone(&answer.what);
            }
            let what = Arc::new(ask.await);
            *last = Some(Answer { at: Instant::now(), what: Arc::clone(&what) });
            what
        });
        async move { tokio::spawn(asking).await.expect("a query of the stores does not panic") }
    }
}

/// Caches for the results of queries, by a key that clients choose. The number of caches is limited: if there are more
/// fresh results, results for further keys are not kept.
#[derive(Debug)]
pub struct CachedByKey<K, T> {
    fresh_for: Duration,
    most: usize,
    caches: StdMutex<HashMap<K, Arc<Cached<T>>>>,
}

impl<K: Eq + Hash, T: Send + Sync + 'static> CachedByKey<K, T> {
    /// Creates at most `most` caches, in which a result stays fresh for `fresh_for`.
    pub fn new(fresh_for: Duration, most: usize) -> Self {
        Self { fresh_for, most, caches: StdMutex::default() }
    }

    /// Returns the last result for this key if the result is fresh. Otherwise runs the query `ask`, as [`Cached::get`]
    /// does.
    pub fn get<F>(&self, key: K, ask: F) -> impl Future<Output = Arc<T>> + use<K, T, F>
    where
        F: Future<Output = T> + Send + 'static,
    {
        // If there is no room for another cache, this caller gets one of its own.
        let cache = self.cache_of(key).unwrap_or_else(|| Arc::new(Cached::new(self.fresh_for)));
        cache.get(ask)
    }

    /// The cache of a key. None: there is no room for another cache. Caches with a fresh result or a running query stay,
    /// so that no client can push out the voucher of a sale.
    fn cache_of(&self, key: K) -> Option<Arc<Cached<T>>> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if caches.len() >= self.most && !caches.contains_key(&key) {
            caches.retain(|_, cache| cache.is_in_use());
            if caches.len() >= self.most {
                return None;
            }
        }
        Some(Arc::clone(caches.entry(key).or_insert_with(|| Arc::new(Cached::new(self.fresh_for)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_key_is_asked_once_while_it_is_fresh_and_the_caches_have_an_end() {
        let caches = CachedByKey::new(Duration::from_secs(3600), 2);
        for (key, answer) in [("a", 1), ("b", 2), ("a", 3)] {
            let expected = if answer == 3 { 1 } else { answer };
            assert_eq!(*caches.get(key, async move { answer }).await, expected, "{key}");
        }
        assert_eq!(*caches.get("c", async { 4 }).await, 4);
        assert_eq!(*caches.get("c", async { 5 }).await, 5, "there was no room for three");
        assert_eq!(*caches.get("a", async { 6 }).await, 1, "the others stay");
    }
}

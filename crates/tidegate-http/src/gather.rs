//! The values that only the stores know. They are read when a client requests a page.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, anyhow};

use tidegate_operations::status::Status;
use tidegate_worker::View;

use crate::cached::Cached;

/// The names of the two stores, Redis and MySQL, in messages.
pub const STORES: [&str; 2] = ["Redis", "MySQL"];
/// The time for which gathered values are shown again.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// The time that a store has to answer. A store that needs longer counts as away, because clients have timeouts too.
const PATIENCE: Duration = Duration::from_secs(2);

/// The name of a store in the labels of metrics.
pub fn label_of(store: &str) -> &'static str {
    if store == "MySQL" { "mysql" } else { "redis" }
}

/// The status values that were read from Redis and MySQL.
#[derive(Debug)]
pub struct Gathered {
    /// The status of the stream, vouchers and orders. For a store that failed, the status has the reason instead of
    /// values.
    pub status: Status,
    /// The number of failed queries of each store since the process started.
    pub failures: [(&'static str, u64); 2],
}

impl Gathered {
    /// For each store, whether the store answered the last query of its values.
    pub fn told(&self) -> [(&'static str, bool); 2] {
        let [redis, mysql] = STORES;
        [(redis, self.status.stream.is_some()), (mysql, self.status.vouchers.is_some())]
    }
}

/// The reader of status values from Redis and MySQL, with a cache.
#[derive(Debug)]
pub struct Gatherer {
    view: Arc<View>,
    cached: Cached<Gathered>,
    failures: Arc<[AtomicU64; 2]>,
}

impl Gatherer {
    /// Creates a reader of the stores that the worker `view` uses.
    pub fn new(view: Arc<View>) -> Self {
        Self { view, cached: Cached::new(FRESH_FOR), failures: Arc::default() }
    }

    /// Returns status values of both stores, at most 2 s old.
    pub async fn gather(&self) -> Arc<Gathered> {
        let (view, failures) = (Arc::clone(&self.view), Arc::clone(&self.failures));
        self.cached
            .get(async move {
                let not_yet = || anyhow!("the worker is starting and has not connected yet");
                let redis = async { Ok(view.parts().with_context(not_yet)?.redis.clone()) };
                let mysql = async { Ok(view.parts().with_context(not_yet)?.mysql.clone()) };
                let status = Status::read(&view.settings().system, redis, mysql, PATIENCE).await;
                let mut gathered = Gathered { status, failures: STORES.map(|store| (store, 0)) };
                for (at, (_, is_told)) in gathered.told().into_iter().enumerate() {
                    let failed = failures[at].fetch_add(u64::from(!is_told), Relaxed) + u64::from(!is_told);
                    gathered.failures[at].1 = failed;
                }
                gathered
            })
            .await
    }
}

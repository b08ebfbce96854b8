//! Values that only the stores know, gathered when somebody looks.

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

/// The stores, as people and outages name them.
pub const STORES: [&str; 2] = ["Redis", "MySQL"];
/// As long, what was gathered is shown again.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// A store that needs longer counts as away: whoever looks does not wait for ever either.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a store is called in labels.
pub fn label_of(store: &str) -> &'static str {
    if store == "MySQL" { "mysql" } else { "redis" }
}

/// What was gathered.
#[derive(Debug)]
pub struct Gathered {
    /// What the stores told; where one did not, an error says why.
    pub status: Status,
    /// How often each store has failed to tell so far.
    pub failures: [(&'static str, u64); 2],
}

impl Gathered {
    /// Which stores told what they hold.
    pub fn told(&self) -> [(&'static str, bool); 2] {
        let [redis, mysql] = STORES;
        [(redis, self.status.stream.is_some()), (mysql, self.status.vouchers.is_some())]
    }
}

/// Gathers.
#[derive(Debug)]
pub struct Gatherer {
    view: Arc<View>,
    cached: Cached<Gathered>,
    failures: Arc<[AtomicU64; 2]>,
}

impl Gatherer {
    /// For what `view` shows.
    pub fn new(view: Arc<View>) -> Self {
        Self { view, cached: Cached::new(FRESH_FOR), failures: Arc::default() }
    }

    /// What the stores tell, or told a moment ago.
    pub async fn gather(&self) -> Arc<Gathered> {
        let (view, failures) = (Arc::clone(&self.view), Arc::clone(&self.failures));
        self.cached
            .get(async move {
                let not_yet = || anyhow!("not connected yet: the worker is starting");
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

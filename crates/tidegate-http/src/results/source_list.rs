//! The sources of results: the partitions of the list, and partitions that a cursor names and the list no longer has.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::join_all;
use tidegate_operations::{System, SystemSettings};
use tokio_util::sync::CancellationToken;

use super::{counts::ResultCounts, source::ResultSource};

/// The largest number of removed partitions with a connection. A cursor may name any partition.
const MOST_REMOVED: usize = 64;

/// The sources of results, for one list of partitions.
#[derive(Debug)]
pub struct SourceList {
    system: System,
    counts: Arc<ResultCounts>,
    stop: CancellationToken,
    present: Vec<Arc<ResultSource>>,
    /// The partitions outside the list that a request has read; unused connections are closed when there are 64.
    removed: Mutex<HashMap<String, Arc<ResultSource>>>,
}

impl SourceList {
    /// Creates the sources of a system. Each connects to Redis at its first read, and stops at `stop`.
    pub fn new(system: &System, counts: Arc<ResultCounts>, stop: CancellationToken) -> Self {
        let (system, present, removed) = (system.clone(), Vec::new(), Mutex::default());
        let mut sources = Self { system, counts, stop, present, removed };
        sources.present = sources.system.partitions().iter().map(|it| sources.source(it.clone())).collect();
        sources
    }

    /// The partitions of the list that this gate serves.
    pub fn present(&self) -> &[Arc<ResultSource>] {
        &self.present
    }

    /// Whether an earlier list may have had the partition.
    pub fn may_be_removed(&self, tag: &str) -> bool {
        let is_in_list = self.system.common().partition().tags().iter().any(|own| own == tag);
        let is_impossible = tag.is_empty() && self.system.is_on_cluster();
        !is_in_list && !is_impossible
    }

    /// The source of a removed partition. None: there is no place for another connection now.
    pub fn removed(&self, tag: &str) -> Option<Arc<ResultSource>> {
        let mut removed = self.all_removed();
        if let Some(source) = removed.get(tag) {
            return Some(Arc::clone(source));
        }
        if removed.len() >= MOST_REMOVED {
            close_idle(&mut removed);
        }
        if removed.len() >= MOST_REMOVED {
            return None;
        }
        let tags: Vec<String> =
            Some(tag).filter(|tag| !tag.is_empty()).map(str::to_owned).into_iter().collect();
        let source = self.source(self.system.with_tags(&tags).common().clone());
        removed.insert(tag.to_owned(), Arc::clone(&source));
        Some(source)
    }

    /// Closes the connections to Redis.
    pub async fn close(&self) {
        let removed: Vec<_> = self.all_removed().values().cloned().collect();
        for source in self.present.iter().chain(&removed) {
            source.close().await;
        }
    }

    fn source(&self, settings: SystemSettings) -> Arc<ResultSource> {
        let served = self.system.partitions().len();
        ResultSource::new(settings, served, Arc::clone(&self.counts), self.stop.clone())
    }

    fn all_removed(&self) -> MutexGuard<'_, HashMap<String, Arc<ResultSource>>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the connections of removed partitions that no request reads now. A request drops a partition once it reaches
/// the end of the stream, or finds no stream.
fn close_idle(removed: &mut HashMap<String, Arc<ResultSource>>) {
    let idle = removed.extract_if(|_, source| Arc::strong_count(source) == 1);
    let idle: Vec<_> = idle.map(|(_, source)| source).collect();
    tokio::spawn(async move { join_all(idle.iter().map(|source| source.close())).await });
}

//! The counts of the results that a gate serves, and their form on `/metrics`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::metrics::{
    catalog,
    families::{Families, number},
};

/// The counters of results over HTTP: present followers, results that they got, losses that they were told, and reads
/// of Redis.
#[derive(Debug, Default)]
pub struct ResultCounts {
    followers: AtomicU64,
    served: AtomicU64,
    lost: AtomicU64,
    pages: AtomicU64,
    tail_reads: AtomicU64,
}

/// A request that waits for results or reads them, as the gauge of followers counts it.
#[derive(Debug)]
pub struct CountedRequest(Arc<ResultCounts>);

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.followers.fetch_sub(1, Relaxed);
    }
}

impl ResultCounts {
    /// Counts a follower until the returned value is dropped.
    pub fn follower(self: &Arc<Self>) -> CountedRequest {
        self.followers.fetch_add(1, Relaxed);
        CountedRequest(Arc::clone(self))
    }

    /// Counts results that were sent to a follower.
    pub fn served(&self, results: usize) {
        self.served.fetch_add(results as u64, Relaxed);
    }

    /// Counts an answer that told a follower that results were lost before the follower read them.
    pub fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(super) fn page_read(&self) {
        self.pages.fetch_add(1, Relaxed);
    }

    pub(super) fn tail_read(&self) {
        self.tail_reads.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_to(&self, families: &mut Families) {
        families.one(&catalog::GATE_RESULT_FOLLOWERS, number(self.followers.load(Relaxed)));
        families.one(&catalog::GATE_RESULTS_SERVED, number(self.served.load(Relaxed)));
        families.one(&catalog::GATE_RESULTS_LOST, number(self.lost.load(Relaxed)));
        let reads = [("page", &self.pages), ("wait", &self.tail_reads)];
        let reads = reads.map(|(kind, count)| ([kind], number(count.load(Relaxed))));
        families.each(&catalog::GATE_RESULT_READS, reads);
    }
}

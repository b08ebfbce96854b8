//! How long things took or how many they were, counted in buckets: no lock, no allocation, two additions for each.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of times, in microseconds: from a round trip to the longest lock waits.
const TIMES_US: [u64; 16] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000,
];

/// Upper bounds of the sizes of batches.
const SIZES: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000];

/// Counts values, by the first bound that is not below them.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above all of them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A distribution at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Each bound, with how many values were not above it.
    pub buckets: Vec<(u64, u64)>,
    /// How many values there were.
    pub count: u64,
    /// What they are together.
    pub sum: u64,
}

impl Histogram {
    /// Of times, in microseconds.
    #[must_use]
    pub fn of_times() -> Self {
        Self::new(&TIMES_US)
    }

    /// Of the sizes of batches.
    #[must_use]
    pub fn of_sizes() -> Self {
        Self::new(&SIZES)
    }

    fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a value.
    pub fn add(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[at].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a time.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// What was counted so far.
    #[must_use]
    pub fn spread(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut up_to = self.buckets.iter().map(|bucket| {
            count += bucket.load(Relaxed);
            count
        });
        let buckets = self.bounds.iter().copied().zip(&mut up_to).collect();
        let count = up_to.last().unwrap_or_default();
        HistogramSnapshot { buckets, count, sum: self.sum.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_whose_bound_it_does_not_pass() {
        let sizes = Histogram::of_sizes();
        for value in [0, 1, 2, 1_000, 1_001, 5_000, 6_000] {
            sizes.add(value);
        }
        let spread = sizes.spread();
        assert_eq!(spread.buckets[..3], [(1, 2), (2, 3), (5, 3)]);
        assert_eq!(spread.buckets[9..], [(1_000, 4), (2_500, 5), (5_000, 6)]);
        assert_eq!((spread.count, spread.sum), (7, 13_004));
    }
}

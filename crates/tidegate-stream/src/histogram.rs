//! Histograms of times and of sizes: no lock, no allocation, two additions for each value.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The upper bounds of times, in microseconds: from one round trip to the longest lock waits.
const TIMES_US: [u64; 16] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000,
];

/// The upper bounds of batch sizes.
const SIZES: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000];

/// A histogram with fixed upper bounds. A value counts for the smallest bound that is at least the value.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One counter for each bound, and one for values above all bounds.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A copy of a histogram at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The upper bounds, each with the number of values that are at most the bound.
    pub buckets: Vec<(u64, u64)>,
    /// The number of all values in the histogram.
    pub count: u64,
    /// The sum of all values in the histogram.
    pub sum: u64,
}

impl Histogram {
    /// Creates a histogram of durations, in microseconds.
    #[must_use]
    pub fn of_times() -> Self {
        Self::new(&TIMES_US)
    }

    /// Creates a histogram of batch sizes.
    #[must_use]
    pub fn of_sizes() -> Self {
        Self::new(&SIZES)
    }

    fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Adds one value to the histogram.
    pub fn add(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[at].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Adds one duration to the histogram, in microseconds.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns a copy of the counts so far.
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

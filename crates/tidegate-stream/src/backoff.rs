//! Growing waits between retries, with jitter.

use std::time::Duration;

use rand::RngExt;

/// A waiting time that doubles with each attempt, from `min` up to `max`. Half of each wait is random, so that many
/// processes do not retry at the same time.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    attempt: u32,
}

impl Default for Backoff {
    /// Returns waits from 50 ms up to 5 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(5))
    }
}

impl Backoff {
    /// Creates a backoff whose waits are about `min` at first and at most `max` later.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, attempt: 0 }
    }

    /// Returns the next wait: a random time between half of the present upper bound and the whole bound. Then the bound
    /// doubles.
    pub fn next_wait(&mut self) -> Duration {
        let wait = wait(self.min, self.max, self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        wait
    }

    /// Starts again with the shortest wait. Call this method after an attempt that succeeded.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// Returns the wait after `attempt` attempts: a random time between half of its ceiling and the ceiling.
pub(crate) fn wait(min: Duration, max: Duration, attempt: u32) -> Duration {
    ceiling(min, max, attempt).mul_f64(rand::rng().random_range(0.5..=1.0))
}

fn ceiling(min: Duration, max: Duration, attempt: u32) -> Duration {
    min.saturating_mul(1 << attempt.min(20)).min(max).max(min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_ceiling_and_begin_anew_after_success() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = Backoff::new(min, max);
        let waits: Vec<Duration> = (0..100).map(|_| backoff.next_wait()).collect();
        assert!(waits[0] >= min / 2 && waits[0] <= min);
        assert!(waits.iter().all(|wait| *wait <= max));
        assert!(waits[50..].iter().all(|wait| *wait >= max / 2));
        backoff.reset();
        assert!(backoff.next_wait() <= min);
    }
}

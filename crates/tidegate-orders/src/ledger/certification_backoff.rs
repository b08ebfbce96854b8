//! Pauses all lanes of the process after a lost certification.
//!
//! If servers replicate by certification, transactions of several nodes that change the same row meet only at their
//! COMMITs, and all but one are rolled back. A process whose transaction was rolled back lets the other processes write
//! for a few batches. So one node at a time writes a hot voucher, although no program assigns turns.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rand::RngExt;
use tokio::time::sleep_until;

/// The longest wait, which is short because it also delays batches of other vouchers.
const LONGEST: Duration = Duration::from_secs(1);
/// The number of consecutive conflicts up to which the wait doubles.
const MOST_CONFLICTS: u32 = 3;

/// The time from which this process may write again.
#[derive(Debug, Default)]
pub(super) struct CertificationBackoff(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    conflicts: u32,
}

impl CertificationBackoff {
    /// Waits until this process may write again after a certification conflict.
    pub async fn wait(&self) {
        loop {
            let Some(until) = self.state().until.filter(|until| *until > Instant::now()) else { return };
            sleep_until(until.into()).await;
        }
    }

    /// Records that the server rolled back a transaction because of a conflict, after the transaction had run for the
    /// time `took`.
    pub fn on_conflict(&self, took: Duration) {
        let mut state = self.state();
        state.conflicts = (state.conflicts + 1).min(MOST_CONFLICTS);
        let wait = length(took, state.conflicts, rand::rng().random_range(0.5..1.5));
        let until = Instant::now() + wait;
        state.until = Some(state.until.map_or(until, |before| before.max(until)));
    }

    /// Records that a transaction was committed, so that the next conflict counts as the first conflict again.
    pub fn on_commit(&self) {
        self.state().conflicts = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time for a few batches of other processes. They take about as long as this one did; each consecutive conflict
/// allows twice as many.
fn length(took: Duration, conflicts: u32, jitter: f64) -> Duration {
    took.saturating_mul(1 << conflicts).min(LONGEST).mul_f64(jitter).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_with_the_conflicts_in_a_row_and_stays_short() {
        let took = Duration::from_millis(40);
        assert_eq!(length(took, 1, 1.0), Duration::from_millis(80));
        assert_eq!(length(took, 3, 0.5), Duration::from_millis(160));
        assert_eq!(length(Duration::from_secs(30), 3, 1.5), LONGEST);
    }

    #[tokio::test]
    async fn nobody_waits_before_the_first_conflict() {
        let backoff = CertificationBackoff::default();
        backoff.wait().await;
        let began = Instant::now();
        backoff.on_conflict(Duration::from_millis(20));
        backoff.wait().await;
        assert!(began.elapsed() >= Duration::from_millis(20), "at least half of two batches");
    }
}

//! Where servers replicate by certification, transactions of several nodes that change the same row meet only at their
//! COMMITs, and all but one of them were in vain. Whoever lost lets the others write for some batches, with all lanes of
//! the process; so one node writes a hot voucher at a time, without anybody having to say whose turn it is.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rand::RngExt;
use tokio::time::sleep_until;

/// No longer than this: the others may be of other vouchers.
const LONGEST: Duration = Duration::from_secs(1);
/// Losses in a row that still make it longer.
const MOST_LOSSES: u32 = 3;

/// When this process may write again.
#[derive(Debug, Default)]
pub(super) struct Retreat(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    losses: u32,
}

impl Retreat {
    /// Waits until it is over.
    pub async fn over(&self) {
        loop {
            let Some(until) = self.state().until.filter(|until| *until > Instant::now()) else { return };
            sleep_until(until.into()).await;
        }
    }

    /// An attempt that took so long was in vain.
    pub fn lost(&self, took: Duration) {
        let mut state = self.state();
        state.losses = (state.losses + 1).min(MOST_LOSSES);
        let wait = wait(took, state.losses, rand::rng().random_range(0.5..1.5));
        let until = Instant::now() + wait;
        state.until = Some(state.until.map_or(until, |before| before.max(until)));
    }

    /// An attempt succeeded: the next loss is the first again.
    pub fn won(&self) {
        self.state().losses = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some batches of the others, which take as long as this one did; more of them after each loss in a row.
fn wait(took: Duration, losses: u32, jitter: f64) -> Duration {
    took.saturating_mul(1 << losses).min(LONGEST).mul_f64(jitter).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retreat_grows_with_the_losses_in_a_row_and_stays_short() {
        let took = Duration::from_millis(40);
        assert_eq!(wait(took, 1, 1.0), Duration::from_millis(80));
        assert_eq!(wait(took, 3, 0.5), Duration::from_millis(160));
        assert_eq!(wait(Duration::from_secs(30), 3, 1.5), LONGEST);
    }

    #[tokio::test]
    async fn nobody_waits_who_has_lost_nothing() {
        let retreat = Retreat::default();
        retreat.over().await;
        let began = Instant::now();
        retreat.lost(Duration::from_millis(20));
        retreat.over().await;
        assert!(began.elapsed() >= Duration::from_millis(20), "at least half of two batches");
    }
}

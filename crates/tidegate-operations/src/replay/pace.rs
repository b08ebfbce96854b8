//! Limits the number of orders per second.

use std::{num::NonZeroU32, time::Duration};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// The steps in a second: with a limit, each step replays the orders of a quarter of a second.
const STEPS_A_SECOND: usize = 4;

/// Spreads orders evenly over time.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<NonZeroU32>,
    next: Instant,
}

impl Pace {
    /// Creates a pace of at most `rate` orders a second; None: no limit.
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        Self { rate, next: Instant::now() }
    }

    /// Returns the number of orders in one step, up to `most`.
    pub(super) fn step(&self, most: usize) -> usize {
        let a_second = self.rate.map_or(usize::MAX, |rate| rate.get() as usize);
        (a_second / STEPS_A_SECOND).clamp(1, most)
    }

    /// Waits until this number of orders may run. Lost time is not made up for. False: `stop` came first.
    pub(super) async fn wait_for(&mut self, orders: usize, stop: &CancellationToken) -> bool {
        let Some(rate) = self.rate else { return !stop.is_cancelled() };
        let at = self.next.max(Instant::now());
        self.next = at + Duration::from_secs_f64(orders as f64 / f64::from(rate.get()));
        stop.run_until_cancelled(sleep_until(at)).await.is_some()
    }
}

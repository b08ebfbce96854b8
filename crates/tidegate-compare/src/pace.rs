//! The speed at which a comparison reads both stores: at full speed, or too slowly to disturb a sale.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// The longest rest after one page.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The speed of a comparison: without pauses, or with pauses that leave time for other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The comparison reads without pauses, because a caller waits.
    Full,
    /// The comparison reads for a quarter of the time. After each page it pauses for three times the duration of the
    /// read.
    Quarter,
}

impl Pace {
    /// Reads one page by the given future, and then pauses as this speed demands.
    pub async fn step<T>(&self, page: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let read = page.await;
        if *self == Self::Quarter {
            tokio::time::sleep((began.elapsed() * 3).min(LONGEST_REST)).await;
        }
        read
    }
}

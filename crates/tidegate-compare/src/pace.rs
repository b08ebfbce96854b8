//! How fast both sides are read: all that is there, or so slowly that a sale beside it does not feel it.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// The longest rest after one page.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How much of the time is spent reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All of it: somebody waits.
    Full,
    /// A quarter of it: after each page, three times as long as it took is waited.
    Quarter,
}

impl Pace {
    /// Reads a page, then rests.
    pub async fn step<T>(&self, page: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let read = page.await;
        if *self == Self::Quarter {
            tokio::time::sleep((began.elapsed() * 3).min(LONGEST_REST)).await;
        }
        read
    }
}

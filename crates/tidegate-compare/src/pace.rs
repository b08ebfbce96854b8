//! The pace of reading both sides: at full speed, or too slowly to disturb a sale.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// The longest rest after one page.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The part of the time that is spent reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The whole time, because a caller waits.
    Full,
    /// A quarter of the time: after each page follows a rest three times as long as the read.
    Quarter,
}

impl Pace {
    /// Reads a page, and then rests.
    pub async fn step<T>(&self, page: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let read = page.await;
        if *self == Self::Quarter {
            tokio::time::sleep((began.elapsed() * 3).min(LONGEST_REST)).await;
        }
        read
    }
}

//! Polling with a deadline.

use std::time::{Duration, Instant};

/// Polls until the condition is true; panics after ten seconds.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

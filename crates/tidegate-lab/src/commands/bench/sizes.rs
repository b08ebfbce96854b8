//! How much is measured.

use std::time::Duration;

/// Sizes of a run.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Repetitions of what is compared, in turn.
    pub rounds: usize,
    /// Orders of one drain, and rows of one ceiling.
    pub orders: usize,
    /// How long the tutorial's consumer works, each time.
    pub tutorial: Duration,
    /// Calls of one admission.
    pub calls: usize,
}

impl Sizes {
    /// About a minute, with two MySQLs on two cores.
    pub fn quick(scale: f64) -> Self {
        Self {
            rounds: 3,
            orders: scaled(100_000, scale),
            tutorial: Duration::from_secs_f64(2.0 * scale.clamp(0.1, 1.0)),
            calls: scaled(100_000, scale),
        }
    }

    /// Under a quarter of an hour.
    pub fn full(scale: f64) -> Self {
        Self {
            rounds: 3,
            orders: scaled(300_000, scale),
            tutorial: Duration::from_secs_f64(4.0 * scale.clamp(0.1, 1.0)),
            calls: scaled(300_000, scale),
        }
    }
}

fn scaled(size: usize, scale: f64) -> usize {
    ((size as f64 * scale) as usize).max(500)
}

//! How much is measured.

use std::time::Duration;

/// Sizes of a run.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Repetitions of what is compared, in turn.
    pub rounds: usize,
    /// Orders of one drain, and rows of one ceiling.
    pub orders: usize,
    /// Orders of earlier sales in the grown tables; 0: those are left out.
    pub existing: u64,
    /// How long the tutorial's consumer works, each time.
    pub tutorial: Duration,
    /// Calls of one admission.
    pub calls: usize,
    /// Single commits, and orders of a quiet system.
    pub alone: usize,
    /// How long orders arrive at each rate.
    pub latency: Duration,
    /// Entries before a worker whose memory is measured; 0: left out.
    pub backlog: usize,
    /// Whether every shape of worker is measured.
    pub shapes: Shapes,
}

/// Which shapes of workers are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// The default.
    Default,
    /// All of them.
    All,
}

impl Sizes {
    /// About a minute, with two MySQLs on two cores.
    pub fn quick(scale: f64) -> Self {
        Self {
            rounds: 3,
            orders: scaled(100_000, scale),
            existing: 0,
            tutorial: Duration::from_secs_f64(0.7 * scale.clamp(0.3, 1.0)),
            calls: scaled(50_000, scale),
            alone: scaled(50, scale.max(0.1)),
            latency: Duration::from_secs_f64(2.0 * scale.clamp(0.1, 1.0)),
            backlog: 0,
            shapes: Shapes::Default,
        }
    }

    /// Under a quarter of an hour.
    pub fn full(scale: f64) -> Self {
        Self {
            rounds: 3,
            orders: scaled(300_000, scale),
            existing: scaled(3_000_000, scale) as u64,
            tutorial: Duration::from_secs_f64(2.0 * scale.clamp(0.1, 1.0)),
            calls: scaled(300_000, scale),
            alone: scaled(200, scale.max(0.1)),
            latency: Duration::from_secs_f64(10.0 * scale.clamp(0.03, 1.0)),
            backlog: scaled(1_000_000, scale),
            shapes: Shapes::All,
        }
    }
}

fn scaled(size: usize, scale: f64) -> usize {
    (size as f64 * scale) as usize
}

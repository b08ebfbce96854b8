//! The sizes of the measurements.

use std::time::Duration;

/// The sizes of a run.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The repetitions of compared measurements, in turn.
    pub rounds: usize,
    /// The orders of one drain, and the rows of one ceiling.
    pub orders: usize,
    /// The orders of earlier sales in the grown tables; 0: no grown tables.
    pub existing: u64,
    /// Other sizes of the grown tables, to see the effect of their size on a drain.
    pub growing: Vec<u64>,
    /// The duration of each run of the tutorial's consumer.
    pub tutorial: Duration,
    /// The calls of one admission.
    pub calls: usize,
    /// The connections that one gate holds.
    pub idle: usize,
    /// The single commits, and the orders of a quiet system.
    pub alone: usize,
    /// The time for which orders arrive at each rate.
    pub latency: Duration,
    /// The backlog of a worker whose memory is measured; 0: not measured.
    pub backlog: usize,
    /// Whether every shape of worker is measured.
    pub shapes: Shapes,
    /// The orders of one measurement of the cost of an order.
    pub cost: usize,
    pub trouble: TroubleSizes,
    pub books: BooksSizes,
}

/// The sizes of the section "Books".
#[derive(Clone, Debug)]
pub struct BooksSizes {
    /// The orders of one voucher that are compared and filled in.
    pub orders: Vec<usize>,
    /// The repetitions of a drain during a comparison.
    pub rounds: usize,
    /// The orders that exist before the drain during a comparison.
    pub existing: usize,
    /// The orders that drain during a comparison; 0: not measured.
    pub beside: usize,
}

/// The sizes of the section "Trouble".
#[derive(Clone, Debug)]
pub struct TroubleSizes {
    /// The repetitions of each case.
    pub rounds: usize,
    /// The entries of each case.
    pub entries: usize,
    /// Other numbers of entries, once each, with the cases that are measured with them.
    pub growth: Vec<(usize, Growing)>,
    /// The number of entries; every second entry is for one locked voucher.
    pub held_entries: usize,
    /// The number of entries; every second entry is for a voucher that is locked for a long time.
    pub long_hold_entries: usize,
    /// The duration of the long lock.
    pub hold: Duration,
    /// The entries with a field of 64 KiB.
    pub large_entries: usize,
    /// The entries of one voucher for the workers of a cluster.
    pub cluster_entries: usize,
}

/// The cases that are measured at a larger size.
#[derive(Clone, Copy, Debug)]
pub enum Growing {
    /// The cases that search for earlier rows or refusals of a voucher.
    ThatCouldGrow,
    /// The case whose share is promised at any size.
    PromisedFlat,
}

/// The shapes of workers that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Only the default shape.
    Default,
    /// All shapes of workers.
    All,
}

impl Sizes {
    /// A short run: about two minutes, with two MySQLs on two cores.
    pub fn quick(scale: f64) -> Self {
        Self {
            rounds: 3,
            orders: scaled(100_000, scale),
            existing: 0,
            growing: Vec::new(),
            tutorial: Duration::from_secs_f64(0.7 * scale.clamp(0.3, 1.0)),
            calls: scaled(50_000, scale),
            idle: scaled(20_000, scale),
            alone: scaled(50, scale.max(0.1)),
            latency: Duration::from_secs_f64(2.0 * scale.clamp(0.1, 1.0)),
            backlog: 0,
            shapes: Shapes::Default,
            cost: scaled(100_000, scale),
            trouble: TroubleSizes {
                rounds: 1,
                entries: scaled(30_000, scale),
                growth: Vec::new(),
                held_entries: scaled(20_000, scale),
                long_hold_entries: scaled(20_000, scale),
                hold: Duration::from_secs_f64(8.0 * scale.clamp(0.1, 1.0)),
                large_entries: scaled(1_500, scale),
                cluster_entries: scaled(10_000, scale),
            },
            books: BooksSizes {
                orders: vec![scaled(100_000, scale)],
                rounds: 1,
                existing: scaled(1_000_000, scale),
                beside: scaled(100_000, scale),
            },
        }
    }

    /// A full run: about half an hour, including partitions.
    pub fn full(scale: f64) -> Self {
        let rounds = rounds(3, scale);
        Self {
            rounds,
            orders: scaled(300_000, scale),
            existing: scaled(3_000_000, scale) as u64,
            growing: [1_000_000, 10_000_000].map(|orders| scaled(orders, scale) as u64).to_vec(),
            tutorial: Duration::from_secs_f64(2.0 * scale.clamp(0.1, 1.0)),
            calls: scaled(300_000, scale),
            idle: scaled(20_000, scale),
            alone: scaled(200, scale.max(0.1)),
            latency: Duration::from_secs_f64(10.0 * scale.clamp(0.03, 1.0)),
            backlog: scaled(1_000_000, scale),
            shapes: Shapes::All,
            cost: scaled(300_000, scale),
            trouble: TroubleSizes {
                rounds,
                entries: scaled(60_000, scale),
                growth: vec![
                    (scaled(300_000, scale), Growing::ThatCouldGrow),
                    (scaled(1_000_000, scale), Growing::PromisedFlat),
                ],
                held_entries: scaled(300_000, scale),
                long_hold_entries: scaled(40_000, scale),
                // This is longer than the default of `admin.stuck_after_ms`.
                hold: Duration::from_secs_f64(150.0 * scale.clamp(0.01, 1.0)),
                large_entries: scaled(6_000, scale),
                cluster_entries: scaled(40_000, scale),
            },
            books: BooksSizes {
                orders: vec![scaled(1_000_000, scale), scaled(10_000_000, scale)],
                rounds,
                existing: scaled(2_000_000, scale),
                // A comparison must last longer than the drain during it.
                beside: if is_tiny(scale) { 0 } else { scaled(300_000, scale) },
            },
        }
    }
}

impl Sizes {
    /// Large sizes for the section "Trouble": about a quarter of an hour.
    pub fn trouble(scale: f64) -> Self {
        let full = Self::full(scale);
        let growth = vec![
            (scaled(60_000, scale), Growing::ThatCouldGrow),
            (scaled(1_000_000, scale), Growing::PromisedFlat),
        ];
        let trouble = TroubleSizes { entries: scaled(300_000, scale), growth, ..full.trouble.clone() };
        Self { trouble, ..full }
    }

    /// Large sizes for the cost of an order: about five minutes.
    pub fn cost(scale: f64) -> Self {
        Self { cost: scaled(900_000, scale), ..Self::full(scale) }
    }

    /// The sizes for two programs in turn: about four minutes for each MySQL.
    pub fn compare(scale: f64) -> Self {
        Self { rounds: rounds(5, scale), calls: scaled(100_000, scale), ..Self::full(scale) }
    }
}

/// The number of rounds for this share of the usual sizes.
pub fn rounds(usual: usize, scale: f64) -> usize {
    if is_tiny(scale) { 1 } else { usual }
}

/// Whether a run only checks that everything works.
fn is_tiny(scale: f64) -> bool {
    scale < 0.05
}

fn scaled(size: usize, scale: f64) -> usize {
    (size as f64 * scale) as usize
}

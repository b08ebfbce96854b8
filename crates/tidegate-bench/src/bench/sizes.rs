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
    /// Other sizes of those tables, to see how the drain goes as they grow.
    pub growing: Vec<u64>,
    /// How long the tutorial's consumer works, each time.
    pub tutorial: Duration,
    /// Calls of one admission.
    pub calls: usize,
    /// Connections that one gate holds.
    pub idle: usize,
    /// Single commits, and orders of a quiet system.
    pub alone: usize,
    /// How long orders arrive at each rate.
    pub latency: Duration,
    /// Entries before a worker whose memory is measured; 0: left out.
    pub backlog: usize,
    /// Whether every shape of worker is measured.
    pub shapes: Shapes,
    /// Orders of one measurement of what an order costs.
    pub cost: usize,
    pub trouble: TroubleSizes,
    pub books: BooksSizes,
}

/// Sizes of the section "Books".
#[derive(Clone, Debug)]
pub struct BooksSizes {
    /// Orders of one voucher that are compared and filled in.
    pub orders: Vec<usize>,
    /// Repetitions of what goes on beside a comparison.
    pub rounds: usize,
    /// Orders that are there before, beside a sale.
    pub existing: usize,
    /// Orders that drain beside a comparison; 0: left out.
    pub beside: usize,
}

/// Sizes of the section "Trouble".
#[derive(Clone, Debug)]
pub struct TroubleSizes {
    /// Repetitions of each case.
    pub rounds: usize,
    /// Entries of each case.
    pub entries: usize,
    /// Other numbers of entries, once each, with the cases that are measured with them.
    pub growth: Vec<(usize, Growing)>,
    /// Entries of which half are of one voucher that is held.
    pub held_entries: usize,
    /// Entries of which half are of vouchers that are held for long.
    pub long_hold_entries: usize,
    /// How long those are held.
    pub hold: Duration,
    /// Entries with a field of 64 KiB.
    pub large_entries: usize,
    /// Entries of one voucher before the workers of a cluster.
    pub cluster_entries: usize,
}

/// Which cases are measured at a larger size.
#[derive(Clone, Copy, Debug)]
pub enum Growing {
    /// Those that look for earlier rows or refusals of a voucher.
    ThatCouldGrow,
    /// The one whose share is promised at any size.
    PromisedFlat,
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
    /// About two minutes, with two MySQLs on two cores.
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

    /// About half an hour, partitions included.
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
                // Longer than the default of `admin.stuck_after_ms`.
                hold: Duration::from_secs_f64(150.0 * scale.clamp(0.01, 1.0)),
                large_entries: scaled(6_000, scale),
                cluster_entries: scaled(40_000, scale),
            },
            books: BooksSizes {
                orders: vec![scaled(1_000_000, scale), scaled(10_000_000, scale)],
                rounds,
                existing: scaled(2_000_000, scale),
                // A comparison must outlast the orders beside it.
                beside: if is_tiny(scale) { 0 } else { scaled(300_000, scale) },
            },
        }
    }
}

impl Sizes {
    /// Large ones for the section "Trouble": about a quarter of an hour.
    pub fn trouble(scale: f64) -> Self {
        let full = Self::full(scale);
        let growth = vec![
            (scaled(60_000, scale), Growing::ThatCouldGrow),
            (scaled(1_000_000, scale), Growing::PromisedFlat),
        ];
        let trouble = TroubleSizes { entries: scaled(300_000, scale), growth, ..full.trouble.clone() };
        Self { trouble, ..full }
    }

    /// Large ones for what an order costs: about five minutes.
    pub fn cost(scale: f64) -> Self {
        Self { cost: scaled(900_000, scale), ..Self::full(scale) }
    }

    /// Two programs in turn: about four minutes for each MySQL.
    pub fn compare(scale: f64) -> Self {
        Self { rounds: rounds(5, scale), calls: scaled(100_000, scale), ..Self::full(scale) }
    }
}

/// How many rounds a run of this share of the usual sizes has.
pub fn rounds(usual: usize, scale: f64) -> usize {
    if is_tiny(scale) { 1 } else { usual }
}

/// Whether a run only shows that everything runs.
fn is_tiny(scale: f64) -> bool {
    scale < 0.05
}

fn scaled(size: usize, scale: f64) -> usize {
    (size as f64 * scale) as usize
}

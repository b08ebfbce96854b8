//! The results of a run, exactly as the JSON file has them.

pub mod books;
pub mod cost;
pub mod gate;
pub mod limits;
pub mod trouble;

use serde::{Deserialize, Serialize};

use self::{
    books::Books,
    cost::{Cost, CostResults},
    trouble::Trouble,
};
use super::machine::Machine;

/// The version of the format; raised when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub schema: u32,
    pub tidegate: String,
    pub commit: String,
    pub mode: String,
    /// The share of the usual sizes; figures of a run below 1 mean nothing.
    pub scale: f64,
    pub started: String,
    pub took_s: f64,
    pub machine: Machine,
    /// The results of each MySQL.
    pub servers: Vec<ServerResults>,
    /// The servers that were left out, and why.
    pub left_out: Vec<String>,
}

/// Everything that was measured with one MySQL. None: not part of this run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerResults {
    pub server: ServerInfo,
    pub ceiling: Option<Ceiling>,
    pub tutorial: Option<Tutorial>,
    #[serde(default)]
    pub drains: Vec<Drain>,
    pub admission: Option<AdmissionResults>,
    #[serde(default)]
    pub limits: Option<limits::LimitsResults>,
    #[serde(default)]
    pub gate: Option<gate::GateResults>,
    pub latency: Option<Latency>,
    pub memory: Option<Memory>,
    pub cost: Option<CostResults>,
    pub trouble: Option<Trouble>,
    #[serde(default)]
    pub books: Option<Books>,
}

impl ServerResults {
    /// The kind of the server: `MariaDB` or `MySQL`.
    pub fn kind(&self) -> &str {
        self.server.mysql.split(' ').next().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerInfo {
    pub redis: String,
    pub redis_settings: Vec<(String, String)>,
    pub mysql: String,
    pub mysql_settings: Vec<(String, String)>,
}

/// The repetitions of a rate, in the order in which they were made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rate {
    pub median: f64,
    pub runs: Vec<f64>,
}

impl Rate {
    pub fn of(runs: Vec<f64>) -> Self {
        Self { median: median(&runs), runs }
    }
}

/// The middle value; for an even number, the mean of the two in the middle; 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The rows per second of bare INSERTs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ceiling {
    pub tutorial_tables: Rate,
    pub our_tables: Rate,
}

/// The orders per second of the tutorial's consumer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tutorial {
    pub workers_1: Rate,
    pub workers_16: Rate,
}

/// One way to drain a stream, with its results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    pub processes: usize,
    pub lanes: usize,
    pub batch: usize,
    pub vouchers: i64,
    /// The orders that the table held before.
    pub existing: u64,
    /// The orders that each repetition drained.
    pub orders: usize,
    pub orders_per_s: Rate,
    /// The cost in the repetition with the median speed.
    pub cost: Cost,
    /// The peak memory of a worker, in KiB.
    pub worker_peak_kib: u64,
}

impl Drain {
    pub fn name(&self) -> String {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let Self { processes, lanes, batch, vouchers, existing, .. } = self;
        let mut name = format!(
            "drain, {processes} process{} x {lanes} lane{} x {batch}, {vouchers} voucher{}",
            if *processes == 1 { "" } else { "es" },
            plural(*lanes),
            if *vouchers == 1 { "" } else { "s" },
        );
        if *existing > 0 {
            name += &format!(", into {existing} orders");
        }
        name
    }
}

/// The results of the gate, and of the scripts that it is compared with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AdmissionResults {
    pub admitted: Admission,
    pub sold_out: Admission,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Admission {
    pub gate: Calls,
    pub bare_script: Calls,
    pub tutorial_script: Calls,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Calls {
    pub per_s: Rate,
    pub redis_cpu_us: Rate,
}

/// The latencies in milliseconds: from the time an order is due until it is acknowledged, unless stated otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// The time of one durable INSERT after the other; the better of two series, before and after the other
    /// measurements.
    pub commit_ms: f64,
    /// The time of such an INSERT with pauses between, in which the machine becomes idle.
    pub quiet_commit_ms: f64,
    /// The time of one order in a quiet system, from XADD until another session can read its row.
    pub alone_committed_ms: f64,
    /// The time of one order in a quiet system, until it is acknowledged.
    pub alone_acknowledged_ms: f64,
    pub rates: Vec<AtRate>,
}

/// The factor above the lowest p99 at which p99 counts as risen.
const KNEE: f64 = 10.0;

impl Latency {
    /// The best time of a durable commit, the unit of the targets.
    pub fn best_commit_ms(&self) -> f64 {
        self.commit_ms.min(self.quiet_commit_ms)
    }

    /// The knee of this run.
    pub fn knee(&self) -> Option<f64> {
        Self::knee_of(&self.rates)
    }

    /// The knee: the last rate before p99 stays above [`KNEE`] times its lowest value, or before orders are not done in
    /// time. None: the rates end before it. A slow moment of the disk at a low rate is no knee.
    pub fn knee_of(rates: &[AtRate]) -> Option<f64> {
        let done = rates.iter().filter(|at| at.unfinished == 0);
        let ground = done.map(|at| at.p99_ms).fold(f64::INFINITY, f64::min);
        let is_flat = |at: &AtRate| at.unfinished == 0 && at.p99_ms <= KNEE * ground;
        let last = rates.iter().rposition(is_flat)?;
        (last + 1 < rates.len()).then(|| rates[last].rate)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AtRate {
    /// The rate, in orders a second.
    pub rate: f64,
    pub orders: usize,
    /// The orders that were not acknowledged long after the last one was sent; the quantiles do not include them.
    pub unfinished: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// The lateness of the sender itself, which is part of the latencies.
    pub sent_late_p99_ms: f64,
}

/// The peak memory of a worker that drained a long stream, and of a worker that drained a tenth of that stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    pub backlog: usize,
    pub peak_kib: u64,
    pub tenth_peak_kib: u64,
    pub orders_per_s: f64,
}

#[cfg(test)]
mod tests {
    use super::{AtRate, Latency};

    #[test]
    fn the_knee_is_before_the_rates_whose_p99_stays_high() {
        let at = |(rate, p99_ms, unfinished)| AtRate { rate, p99_ms, unfinished, ..AtRate::default() };
        let mut rates = [(100.0, 2.0, 0), (1_000.0, 25.0, 0), (5_000.0, 5.0, 0)].map(at).to_vec();
        assert_eq!(Latency::knee_of(&rates), None, "a slow moment is no knee");
        rates.push(at((20_000.0, 1.0, 7)));
        assert_eq!(Latency::knee_of(&rates), Some(5_000.0), "its quantiles know nothing of seven orders");
        assert_eq!(Latency::knee_of(&[]), None);
    }
}

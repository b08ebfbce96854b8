//! The cost of an order; a part of the JSON file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Rate;

/// The cost per order. Redis' CPU time is that of the whole process, including the writing of its append-only file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    pub redis_cpu_us: f64,
    pub mysql_cpu_us: f64,
    pub worker_cpu_us: f64,
    /// The commands that Redis ran, including those within scripts.
    pub redis_commands: f64,
    /// The statements that MySQL ran (`Questions`), including BEGIN and COMMIT.
    pub mysql_statements: f64,
    pub redis_bytes_in: f64,
    pub redis_bytes_out: f64,
    pub mysql_bytes_in: f64,
    pub mysql_bytes_out: f64,
    pub mysql_commits: f64,
    /// The bytes that InnoDB wrote to its redo log.
    #[serde(default)]
    pub redo_log_bytes: f64,
    /// The bytes by which the binary log grew; 0 without one.
    #[serde(default)]
    pub binary_log_bytes: f64,
    /// The bytes by which Redis' append-only file grew.
    #[serde(default)]
    pub append_only_bytes: f64,
    /// Redis' commands by name, per order.
    pub redis_commands_by_name: BTreeMap<String, f64>,
}

impl Cost {
    /// The processor time of all processes.
    pub fn all_cpu_us(&self) -> f64 {
        self.redis_cpu_us + self.mysql_cpu_us + self.worker_cpu_us
    }
}

/// Two ways to write the same number of orders, in turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CostResults {
    pub orders: usize,
    /// The inserts of one connection into the tutorial's table, 1000 rows each; its "worker" is the sender.
    pub bare_insert: CostOf,
    /// A drain with default settings.
    pub ours: CostOf,
    /// The processor time of all processes of a drain, as a multiple of the time that a bare insert takes in MySQL.
    pub multiple: Rate,
}

/// The figures per order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CostOf {
    pub orders_per_s: Rate,
    pub mysql_cpu_us: Rate,
    pub redis_cpu_us: Rate,
    pub worker_cpu_us: Rate,
    pub all_cpu_us: Rate,
    pub redo_log_bytes: Rate,
    pub binary_log_bytes: Rate,
}

impl CostOf {
    pub fn of(runs: &[(f64, Cost)]) -> Self {
        let rate = |value: fn(&Cost) -> f64| Rate::of(runs.iter().map(|(_, cost)| value(cost)).collect());
        Self {
            orders_per_s: Rate::of(runs.iter().map(|(per_s, _)| *per_s).collect()),
            mysql_cpu_us: rate(|cost| cost.mysql_cpu_us),
            redis_cpu_us: rate(|cost| cost.redis_cpu_us),
            worker_cpu_us: rate(|cost| cost.worker_cpu_us),
            all_cpu_us: rate(Cost::all_cpu_us),
            redo_log_bytes: rate(|cost| cost.redo_log_bytes),
            binary_log_bytes: rate(|cost| cost.binary_log_bytes),
        }
    }
}

//! The gate over HTTP.

use serde::{Deserialize, Serialize};

use super::{AtRate, Rate};

/// In one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GateResults {
    /// Connections at once, each with one request on its way.
    pub callers: usize,
    /// Orders that are admitted.
    pub gate: HttpCalls,
    /// One GET of Redis a request.
    pub bare_handler: HttpCalls,
    /// The gate at half of its rate; milliseconds from due to answered.
    pub at_half: AtRate,
    pub idle: IdleConnections,
}

impl GateResults {
    /// The gate's rate against that of the bare handler.
    pub fn against_bare_handler(&self) -> f64 {
        self.gate.per_s.median / self.bare_handler.per_s.median
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpCalls {
    pub per_s: Rate,
    /// Of the process that is asked, for one call.
    pub server_cpu_us: Rate,
    /// Of Redis, for one call.
    pub redis_cpu_us: Rate,
}

/// Connections of callers who have asked once, held by one gate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IdleConnections {
    pub wanted: usize,
    /// That a process may have open here.
    pub most_files: usize,
    pub connections: usize,
    /// What the gate held before, and with them.
    pub before_kib: u64,
    pub held_kib: u64,
    /// Of a caller before they came, and beside them.
    pub beside_alone_p99_ms: f64,
    pub beside_p99_ms: f64,
    pub beside_max_ms: f64,
}

impl IdleConnections {
    /// What one of them takes.
    pub fn kib_each(&self) -> f64 {
        (self.held_kib.saturating_sub(self.before_kib)) as f64 / self.connections as f64
    }
}

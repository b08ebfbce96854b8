//! The results of the gate over HTTP.

use serde::{Deserialize, Serialize};

use super::{AtRate, Rate};

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GateResults {
    /// The concurrent connections, each with one request in flight.
    pub callers: usize,
    /// The figures of the gate, with orders that are admitted.
    pub gate: HttpCalls,
    /// The figures of the bare handler, with one GET of Redis for each request.
    pub bare_handler: HttpCalls,
    /// The gate at half of its rate; milliseconds from due to answered.
    pub at_half: AtRate,
    pub idle: IdleConnections,
}

impl GateResults {
    /// The gate's rate, as a share of that of the bare handler.
    pub fn against_bare_handler(&self) -> f64 {
        self.gate.per_s.median / self.bare_handler.per_s.median
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpCalls {
    pub per_s: Rate,
    /// The CPU time of the server process for one call.
    pub server_cpu_us: Rate,
    /// Redis' CPU time for one call.
    pub redis_cpu_us: Rate,
}

/// The connections of clients that have sent one request, held by one gate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IdleConnections {
    pub wanted: usize,
    /// The most files that a process may have open here.
    pub most_files: usize,
    pub connections: usize,
    /// The memory of the gate before these connections, and with them.
    pub before_kib: u64,
    pub held_kib: u64,
    /// The latency of an active client before these connections, and with them.
    pub beside_alone_p99_ms: f64,
    pub beside_p99_ms: f64,
    pub beside_max_ms: f64,
}

impl IdleConnections {
    /// The memory of one connection.
    pub fn kib_each(&self) -> f64 {
        (self.held_kib.saturating_sub(self.before_kib)) as f64 / self.connections as f64
    }
}

//! The table at the top of the report: the figures for readers of README, a column for each MySQL.

use std::fmt::Write;

use crate::bench::{
    headlines::show,
    results::{Drain, Results, ServerResults},
};

/// The loads whose latency is shown, in orders a second.
const LOADS: [f64; 2] = [1_000.0, 5_000.0];

/// The table, without rows that no server has a figure for.
pub fn summary(results: &Results) -> String {
    let servers = &results.servers;
    let names: Vec<&str> = servers.iter().map(|server| server.server.mysql.as_str()).collect();
    let mut text =
        format!("\n## In short\n\n| | {} |\n|---|{}\n", names.join(" | "), "--:|".repeat(names.len()));
    let mut row = |name: &str, of: &dyn Fn(&ServerResults) -> Option<String>| {
        let cells: Vec<Option<String>> = servers.iter().map(of).collect();
        if cells.iter().any(Option::is_some) {
            let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or("-".to_owned())).collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
    };
    row("orders a second", &|server| Some(show(rate(server)?)));
    row("multiple of the tutorial's consumer with 16 workers", &|server| {
        Some(format!("{} x", show(rate(server)? / server.tutorial.as_ref()?.workers_16.median)))
    });
    for load in LOADS {
        row(&format!("latency at {} orders/s, p50 and p99", show(load)), &|server| {
            let at =
                server.latency.as_ref()?.rates.iter().find(|at| at.rate == load && at.unfinished == 0)?;
            Some(format!("{} and {} ms", show(at.p50_ms), show(at.p99_ms)))
        });
    }
    row("knee: the highest load whose p99 is low", &|server| {
        let knee = server.latency.as_ref()?.knee()?;
        Some(format!("{} orders/s", show(knee)))
    });
    row("a worker's peak memory", &|server| {
        Some(format!("{} MiB", show(default(server)?.worker_peak_kib as f64 / 1024.0)))
    });
    row("processor time an order: MySQL, Redis and worker", &|server| {
        Some(format!("{} µs", show(default(server)?.cost.all_cpu_us())))
    });
    text
}

/// The drain with default settings.
fn default(server: &ServerResults) -> Option<&Drain> {
    server.drains.first()
}

fn rate(server: &ServerResults) -> Option<f64> {
    Some(default(server)?.orders_per_s.median)
}

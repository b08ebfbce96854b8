//! The section of the report on the gate over HTTP.

use std::fmt::Write;

use crate::bench::{
    headlines::show,
    results::{
        ServerResults,
        gate::{GateResults, IdleConnections},
    },
};

pub fn gate(server: &ServerResults) -> String {
    let Some(found) = &server.gate else { return String::new() };
    let GateResults { callers, gate, bare_handler, at_half, idle } = found;
    let mut text = format!(
        "\n### The gate over HTTP\n\n{callers} callers at once.\n\n| | calls/s | runs | server µs | Redis µs |\n|---|--:|---|--:|--:|\n"
    );
    for (name, calls) in [("the gate, admitted", gate), ("a bare handler, one GET of Redis", bare_handler)] {
        let [per_s, server_us, redis_us] =
            [&calls.per_s, &calls.server_cpu_us, &calls.redis_cpu_us].map(|rate| show(rate.median));
        let runs: Vec<String> = calls.per_s.runs.iter().copied().map(show).collect();
        let _ = writeln!(text, "| {name} | {per_s} | {} | {server_us} | {redis_us} |", runs.join(" · "));
    }
    let [rate, p50, p99, p999, max, late] = [
        at_half.rate,
        at_half.p50_ms,
        at_half.p99_ms,
        at_half.p999_ms,
        at_half.max_ms,
        at_half.sent_late_p99_ms,
    ]
    .map(show);
    let _ = writeln!(
        text,
        "\nAt half of its rate, {rate}/s in an open loop, an answer came after {p50} ms (p50), {p99} ms (p99), {p999} ms (p99.9), \
         {max} ms at most; the sender itself was {late} ms late (p99)."
    );
    text + &idle_connections(idle)
}

fn idle_connections(idle: &IdleConnections) -> String {
    let mib = |kib: u64| show(kib as f64 / 1024.0);
    let [each, alone, beside, most] =
        [idle.kib_each(), idle.beside_alone_p99_ms, idle.beside_p99_ms, idle.beside_max_ms].map(show);
    let mut text = format!(
        "\n{} idle connections, each of which had asked once, took one gate from {} to {} MiB: {each} KiB each. A caller beside them \
         was answered within {beside} ms (p99; {alone} ms before they came), {most} ms at most.\n",
        idle.connections,
        mib(idle.before_kib),
        mib(idle.held_kib)
    );
    if idle.connections < idle.wanted {
        let IdleConnections { wanted, most_files, .. } = idle;
        let _ = writeln!(
            text,
            "\nThis machine allows a process {most_files} open files at most, so {wanted} were not possible."
        );
    }
    text
}

//! The figures of a run as one flat list: for the terminal, and for comparing two runs.

use super::results::{Admission, Drain, Latency, Results, ServerResults};

/// One figure.
#[derive(Clone, Debug)]
pub struct Headline {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
}

pub fn of(results: &Results) -> Vec<Headline> {
    let mut lines = Vec::new();
    for server in &results.servers {
        let mut put = |name: &str, value: f64, unit: &'static str| {
            lines.push(Headline { name: format!("{}: {name}", server.kind()), value, unit });
        };
        writers(server, &mut put);
        if let Some(admission) = &server.admission {
            of_admission("admission", &admission.admitted, &mut put);
            of_admission("refusal", &admission.sold_out, &mut put);
        }
        if let Some(latency) = &server.latency {
            of_latency(latency, &mut put);
        }
        if let Some(memory) = &server.memory {
            let name = format!("worker's peak memory, backlog of {}", memory.backlog);
            put(&name, memory.peak_kib as f64 / 1024.0, "MiB");
        }
    }
    lines
}

type Put<'a> = &'a mut dyn FnMut(&str, f64, &'static str);

fn writers(server: &ServerResults, put: Put) {
    if let Some(ceiling) = &server.ceiling {
        put("ceiling (a), the tutorial's tables", ceiling.tutorial_tables.median, "rows/s");
        put("ceiling (b), our tables", ceiling.our_tables.median, "rows/s");
    }
    if let Some(tutorial) = &server.tutorial {
        put("tutorial's consumer, 1 worker", tutorial.workers_1.median, "orders/s");
        put("tutorial's consumer, 16 workers", tutorial.workers_16.median, "orders/s");
    }
    for drain in &server.drains {
        let name = drain.name();
        put(&name, drain.orders_per_s.median, "orders/s");
    }
    if let Some(Drain { cost, .. }) = server.drains.first() {
        put("an order costs Redis", cost.redis_cpu_us, "µs CPU");
        put("an order costs MySQL", cost.mysql_cpu_us, "µs CPU");
        put("an order costs the worker", cost.worker_cpu_us, "µs CPU");
        put("an order is Redis commands", cost.redis_commands, "");
        put("an order is MySQL statements", cost.mysql_statements, "");
        put("an order is bytes to and from Redis", cost.redis_bytes_in + cost.redis_bytes_out, "bytes");
        put("an order is bytes to and from MySQL", cost.mysql_bytes_in + cost.mysql_bytes_out, "bytes");
    }
}

fn of_admission(what: &str, found: &Admission, put: Put) {
    let ways = [
        ("the gate", &found.gate),
        ("its bare script", &found.bare_script),
        ("the tutorial's bare script", &found.tutorial_script),
    ];
    for (way, calls) in ways {
        put(&format!("{what}, {way}"), calls.per_s.median, "calls/s");
        put(&format!("{what}, {way}, costs Redis"), calls.redis_cpu_us.median, "µs CPU");
    }
}

fn of_latency(latency: &Latency, put: Put) {
    put("one durable commit", latency.commit_ms, "ms");
    put("one durable commit after a pause", latency.quiet_commit_ms, "ms");
    put("one order alone, until committed", latency.alone_committed_ms, "ms");
    put("one order alone, until acknowledged", latency.alone_acknowledged_ms, "ms");
    for at in &latency.rates {
        for (what, ms) in [("p50", at.p50_ms), ("p99", at.p99_ms), ("p99.9", at.p999_ms), ("max", at.max_ms)]
        {
            put(&format!("{what} at {} orders/s", at.rate), ms, "ms");
        }
        if at.unfinished > 0 {
            put(&format!("NOT DONE in time at {} orders/s", at.rate), at.unfinished as f64, "orders");
        }
    }
}

/// Three digits that count, whatever the size.
pub fn show(value: f64) -> String {
    match value.abs() {
        infinite if infinite.is_infinite() => "∞".to_owned(),
        thousands if thousands >= 1_000.0 => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at) % 3 == 0 {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        hundreds if hundreds >= 100.0 => format!("{value:.0}"),
        tens if tens >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        let shown = [0.004, 6.66, 16.31, 123.4, 1_234.0, 123_456.7, 1_234_567.0].map(show);
        assert_eq!(shown, ["0.00", "6.66", "16.3", "123", "1,234", "123,457", "1,234,567"]);
    }
}

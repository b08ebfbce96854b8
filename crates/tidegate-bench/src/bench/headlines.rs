//! The figures of a run as one flat list: for the terminal, and for comparing two runs.

use super::results::{
    Admission, Calls, Drain, Latency, Results, ServerResults,
    books::Books,
    cost::CostResults,
    gate::{GateResults, HttpCalls},
    trouble::Trouble,
};

/// One figure of a run.
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
        if let Some(limits) = &server.limits {
            put("an admission under three limits costs Redis", limits.three.redis_cpu_us.median, "µs CPU");
            put("a refusal by a limit costs Redis", limits.refused_by_limit.redis_cpu_us.median, "µs CPU");
        }
        if let Some(gate) = &server.gate {
            of_gate(gate, &mut put);
        }
        if let Some(latency) = &server.latency {
            of_latency(latency, &mut put);
        }
        if let Some(memory) = &server.memory {
            let name = format!("worker's peak memory, backlog of {}", memory.backlog);
            put(&name, memory.peak_kib as f64 / 1024.0, "MiB");
        }
        if let Some(cost) = &server.cost {
            of_cost(cost, &mut put);
        }
        if let Some(trouble) = &server.trouble {
            of_trouble(trouble, &mut put);
        }
        if let Some(books) = &server.books {
            of_books(books, &mut put);
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

/// The figures of one of two programs: the cost of an order, of its script, if that is known, and of its gate.
pub fn of_program(cost: &CostResults, script: Option<[Calls; 2]>, gate: &HttpCalls) -> Vec<Headline> {
    let mut lines = Vec::new();
    let mut put = |name: &str, value: f64, unit: &'static str| {
        lines.push(Headline { name: name.to_owned(), value, unit });
    };
    of_cost(cost, &mut put);
    if let Some([admission, refusal]) = &script {
        of_calls("admission, its bare script", admission, &mut put);
        of_calls("refusal, its bare script", refusal, &mut put);
    }
    of_http("the gate over HTTP", gate, &mut put);
    lines
}

fn of_admission(what: &str, found: &Admission, put: Put) {
    let ways = [
        ("the gate", &found.gate),
        ("its bare script", &found.bare_script),
        ("the tutorial's bare script", &found.tutorial_script),
    ];
    for (way, calls) in ways {
        of_calls(&format!("{what}, {way}"), calls, put);
    }
}

fn of_calls(name: &str, calls: &Calls, put: Put) {
    put(name, calls.per_s.median, "calls/s");
    put(&format!("{name}, costs Redis"), calls.redis_cpu_us.median, "µs CPU");
}

fn of_http(who: &str, calls: &HttpCalls, put: Put) {
    put(who, calls.per_s.median, "calls/s");
    put(&format!("{who}, costs its process"), calls.server_cpu_us.median, "µs CPU");
    put(&format!("{who}, costs Redis"), calls.redis_cpu_us.median, "µs CPU");
}

fn of_gate(found: &GateResults, put: Put) {
    for (who, calls) in [("the gate over HTTP", &found.gate), ("a bare HTTP handler", &found.bare_handler)] {
        of_http(who, calls, put);
    }
    let at = &found.at_half;
    for (what, ms) in [("p50", at.p50_ms), ("p99", at.p99_ms), ("p99.9", at.p999_ms), ("max", at.max_ms)] {
        put(&format!("the gate over HTTP, {what} at half of its rate"), ms, "ms");
    }
    let idle = &found.idle;
    let name = format!("the gate over HTTP, {} idle connections", idle.connections);
    put(&name, idle.held_kib as f64 / 1024.0, "MiB");
    put(&format!("{name}, each"), idle.kib_each(), "KiB");
    put(&format!("{name}, p99 beside them"), idle.beside_p99_ms, "ms");
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

fn of_cost(cost: &CostResults, put: Put) {
    for (who, of) in [("a bare insert", &cost.bare_insert), ("an order", &cost.ours)] {
        put(&format!("cost: {who}, rate"), of.orders_per_s.median, "orders/s");
        put(&format!("cost: {who}, MySQL"), of.mysql_cpu_us.median, "µs CPU");
        put(&format!("cost: {who}, all processes"), of.all_cpu_us.median, "µs CPU");
        put(&format!("cost: {who}, redo log"), of.redo_log_bytes.median, "bytes");
    }
    put("cost: an order, Redis", cost.ours.redis_cpu_us.median, "µs CPU");
    put("cost: an order, the worker", cost.ours.worker_cpu_us.median, "µs CPU");
    put("cost: an order, all processes, in bare inserts", cost.multiple.median, "bare inserts");
}

fn of_trouble(trouble: &Trouble, put: Put) {
    for case in &trouble.cases {
        let name = format!("trouble: {}, {} entries", case.what, case.entries);
        match case.wanted_share {
            Some(_) => put(&name, case.share.median, "of plain"),
            None => put(&name, case.entries_per_s.median, "entries/s"),
        }
    }
    if let Some(held) = &trouble.held_voucher {
        put("trouble: one voucher is held, the others", held.share(), "of their rate");
    }
    if let Some(hold) = &trouble.long_hold {
        let others = hold.others_after_s.unwrap_or(f64::INFINITY);
        put("trouble: 20 of 40 vouchers are held, the others after", others, "s");
        put("trouble: 20 of 40 vouchers are held, /livez says no", hold.livez_refused as f64, "times");
    }
    if let Some(large) = &trouble.large_entries {
        put("trouble: peak memory, large entries", large.all_large_peak_kib as f64 / 1024.0, "MiB");
        put("trouble: peak memory, turning large", large.turning_peak_kib as f64 / 1024.0, "MiB");
    }
    if let Some(cluster) = &trouble.cluster {
        let name = format!("trouble: three workers on three nodes, {}", cluster.kind);
        put(&name, cluster.share(), "of one worker");
        put(&format!("{name}, lost"), cluster.lost as f64, "orders");
    }
}

fn of_books(books: &Books, put: Put) {
    for at in &books.sizes {
        let orders = show(at.orders as f64);
        put(&format!("books: {orders} orders compared"), at.look_s, "s");
        put(
            &format!("books: {orders} orders compared, peak memory"),
            at.look_peak_kib as f64 / 1024.0,
            "MiB",
        );
        put(&format!("books: {orders} orders rebuilt"), at.rebuild_s, "s");
        put(
            &format!("books: {orders} orders rebuilt, peak memory"),
            at.rebuild_peak_kib as f64 / 1024.0,
            "MiB",
        );
    }
    if let Some(beside) = &books.beside_a_sale {
        put("books: a sale beside the timed comparison", beside.task_share.median, "of its rate");
        put("books: a sale beside `tidegate reconcile`", beside.command_share.median, "of its rate");
    }
}

/// Formats a value with three significant digits.
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

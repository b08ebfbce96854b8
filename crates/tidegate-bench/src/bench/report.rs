//! The report: Markdown and charts, made from the results alone.

mod books;
mod gate;
mod summary;
mod trouble;

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context, Result};

use super::{
    charts::{self, Axes, Bar, Line},
    counts::COUNTS,
    headlines::show,
    results::{Calls, Drain, Rate, Results, ServerResults},
    targets::{self, Target, Wanted},
};

const METHOD: &str = include_str!("method.md");

/// Writes `README.md` and its charts into `folder`.
pub fn write(results: &Results, folder: &Path) -> Result<()> {
    let mut text = head(results);
    text += &summary::summary(results);
    text += &targets_table(&targets::of(results));
    for server in &results.servers {
        text += &section(server, folder)?;
    }
    text += METHOD;
    fs::write(folder.join("README.md"), text).context("Failed to write the report")
}

fn head(results: &Results) -> String {
    let Results { machine, .. } = results;
    let mut text =
        "# Benchmark\n\nMade by `just bench`; the figures are in `results.json`. Absolute figures belong to \
                    this machine; ratios within a run can be compared with those of others.\n\n"
            .to_owned();
    let _ = writeln!(
        text,
        "Tidegate {} ({}), {}, {:.0} s, mode `{}`{}. {} cores, {}, {} MiB, Linux {}; others kept {:.0} % of the cores busy just before.",
        results.tidegate,
        results.commit,
        results.started,
        results.took_s,
        results.mode,
        if results.scale == 1.0 { String::new() } else { format!(" at scale {}", results.scale) },
        machine.cores,
        machine.cpu,
        machine.memory_mib,
        machine.kernel,
        100.0 * machine.busy_before
    );
    for left_out in &results.left_out {
        let _ = writeln!(text, "\nLeft out: {left_out}.");
    }
    text
}

fn targets_table(targets: &[Target]) -> String {
    let mut text =
        "\n## Targets\n\n| server | measure | wanted | found | |\n|---|---|---|---|---|\n".to_owned();
    for target in targets {
        let (sign, bound) = match target.wanted {
            Wanted::AtLeast(bound) => ("≥", bound),
            Wanted::AtMost(bound) => ("≤", bound),
        };
        let found = target.found.map_or("not measured".to_owned(), show);
        let verdict = match target.is_reached() {
            Some(true) => "reached",
            Some(false) => "**not reached**",
            None => "",
        };
        let Target { server, measure, unit, .. } = target;
        let _ = writeln!(text, "| {server} | {measure} | {sign} {bound} {unit} | {found} | {verdict} |");
    }
    text
}

fn section(server: &ServerResults, folder: &Path) -> Result<String> {
    let info = &server.server;
    let mut text = format!("\n## {} and {}\n\n", info.redis, info.mysql);
    let settings = info.redis_settings.iter().chain(&info.mysql_settings);
    let settings: Vec<String> = settings.map(|(name, value)| format!("`{name} = {value}`")).collect();
    let _ = writeln!(text, "{}", settings.join(", "));
    text += &writers(server, folder)?;
    text += &shapes(server, folder)?;
    text += &costs(server);
    text += &trouble::cost(server);
    text += &trouble::trouble(server);
    text += &books::books(server);
    text += &admission(server);
    text += &limits(server);
    text += &gate::gate(server);
    text += &latency(server, folder)?;
    if let Some(memory) = &server.memory {
        let mib = |kib: u64| show(kib as f64 / 1024.0);
        let (peak, tenth) = (mib(memory.peak_kib), mib(memory.tenth_peak_kib));
        let _ = writeln!(
            text,
            "\n### Memory\n\nA worker with {} entries before it held {peak} MiB at most; with a tenth of them, {tenth} MiB.",
            memory.backlog
        );
    }
    Ok(text)
}

fn writers(server: &ServerResults, folder: &Path) -> Result<String> {
    let mut rates: Vec<(String, &Rate, bool)> = Vec::new();
    if let Some(ceiling) = &server.ceiling {
        rates.push(("ceiling (a): the tutorial's tables".into(), &ceiling.tutorial_tables, false));
        rates.push(("ceiling (b): our tables".into(), &ceiling.our_tables, false));
    }
    if let Some(drain) = server.drains.first() {
        rates.push(("Tidegate, default settings".into(), &drain.orders_per_s, true));
    }
    if let Some(tutorial) = &server.tutorial {
        rates.push(("the tutorial's consumer, 16 workers".into(), &tutorial.workers_16, false));
        rates.push(("the tutorial's consumer, 1 worker".into(), &tutorial.workers_1, false));
    }
    if rates.is_empty() {
        return Ok(String::new());
    }
    let file = file_name(server, "writers");
    let bars: Vec<Bar> = rates
        .iter()
        .map(|(label, rate, is_ours)| Bar { label: label.clone(), value: rate.median, is_ours: *is_ours })
        .collect();
    charts::bars(&folder.join(&file), &format!("{}: orders a second, durable", server.kind()), &bars)?;
    let mut text = format!(
        "\n### Orders a second\n\n![orders a second]({file})\n\n| | median | runs |\n|---|--:|---|\n"
    );
    for (label, rate, _) in &rates {
        let runs: Vec<String> = rate.runs.iter().copied().map(show).collect();
        let _ = writeln!(text, "| {label} | {} | {} |", show(rate.median), runs.join(" · "));
    }
    Ok(text)
}

fn shapes(server: &ServerResults, folder: &Path) -> Result<String> {
    if server.drains.len() < 2 {
        return Ok(String::new());
    }
    let mut text = "\n### Shapes\n".to_owned();
    let mut lines = Vec::new();
    for lanes in [1, 2, 4] {
        let is_on_line = |drain: &&Drain| {
            drain.lanes == lanes && drain.processes == 1 && drain.vouchers == 1 && drain.existing == 0
        };
        let mut points: Vec<(f64, f64)> = server
            .drains
            .iter()
            .filter(is_on_line)
            .map(|drain| (drain.batch as f64, drain.orders_per_s.median))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.len() > 1 {
            lines.push(Line { name: format!("{lanes} lane{}", if lanes == 1 { "" } else { "s" }), points });
        }
    }
    if !lines.is_empty() {
        let file = file_name(server, "batches");
        let title = format!("{}: orders a second by batch and lanes", server.kind());
        charts::lines(&folder.join(&file), &Axes { title: &title, x: "batch", y: "orders/s" }, &lines)?;
        let _ = writeln!(text, "\n![orders a second by batch and lanes]({file})");
    }
    text += &growing(server, folder)?;
    text += "\n| processes | lanes | batch | vouchers | orders before | orders drained | orders/s |\n";
    text += "|--:|--:|--:|--:|--:|--:|--:|\n";
    for Drain { processes, lanes, batch, vouchers, existing, orders, orders_per_s, .. } in &server.drains {
        let rate = show(orders_per_s.median);
        let _ = writeln!(
            text,
            "| {processes} | {lanes} | {batch} | {vouchers} | {existing} | {orders} | {rate} |"
        );
    }
    Ok(text)
}

/// The default drain with one voucher, by the number of orders that the table holds before.
fn growing(server: &ServerResults, folder: &Path) -> Result<String> {
    let Some(default) = server.drains.first() else { return Ok(String::new()) };
    let is_alike = |drain: &&Drain| {
        let shape = |drain: &Drain| (drain.processes, drain.lanes, drain.batch, drain.vouchers);
        shape(drain) == shape(default)
    };
    let mut drains: Vec<&Drain> = server.drains.iter().filter(is_alike).collect();
    if drains.len() < 2 {
        return Ok(String::new());
    }
    drains.sort_by_key(|drain| drain.existing);
    let bar = |drain: &&Drain| Bar {
        label: match drain.existing {
            0 => "an empty table".to_owned(),
            orders => format!("{} orders before", show(orders as f64)),
        },
        value: drain.orders_per_s.median,
        is_ours: true,
    };
    let file = file_name(server, "growing");
    let title = format!("{}: orders a second as the table grows", server.kind());
    charts::bars(&folder.join(&file), &title, &drains.iter().map(bar).collect::<Vec<_>>())?;
    Ok(format!("\n![orders a second as the table grows]({file})\n"))
}

fn costs(server: &ServerResults) -> String {
    let Some(Drain { cost, worker_peak_kib, .. }) = server.drains.first() else { return String::new() };
    let mut text = "\n### An order's cost, default settings\n\n| what | per order |\n|---|--:|\n".to_owned();
    let rows = [
        ("Redis CPU, µs", cost.redis_cpu_us),
        ("MySQL CPU, µs", cost.mysql_cpu_us),
        ("worker CPU, µs", cost.worker_cpu_us),
    ];
    // Counts of 0 are left out: there is no such log, or the run did not count it.
    let counts = COUNTS.into_iter().map(|(what, of)| (what, of(cost))).filter(|(_, count)| *count > 0.0);
    for (what, value) in rows.into_iter().chain(counts) {
        let shown = if value < 0.1 { format!("{value:.4}") } else { show(value) };
        let _ = writeln!(text, "| {what} | {shown} |");
    }
    let commands = cost.redis_commands_by_name.iter();
    let commands: Vec<String> = commands.map(|(name, calls)| format!("`{name}` {calls:.4}")).collect();
    let peak = show(*worker_peak_kib as f64 / 1024.0);
    let _ = writeln!(text, "\nRedis commands: {}. The worker held {peak} MiB at most.", commands.join(", "));
    text
}

fn admission(server: &ServerResults) -> String {
    let Some(admission) = &server.admission else { return String::new() };
    let mut text = "\n### Admission\n\n| | admitted/s | Redis µs | refused/s (sold out) | Redis µs |\n\
                    |---|--:|--:|--:|--:|\n"
        .to_owned();
    let (admitted, refused) = (&admission.admitted, &admission.sold_out);
    let mut row = |name: &str, admitted: &Calls, refused: &Calls| {
        let [a, b, c, d] = [&admitted.per_s, &admitted.redis_cpu_us, &refused.per_s, &refused.redis_cpu_us]
            .map(|rate| show(rate.median));
        let _ = writeln!(text, "| {name} | {a} | {b} | {c} | {d} |");
    };
    row("through the gate", &admitted.gate, &refused.gate);
    row("the gate's script, bare", &admitted.bare_script, &refused.bare_script);
    row("the tutorial's script, bare", &admitted.tutorial_script, &refused.tutorial_script);
    text
}

fn limits(server: &ServerResults) -> String {
    let Some(limits) = &server.limits else { return String::new() };
    let mut text = "\n### Limits\n\n| | calls/s | Redis µs |\n|---|--:|--:|\n".to_owned();
    for (name, calls) in [
        ("admitted without limits", &limits.without),
        ("admitted under three", &limits.three),
        ("refused by the first of them", &limits.refused_by_limit),
        ("sold out", &limits.sold_out),
    ] {
        let [per_s, redis_cpu_us] = [&calls.per_s, &calls.redis_cpu_us].map(|rate| show(rate.median));
        let _ = writeln!(text, "| {name} | {per_s} | {redis_cpu_us} |");
    }
    text
}

fn latency(server: &ServerResults, folder: &Path) -> Result<String> {
    let Some(latency) = &server.latency else { return Ok(String::new()) };
    let file = file_name(server, "latency");
    let line = |name: &str, of: fn(&super::results::AtRate) -> f64| Line {
        name: name.to_owned(),
        points: latency.rates.iter().map(|at| (at.rate, of(at))).collect(),
    };
    let lines = [
        line("p99.9", |at| at.p999_ms),
        line("p99", |at| at.p99_ms),
        line("p50", |at| at.p50_ms),
        line("one durable commit", |_| 0.0),
    ];
    let [p999, p99, p50, mut commit] = lines;
    commit.points.iter_mut().for_each(|point| point.1 = latency.commit_ms);
    let title = format!("{}: from due to acknowledged", server.kind());
    let axes = Axes { title: &title, x: "orders/s", y: "ms" };
    charts::lines(&folder.join(&file), &axes, &[p999, p99, p50, commit])?;
    let mut text = format!(
        "\n### Latency\n\n![latency]({file})\n\n| orders/s | p50 ms | p99 ms | p99.9 ms | max ms | orders | not done \
         | sender late, p99 ms |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for at in &latency.rates {
        let [p50, p99, p999, max, late] =
            [at.p50_ms, at.p99_ms, at.p999_ms, at.max_ms, at.sent_late_p99_ms].map(show);
        let (rate, orders, unfinished) = (at.rate, at.orders, at.unfinished);
        let _ =
            writeln!(text, "| {rate} | {p50} | {p99} | {p999} | {max} | {orders} | {unfinished} | {late} |");
    }
    let _ = writeln!(
        text,
        "\nOne durable commit: {} ms (one after the other), {} ms (with pauses). One order alone in a quiet system: \
         committed after {} ms, acknowledged after {} ms (medians).",
        show(latency.commit_ms),
        show(latency.quiet_commit_ms),
        show(latency.alone_committed_ms),
        show(latency.alone_acknowledged_ms)
    );
    let _ = match latency.knee() {
        Some(knee) => writeln!(
            text,
            "\nThe knee is at {} orders/s; at the next rate, p99 leaves the ground.",
            show(knee)
        ),
        None => writeln!(text, "\nThe rates of this run end before the knee."),
    };
    Ok(text)
}

fn file_name(server: &ServerResults, what: &str) -> String {
    format!("{}-{what}.svg", server.kind().to_lowercase())
}

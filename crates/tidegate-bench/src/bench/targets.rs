//! The targets, as ratios within one run, so that they hold on slow and on fast machines.

use super::{
    headlines::show,
    results::{AtRate, Drain, Latency, Results, ServerResults, books::Books, trouble::Trouble},
};

/// A target, and its value in this run.
#[derive(Clone, Debug)]
pub struct Target {
    pub server: String,
    pub measure: String,
    pub unit: &'static str,
    pub wanted: Wanted,
    /// The measured value. None: not part of this run.
    pub found: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// Whether the target is reached. None: not part of this run.
    pub fn is_reached(&self) -> Option<bool> {
        self.found.map(|found| match self.wanted {
            Wanted::AtLeast(bound) => found >= bound,
            Wanted::AtMost(bound) => found <= bound,
        })
    }
}

pub fn of(results: &Results) -> Vec<Target> {
    results.servers.iter().flat_map(of_server).collect()
}

fn of_server(server: &ServerResults) -> Vec<Target> {
    use Wanted::{AtLeast, AtMost};
    let mut targets = Vec::new();
    let mut put = |measure: &str, unit, wanted, found: Option<f64>| {
        // 0 / 0 was measured, but at sizes too small for a result.
        let found = found.filter(|found| !found.is_nan());
        targets.push(Target {
            server: server.kind().to_owned(),
            measure: measure.to_owned(),
            unit,
            wanted,
            found,
        });
    };
    let default = server.drains.first();
    let rate = |drain: &Drain| drain.orders_per_s.median;
    let to_default = |is_wanted: &dyn Fn(&Drain, &Drain) -> bool| {
        let default = default?;
        let other = server.drains.iter().find(|drain| is_wanted(drain, default))?;
        Some(rate(other) / rate(default))
    };
    let ceiling = server.ceiling.as_ref().map(|ceiling| ceiling.tutorial_tables.median);
    put("drain, defaults, against ceiling (a)", "x", AtLeast(0.6), div(default.map(rate), ceiling));
    let tutorial = server.tutorial.as_ref().map(|tutorial| tutorial.workers_16.median);
    put("drain against the tutorial with 16 workers", "x", AtLeast(30.0), div(default.map(rate), tutorial));
    let many = to_default(&|drain, default| {
        drain.vouchers == 10_000 && drain.existing == 0 && is_same_shape(drain, default)
    });
    put("drain with 10,000 vouchers against 1", "x", AtLeast(0.7), many);
    let grown = to_default(&|drain, default| {
        drain.vouchers == 1 && drain.existing > 0 && is_same_shape(drain, default)
    });
    put("drain into tables with 3 million orders against fresh ones", "x", AtLeast(0.7), grown);
    put("Redis CPU an order, drain", "µs", AtMost(6.0), default.map(|drain| drain.cost.redis_cpu_us));

    let (admitted, refused) = match &server.admission {
        Some(admission) => (Some(&admission.admitted), Some(&admission.sold_out)),
        None => (None, None),
    };
    if let (Some(admitted), Some(refused)) = (admitted, refused) {
        let bare = &admitted.bare_script;
        put("Redis CPU an admission, bare script", "µs", AtMost(12.0), Some(bare.redis_cpu_us.median));
        let gate = &admitted.gate;
        put("Redis CPU an admission, gate", "µs", AtMost(12.0), Some(gate.redis_cpu_us.median));
        let bare_refusal = refused.bare_script.redis_cpu_us.median;
        put("Redis CPU a refusal when sold out, bare script", "µs", AtMost(3.0), Some(bare_refusal));
        let gate_refusal = refused.gate.redis_cpu_us.median;
        put("Redis CPU a refusal when sold out, gate", "µs", AtMost(3.0), Some(gate_refusal));
        let ratio = gate.per_s.median / bare.per_s.median;
        put("gate's admissions against the bare script's", "x", AtLeast(0.9), Some(ratio));
    }

    if let Some(limits) = &server.limits {
        let three = Some(limits.three_against_none());
        put("Redis CPU an admission, three limits against none", "x", AtMost(1.5), three);
        let refusal = Some(limits.refusal_against_sold_out());
        put("Redis CPU a refusal by a limit, against sold out", "x", AtMost(4.0), refusal);
    }

    if let Some(gate) = &server.gate {
        let ratio = Some(gate.against_bare_handler());
        put("gate over HTTP against a bare handler with one GET of Redis", "x", AtLeast(0.5), ratio);
        put("gate over HTTP, p99 at half of its rate", "ms", AtMost(3.0), Some(gate.at_half.p99_ms));
        let idle = &gate.idle;
        let measure = format!("gate over HTTP, {} idle connections", idle.connections);
        put(&format!("{measure}, memory in all"), "MiB", AtMost(400.0), Some(idle.held_kib as f64 / 1024.0));
        put(&format!("{measure}, p99 of a caller beside them"), "ms", AtMost(5.0), Some(idle.beside_p99_ms));
    }

    let latency = server.latency.as_ref();
    let commit = latency.map(Latency::best_commit_ms);
    let p99 = |rate: f64| latency?.rates.iter().find(|at| at.rate == rate).and_then(p99_if_done);
    put("p99 at 1,000 orders/s, in durable commits", "x", AtMost(5.0), div(p99(1_000.0), commit));
    put("p99 at 5,000 orders/s, in durable commits", "x", AtMost(8.0), div(p99(5_000.0), commit));
    let alone = latency.map(|latency| (latency.alone_committed_ms - 1.0) / latency.best_commit_ms());
    put("one order alone, XADD to committed, less 1 ms, in durable commits", "x", AtMost(2.0), alone);
    if let Some(memory) = &server.memory {
        let peak = memory.peak_kib as f64 / 1024.0;
        put("worker's peak memory with 1 million entries before it", "MiB", AtMost(48.0), Some(peak));
        let growth = memory.peak_kib as f64 / memory.tenth_peak_kib as f64;
        put("that against a tenth of the entries (flat)", "x", AtMost(1.2), Some(growth));
    }
    if let Some(cost) = &server.cost {
        let [ours, bare] = [&cost.ours, &cost.bare_insert].map(|it| Some(it.orders_per_s.median));
        put("drain, defaults, against one connection's bare inserts", "x", AtLeast(0.6), div(ours, bare));
        put("an order's cost, in bare inserts", "x", AtMost(2.6), Some(cost.multiple.median));
        let redo = cost.ours.redo_log_bytes.median;
        put("redo log an order", "bytes", AtMost(170.0), Some(redo));
    }
    if let Some(trouble) = &server.trouble {
        of_trouble(trouble, &mut put);
    }
    if let Some(books) = &server.books {
        of_books(books, &mut put);
    }
    targets
}

type Put<'a> = &'a mut dyn FnMut(&str, &'static str, Wanted, Option<f64>);

fn of_trouble(trouble: &Trouble, put: Put) {
    use Wanted::{AtLeast, AtMost};
    let usual = trouble.cases.first().map(|case| case.entries);
    for case in trouble.cases.iter().chain(&trouble.life) {
        let Some(wanted) = case.wanted_share else { continue };
        let is_usual = Some(case.entries) == usual;
        let size = if is_usual { String::new() } else { format!(", {} entries", show(case.entries as f64)) };
        let measure = format!("trouble: {}{size}", case.what);
        put(&measure, "of plain", AtLeast(wanted), Some(case.share.median));
    }
    if let Some(expirations) = &trouble.expirations {
        put("orders that expire", "a second", AtLeast(5_000.0), Some(expirations.per_s));
    }
    if let Some(held) = &trouble.held_voucher {
        let measure = "trouble: one voucher's row is held, the other vouchers";
        put(measure, "of their rate", AtLeast(0.8), Some(held.share()));
    }
    if let Some(hold) = &trouble.long_hold {
        let others = hold.others_after_s.unwrap_or(f64::INFINITY);
        put(
            "trouble: 20 of 40 vouchers' rows are held, the others are written after",
            "s",
            AtMost(5.0),
            Some(others),
        );
        let refused = hold.livez_refused as f64;
        put("trouble: while they are held, /livez says no", "times", AtMost(0.0), Some(refused));
    }
    if let Some(large) = &trouble.large_entries {
        let mib = |kib: u64| Some(kib as f64 / 1024.0);
        let measure = "trouble: worker's peak memory, entries of 64 KiB";
        put(measure, "MiB", AtMost(96.0), mib(large.all_large_peak_kib));
        let measure = "trouble: worker's peak memory, small entries that turn into ones of 64 KiB";
        put(measure, "MiB", AtMost(96.0), mib(large.turning_peak_kib));
    }
    if let Some(cluster) = &trouble.cluster {
        let measure = format!("trouble: three workers on three nodes, {}", cluster.kind);
        put(&measure, "of one worker", AtLeast(0.5), Some(cluster.share()));
        put(&format!("{measure}, lost"), "orders", AtMost(0.0), Some(cluster.lost as f64));
    }
}

/// The targets for both times are those for ten million and for one million orders; other sizes have the same rate.
fn of_books(books: &Books, put: Put) {
    use Wanted::{AtLeast, AtMost};
    for at in &books.sizes {
        let (orders, millions) = (show(at.orders as f64), at.orders as f64 / 1e6);
        put(
            &format!("books: {orders} orders compared"),
            "s a million",
            AtMost(12.0),
            Some(at.look_s / millions),
        );
        let mib = |kib: u64| Some(kib as f64 / 1024.0);
        put(
            &format!("books: {orders} orders compared, peak memory"),
            "MiB",
            AtMost(256.0),
            mib(at.look_peak_kib),
        );
        put(
            &format!("books: {orders} orders rebuilt"),
            "s a million",
            AtMost(60.0),
            Some(at.rebuild_s / millions),
        );
    }
    if let Some(beside) = &books.beside_a_sale {
        let measure = "books: a sale beside the timed comparison";
        put(measure, "of its rate", AtLeast(0.95), Some(beside.task_share.median));
    }
}

fn is_same_shape(a: &Drain, b: &Drain) -> bool {
    (a.processes, a.lanes, a.batch) == (b.processes, b.lanes, b.batch)
}

/// The quantile, if it exists: with too many orders that never arrived, there is none.
fn p99_if_done(at: &AtRate) -> Option<f64> {
    Some(if at.unfinished * 100 > at.orders { f64::INFINITY } else { at.p99_ms })
}

fn div(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_is_reached_and_what_was_not_measured_is_not_judged() {
        let target =
            |wanted, found| Target { server: String::new(), measure: String::new(), unit: "", wanted, found };
        assert_eq!(target(Wanted::AtLeast(0.6), Some(0.6)).is_reached(), Some(true));
        assert_eq!(target(Wanted::AtLeast(0.6), Some(0.59)).is_reached(), Some(false));
        assert_eq!(target(Wanted::AtMost(3.0), Some(3.1)).is_reached(), Some(false));
        assert_eq!(target(Wanted::AtMost(3.0), None).is_reached(), None);
    }
}

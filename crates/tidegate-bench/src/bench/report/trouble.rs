//! The sections "Trouble" and "Cost" of the report.

use std::fmt::Write;

use crate::bench::{
    headlines::show,
    results::{
        Rate, ServerResults,
        cost::{CostOf, CostResults},
        trouble::{CaseResult, ClusterResult, Expirations, HeldVoucher, LargeEntries, LongHold},
    },
};

/// The text about the cost of an order, compared with a bare insert.
pub fn cost(server: &ServerResults) -> String {
    let Some(CostResults { orders, bare_insert, ours, multiple }) = &server.cost else {
        return String::new();
    };
    let mut text = format!(
        "\n### The cost against a bare insert\n\n{orders} orders, Redis with `appendfsync always`. Processor time an order in µs, log \
         bytes an order:\n\n| | MySQL | Redis | worker | all | redo log | binary log | orders/s |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for (name, of) in
        [("one connection's bare inserts of 1000 rows", bare_insert), ("Tidegate, default settings", ours)]
    {
        let CostOf { mysql_cpu_us, redis_cpu_us, worker_cpu_us, all_cpu_us, .. } = of;
        let rates =
            [mysql_cpu_us, redis_cpu_us, worker_cpu_us, all_cpu_us, &of.redo_log_bytes, &of.binary_log_bytes];
        let cells = rates.map(|rate| show(rate.median)).join(" | ");
        let _ = writeln!(text, "| {name} | {cells} | {} |", show(of.orders_per_s.median));
    }
    let mysql = ours.mysql_cpu_us.median / bare_insert.mysql_cpu_us.median;
    let _ = writeln!(
        text,
        "\nAn order costs all processes {} times what a bare insert costs MySQL ({}); MySQL alone, {} times.",
        show(multiple.median),
        runs(multiple),
        show(mysql)
    );
    text
}

/// The text about streams with unusual orders.
pub fn trouble(server: &ServerResults) -> String {
    let Some(trouble) = &server.trouble else { return String::new() };
    let mut text = "\n### Trouble\n".to_owned();
    if !trouble.cases.is_empty() {
        text += &cases(&trouble.cases);
    }
    if !trouble.life.is_empty() {
        text += "\nAn order's life: payments, results and limits of time.\n";
        text += &cases(&trouble.life);
    }
    if let Some(Expirations { orders, per_s }) = &trouble.expirations {
        let _ = writeln!(text, "\n{orders} orders that are due all at once expire at {}/s.", show(*per_s));
    }
    text += &trouble.held_voucher.as_ref().map_or_else(String::new, held_voucher);
    text += &trouble.long_hold.as_ref().map_or_else(String::new, long_hold);
    text += &trouble.large_entries.as_ref().map_or_else(String::new, large_entries);
    text += &trouble.cluster.as_ref().map_or_else(String::new, cluster);
    text
}

fn cases(cases: &[CaseResult]) -> String {
    let mut text = "\nEntries a second, as a share of plain orders in the same round; costs are those of an entry:\n\n\
                    | what is in the stream | entries | entries/s | share | wanted | rounds | MySQL µs | Redis µs | worker µs | statements | redo bytes |\n\
                    |---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for CaseResult { what, entries, entries_per_s, share, wanted_share, cost } in cases {
        let rate = show(entries_per_s.median);
        let cpu = [cost.mysql_cpu_us, cost.redis_cpu_us, cost.worker_cpu_us].map(show).join(" | ");
        let costs = format!("{cpu} | {:.4} | {}", cost.mysql_statements, show(cost.redo_log_bytes));
        let (found, wanted) =
            (show(share.median), wanted_share.map_or_else(String::new, |wanted| wanted.to_string()));
        let rounds = runs(share);
        let _ = writeln!(text, "| {what} | {entries} | {rate} | {found} | {wanted} | {rounds} | {costs} |");
    }
    text
}

fn held_voucher(held: &HeldVoucher) -> String {
    format!(
        "\nAnother session locks one voucher's row, and half of {} entries are of it. The orders of the other vouchers are \
         written at {}/s, {} of their rate without the lock ({}/s): {} of {} during the lock. The first of them is \
         written after {} s. From then on, the rate is {} of that without the lock.\n",
        held.entries,
        show(held.held_per_s),
        show(held.share()),
        show(held.plain_per_s),
        held.written,
        held.entries / 2,
        show(held.paused_s),
        show(held.share_after_pause())
    )
}

fn long_hold(hold: &LongHold) -> String {
    let others = match hold.others_after_s {
        Some(seconds) => format!("were written after {} s", show(seconds)),
        None => "were not written during the lock".to_owned(),
    };
    format!(
        "\nAnother session locks the rows of 20 of 40 vouchers for {} s, with {} entries in the stream. The orders of the \
         other 20 {others}. `/livez` was asked {} times, and was not OK {} times. Everything was written {} s after \
         the rows were free.\n",
        show(hold.held_s),
        hold.entries,
        hold.livez_asked,
        hold.livez_refused,
        show(hold.all_after_s)
    )
}

fn large_entries(large: &LargeEntries) -> String {
    let mib = |kib: u64| show(kib as f64 / 1024.0);
    format!(
        "\n{} entries with a field of 64 KiB: the worker has {} MiB at most ({} entries/s), and {} MiB if the first half of \
         the entries is small.\n",
        large.entries,
        mib(large.all_large_peak_kib),
        show(large.all_large_per_s),
        mib(large.turning_peak_kib)
    )
}

fn cluster(cluster: &ClusterResult) -> String {
    format!(
        "\nThree workers on three nodes ({}), {} entries of one voucher: {}/s, {} of one worker on one node of the same \
         cluster ({}/s). {} acknowledged orders are not in the table of each node.\n",
        cluster.kind,
        cluster.entries,
        show(cluster.three_workers_per_s),
        show(cluster.share()),
        show(cluster.one_worker_per_s),
        cluster.lost
    )
}

pub fn runs(rate: &Rate) -> String {
    let runs: Vec<String> = rate.runs.iter().copied().map(show).collect();
    runs.join(" · ")
}

//! The section "Rebuild and comparison" of the report.

use std::fmt::Write;

use super::trouble::runs;
use crate::bench::{headlines::show, results::ServerResults};

/// The text about comparing both stores, and filling an empty Redis.
pub fn books(server: &ServerResults) -> String {
    let Some(books) = &server.books else { return String::new() };
    let mut text =
        "\n### Rebuild and comparison\n\n| orders of one voucher | compared | peak memory | rebuilt | peak memory |\n\
                    |--:|--:|--:|--:|--:|\n"
            .to_owned();
    let mib = |kib: u64| show(kib as f64 / 1024.0);
    for at in &books.sizes {
        let _ = writeln!(
            text,
            "| {} | {} s | {} MiB | {} s | {} MiB |",
            show(at.orders as f64),
            show(at.look_s),
            mib(at.look_peak_kib),
            show(at.rebuild_s),
            mib(at.rebuild_peak_kib)
        );
    }
    if let Some(beside) = &books.beside_a_sale {
        let _ = writeln!(
            text,
            "\n{} orders drain, {} are there before: {}/s alone; beside the worker's timed comparison {} of that ({}), beside \
             `tidegate reconcile` {} ({}).",
            show(beside.orders as f64),
            show(beside.existing as f64),
            show(beside.alone_per_s.median),
            show(beside.task_share.median),
            runs(&beside.task_share),
            show(beside.command_share.median),
            runs(&beside.command_share)
        );
    }
    text
}

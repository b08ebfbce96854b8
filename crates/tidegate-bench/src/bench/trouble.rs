//! Trouble: streams with unusual orders, as shares of the rate of plain orders in the same run.
//!
//! Each round measures plain orders first and all cases after them, so that disturbances of the machine affect a case
//! and its comparison alike. Cases whose cost could grow with the rows of a voucher are measured again with more rows.

mod case;
mod cluster;
mod expiring;
mod held;
pub mod http;
mod large;
mod load;
mod run;

use anyhow::Result;
use clap::ValueEnum;
use tidegate_lab::MysqlFlavour;

use self::{case::Case, run::Run};
use super::{
    fixture::Fixture,
    results::{
        Rate,
        trouble::{CaseResult, Trouble},
    },
    sizes::{Growing, TroubleSizes},
    writers::tell,
};

/// The rows that can be selected alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// The shares of the plain rate
    Cases,
    /// Payments, results, orders that expire
    Life,
    /// The row of one voucher is locked
    HeldVoucher,
    /// The rows of 20 of 40 vouchers are locked for minutes
    LongHold,
    /// Entries with a field of 64 KiB
    LargeEntries,
    /// Three workers on three nodes
    Cluster,
}

/// Measures all rows, or some. Memory and the long lock concern the worker alone, so they are measured only with the
/// first server.
pub async fn measure(
    fixture: &mut Fixture,
    flavour: MysqlFlavour,
    sizes: &TroubleSizes,
    rows: &[Rows],
    is_first: bool,
) -> Result<Trouble> {
    let wants = |row| rows.is_empty() || rows.contains(&row);
    let mut trouble = Trouble::default();
    if wants(Rows::Cases) {
        trouble.cases = rounds(fixture, &Case::ALL, sizes.entries, sizes.rounds).await?;
        for &(entries, growing) in &sizes.growth {
            trouble.cases.extend(rounds(fixture, cases_of(growing), entries, 1).await?);
        }
    }
    if wants(Rows::Life) {
        trouble.life = rounds(fixture, &Case::OF_LIFE, sizes.entries, sizes.rounds).await?;
        tell("expirations");
        trouble.expirations = Some(expiring::measure(fixture, sizes.entries).await?);
    }
    if wants(Rows::HeldVoucher) {
        tell("trouble: one voucher is held");
        trouble.held_voucher = Some(held::one_voucher(fixture, sizes.held_entries).await?);
    }
    if is_first && wants(Rows::LongHold) {
        tell(&format!("trouble: 20 of 40 vouchers are held for {:.0} s", sizes.hold.as_secs_f64()));
        trouble.long_hold = Some(held::half_of_them(fixture, sizes.long_hold_entries, sizes.hold).await?);
    }
    if is_first && wants(Rows::LargeEntries) {
        tell("trouble: large entries");
        trouble.large_entries = Some(large::measure(fixture, sizes.large_entries).await?);
    }
    if wants(Rows::Cluster) {
        tell("trouble: a cluster of three nodes");
        trouble.cluster = cluster::measure(fixture, flavour, sizes.cluster_entries).await?;
    }
    Ok(trouble)
}

fn cases_of(growing: Growing) -> &'static [Case] {
    match growing {
        Growing::ThatCouldGrow => &Case::THAT_COULD_GROW,
        Growing::PromisedFlat => &Case::FLAT,
    }
}

/// Measures plain orders and these cases, in turn.
async fn rounds(
    fixture: &mut Fixture,
    cases: &[Case],
    entries: usize,
    rounds: usize,
) -> Result<Vec<CaseResult>> {
    let mut plain: Vec<Run> = Vec::new();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); cases.len()];
    for round in 1..=rounds {
        tell(&format!("trouble: {entries} entries, round {round} of {rounds}"));
        plain.push(run::measure(fixture, Case::Plain, entries).await?);
        for (case, runs) in cases.iter().zip(&mut runs) {
            runs.push(run::measure(fixture, *case, entries).await?);
        }
    }
    let results = std::iter::once((Case::Plain, plain.as_slice()))
        .chain(cases.iter().copied().zip(runs.iter().map(Vec::as_slice)))
        .map(|(case, runs)| conclude(case, entries, runs, &plain));
    let results: Vec<CaseResult> = results.collect();
    for case in results.iter().skip(1) {
        tell(&format!("  {:<46} {:.2}", case.what, case.share.median));
    }
    Ok(results)
}

fn conclude(case: Case, entries: usize, runs: &[Run], plain: &[Run]) -> CaseResult {
    let shares = runs.iter().zip(plain).map(|(run, plain)| run.per_s / plain.per_s);
    let entries_per_s = Rate::of(runs.iter().map(|run| run.per_s).collect());
    let distance = |run: &&Run| (run.per_s - entries_per_s.median).abs();
    let middle = runs.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    CaseResult {
        what: case.name().to_owned(),
        entries,
        share: Rate::of(shares.collect()),
        wanted_share: case.wanted_share(),
        cost: middle.map(|run| run.cost.clone()).unwrap_or_default(),
        entries_per_s,
    }
}

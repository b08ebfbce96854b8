//! The comparison of two runs, from files or made now in turn.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use tidegate_lab::MysqlFlavour;

use super::{
    admission::{self, Sale, Way},
    contender::Contender,
    cost,
    fixture::Fixture,
    gate::{self, Asked},
    headlines::{self, Headline, show},
    results::{Calls, Results, SCHEMA},
    sizes::Sizes,
    writers::tell,
};

/// Prints the figures of two runs in files.
pub fn files(a: &Path, b: &Path) -> Result<()> {
    let (a, b) = (read(a)?, read(b)?);
    for warning in differences(&a, &b) {
        println!("NOTE: {warning}");
    }
    print(&headlines::of(&a), &headlines::of(&b));
    Ok(())
}

/// Prints every figure that both runs have, and the ratio of B to A.
fn print(lines: &[Headline], others: &[Headline]) {
    println!("{:<86} {:>12} {:>12} {:>7}", "", "A", "B", "B/A");
    for line in lines {
        let Some(other) = others.iter().find(|other| other.name == line.name) else { continue };
        let ratio =
            if line.value == 0.0 { "-".to_owned() } else { format!("{:.2}", other.value / line.value) };
        println!(
            "{:<86} {:>12} {:>12} {ratio:>7} {}",
            line.name,
            show(line.value),
            show(other.value),
            line.unit
        );
    }
}

/// Measures two programs in turn, each on its own servers, and prints both results.
///
/// Each program uses the tables of its own migrations and its own defaults, so it may be an older one. Its gate is asked
/// over HTTP.
pub async fn programs(flavour: MysqlFlavour, pair: [Contender; 2], sizes: &Sizes) -> Result<()> {
    let [a, b] = pair;
    let mut sides = [Side::open(flavour, a).await?, Side::open(flavour, b).await?];
    for number in 0..sizes.rounds {
        tell(&format!("round {} of {}", number + 1, sizes.rounds));
        for at in turns(number) {
            sides[at].measure(sizes).await?;
        }
    }
    let server = sides[0].fixture.describe().await?;
    println!("\n{} and {}", server.redis, server.mysql);
    let [a, b] = &sides;
    println!(
        "A is {}, B is {}; a bare insert is the same for both, and shows how sure the ratios are",
        a.contender.name, b.contender.name
    );
    let costs = [a, b].map(|side| side.costs.conclude(sizes.cost));
    let [lines, others] = [(a, &costs[0]), (b, &costs[1])]
        .map(|(side, cost)| headlines::of_program(cost, side.script(), &gate::conclude(side.gate.clone())));
    print(&lines, &others);
    let [a, b] = costs.map(|cost| cost.ours.orders_per_s.runs);
    let ratios: Vec<_> = a.iter().zip(&b).map(|(a, b)| format!("{:.2}", b / a)).collect();
    println!("B/A of the drain, round by round: {}", ratios.join(" "));
    Ok(())
}

/// The order of the two programs in a round. They take turns, because the first one finds the machine as the other left
/// it.
fn turns(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

/// One of two programs, with its results.
struct Side {
    contender: Contender,
    fixture: Fixture,
    costs: cost::Rounds,
    admissions: Vec<(f64, f64)>,
    refusals: Vec<(f64, f64)>,
    gate: Vec<gate::Run>,
}

impl Side {
    async fn open(flavour: MysqlFlavour, contender: Contender) -> Result<Self> {
        let fixture = Fixture::open(flavour, contender.program.clone()).await?;
        let costs = cost::Rounds::default();
        let (admissions, refusals, gate) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { contender, fixture, costs, admissions, refusals, gate })
    }

    async fn measure(&mut self, sizes: &Sizes) -> Result<()> {
        self.costs.measure(&mut self.fixture, sizes.cost).await?;
        self.gate.push(gate::once(&mut self.fixture, Asked::Gate, sizes.calls).await?);
        if let Some(script) = &self.contender.script {
            let way = Way::BareScript(script);
            self.admissions.push(admission::once(&mut self.fixture, way, Sale::Open, sizes.calls).await?);
            self.refusals.push(admission::once(&mut self.fixture, way, Sale::SoldOut, sizes.calls).await?);
        }
        Ok(())
    }

    /// Admissions and refusals by the script, if it is known.
    fn script(&self) -> Option<[Calls; 2]> {
        let calls = || [&self.admissions, &self.refusals].map(|found| admission::conclude(found));
        self.contender.script.is_some().then(calls)
    }
}

fn read(file: &Path) -> Result<Results> {
    let text = fs::read_to_string(file).with_context(|| format!("Failed to read {}", file.display()))?;
    let schema = serde_json::from_str::<serde_json::Value>(&text)?["schema"].as_u64();
    ensure!(schema == Some(u64::from(SCHEMA)), "{} has schema {schema:?}, not {SCHEMA}", file.display());
    serde_json::from_str(&text).with_context(|| format!("Failed to understand {}", file.display()))
}

/// The differences between two runs that make a comparison doubtful.
fn differences(a: &Results, b: &Results) -> Vec<String> {
    let facts = |results: &Results| {
        let machine = &results.machine;
        [
            ("mode", results.mode.clone()),
            ("scale", results.scale.to_string()),
            ("cores", machine.cores.to_string()),
            ("CPU", machine.cpu.clone()),
            ("kernel", machine.kernel.clone()),
            ("memory", format!("{} MiB", machine.memory_mib)),
        ]
    };
    let mut notes = Vec::new();
    for ((name, in_a), (_, in_b)) in facts(a).into_iter().zip(facts(b)) {
        if in_a != in_b {
            notes.push(format!("{name} differs: {in_a} and {in_b}"));
        }
    }
    for (name, results) in [("A", a), ("B", b)] {
        if results.machine.is_busy() {
            let percent = 100.0 * results.machine.busy_before;
            notes.push(format!("others kept {percent:.0} % of the cores busy before {name}"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn the_two_change_places_from_round_to_round() {
        assert_eq!([0, 1, 2].map(turns), [[0, 1], [1, 0], [0, 1]]);
    }
}

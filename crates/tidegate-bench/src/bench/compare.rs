//! Two runs beside each other.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{
    headlines::{self, show},
    results::{Results, SCHEMA},
};

/// Prints every figure that both have, and the ratio of B to A.
pub fn print(a: &Path, b: &Path) -> Result<()> {
    let (a, b) = (read(a)?, read(b)?);
    for warning in differences(&a, &b) {
        println!("NOTE: {warning}");
    }
    let (lines, others) = (headlines::of(&a), headlines::of(&b));
    println!("{:<86} {:>12} {:>12} {:>7}", "", "A", "B", "B/A");
    for line in &lines {
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
    Ok(())
}

fn read(file: &Path) -> Result<Results> {
    let text = fs::read_to_string(file).with_context(|| format!("Failed to read {}", file.display()))?;
    let schema = serde_json::from_str::<serde_json::Value>(&text)?["schema"].as_u64();
    ensure!(schema == Some(u64::from(SCHEMA)), "{} has schema {schema:?}, not {SCHEMA}", file.display());
    serde_json::from_str(&text).with_context(|| format!("Failed to understand {}", file.display()))
}

/// What makes a comparison doubtful.
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

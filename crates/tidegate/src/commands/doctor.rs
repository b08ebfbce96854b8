//! The command `tidegate doctor`: checks the servers and the settings, and whether orders wait. Each line is ok, a
//! warning, an error or not read, with advice.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    System,
    doctor::{self, DoctorReport, Finding, Level},
};

use crate::{
    exit::Exit,
    output::OutputArgs,
    partitions::{ask_all, of_partition},
    scope::SystemCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate doctor
  tidegate doctor --json | jq '.findings[] | select(.level != \"ok\")'

Checks the servers, vouchers that MySQL sells and Redis does not know, and entries that wait for too long. It does not
check orders: use tidegate audit. A check that skips a large journal, or cannot see workers, reports `not read` instead
of `ok`. The doctor changes nothing. Exits with 1 if it found an error; with only warnings, it exits with 0.";

/// The verdict if the doctor finds no problem. The doctor does not count orders.
const WELL: &str =
    "No problem was found, and no entry waits for too long. To check all orders: tidegate audit";

/// The arguments of `tidegate doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl SystemCommand for DoctorArgs {
    /// Prints the findings of each partition.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let mut exit = Exit::Ok;
        for (settings, diagnosis) in ask_all(system, async |settings| doctor::diagnose(settings).await).await
        {
            of_partition(system, settings, || self.output.print(&diagnosis, render))?;
            if diagnosis.errors > 0 {
                exit = Exit::No;
            }
        }
        Ok(exit)
    }
}

fn render(diagnosis: &DoctorReport) -> String {
    let lines = diagnosis.findings.iter().map(line).collect::<Vec<_>>().join("\n");
    let DoctorReport { errors, warnings, not_read, .. } = *diagnosis;
    let found = format!("{}, {}", counted(errors as u64, "error"), counted(warnings as u64, "warning"));
    let verdict = match (errors + warnings, not_read) {
        (0, 0) => WELL.to_owned(),
        (_, 0) => format!("{found}."),
        (_, not_read) => format!("{found}, {not_read} not read."),
    };
    format!("{lines}\n\n{verdict}")
}

fn line(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Ok => "ok",
        Level::Warning => "warning",
        Level::Error => "error",
        Level::NotRead => "not read",
    };
    let text = format!("{level:<8} {:<6} {}", finding.store, finding.what);
    match &finding.advice {
        Some(advice) => format!("{text}\n{:<16}do: {advice}", ""),
        None => text,
    }
}

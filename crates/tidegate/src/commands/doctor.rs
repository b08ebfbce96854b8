//! `tidegate doctor`: is the ground fit for orders, and does any of them wait? Each line is ok, a warning or an error with what to do.

mod clock;
mod cluster;
mod entries;
mod finding;
mod mysql_checks;
mod redis_checks;
mod sales;
mod waiting;

use clap::Args;
use serde::Serialize;

use self::finding::{Finding, Findings, Level};
use crate::{
    config::Settings,
    exit::Exit,
    output::{OutputArgs, counted},
};

const EXAMPLES: &str = "\
Examples:
  tidegate doctor
  tidegate doctor --json | jq '.findings[] | select(.level != \"ok\")'

Looks at the servers, at vouchers that MySQL sells and Redis does not know, and at what waits for too long. It follows
no order: tidegate audit does. Changes nothing. Exits with 1 where it found an error; warnings leave it at 0.";

/// What may be said without having counted the orders.
const WELL: &str =
    "The servers are set up well, and nothing waits for long. Whether all orders are there: tidegate audit";

/// What `tidegate doctor` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// What `tidegate doctor` prints.
#[derive(Debug, Serialize)]
struct Diagnosis {
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

/// Checks both stores side by side; one that is away does not keep the other from being checked.
///
/// # Errors
/// When stdout cannot be written to.
pub async fn run(settings: &Settings, args: &DoctorArgs) -> anyhow::Result<Exit> {
    let (mut redis, mut mysql) = (Findings::of("redis"), Findings::of("mysql"));
    let stores =
        tokio::join!(redis_checks::run(settings, &mut redis), mysql_checks::run(settings, &mut mysql));
    if let (Some(pool), Some(database)) = &stores {
        sales::check(settings, &mut redis, pool, database).await;
    }
    let findings: Vec<Finding> = [redis.into_vec(), mysql.into_vec()].concat();
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let diagnosis = Diagnosis { errors: count(Level::Error), warnings: count(Level::Warning), findings };
    args.output.print(&diagnosis, render)?;
    Ok(if diagnosis.errors == 0 { Exit::Ok } else { Exit::No })
}

fn render(diagnosis: &Diagnosis) -> String {
    let lines = diagnosis.findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n");
    let verdict = match (diagnosis.errors, diagnosis.warnings) {
        (0, 0) => WELL.to_owned(),
        (errors, warnings) => {
            format!("{}, {}.", counted(errors as u64, "error"), counted(warnings as u64, "warning"))
        }
    };
    format!("{lines}\n\n{verdict}")
}

//! The command `tidegate doctor`: checks the servers and the settings, and whether orders wait. Each line is ok, a
//! warning, an error or not read, with advice.

use clap::Args;
use jiff::Timestamp;
use tidegate_compare::text::{counted, error_chain};
use tidegate_http::gate::Tls;
use tidegate_operations::{
    System,
    doctor::{
        self, DoctorReport, Finding, Level,
        before_sale::{self, BeforeSaleReport, BeforeSaleRequest},
    },
};
use tidegate_orders::VoucherId;

use crate::{
    config::Settings,
    exit::Exit,
    output::OutputArgs,
    partitions::{ask_all, of_partition},
};

const EXAMPLES: &str = "\
Examples:
  tidegate doctor
  tidegate doctor --json | jq '.findings[] | select(.level != \"ok\")'
  tidegate doctor --before-sale 7
  tidegate doctor --before-sale

Checks the servers, vouchers that MySQL sells and Redis does not know, and entries that wait for too long. It does not
check orders: use tidegate audit. A check that skips a large journal, or cannot see workers, reports `not read` instead
of `ok`. The doctor changes nothing. Exits with 1 if it found an error; with only warnings, it exits with 0.

With --before-sale, it checks one sale instead: stock, times and limits in both stores, the workers, the memory of Redis,
and the gate's certificate if gate.tls_cert is set here. See docs/before-a-sale.md. Exits with 2 if neither store knows
the voucher.";

/// The verdict if the doctor finds no problem. The doctor does not count orders.
const WELL: &str =
    "No problem was found, and no entry waits for too long. To check all orders: tidegate audit";

/// The arguments of `tidegate doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Check whether the sale of this voucher may begin; without VOUCHER, each sale that begins within one hour
    #[arg(long, value_name = "VOUCHER")]
    before_sale: Option<Option<VoucherId>>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the findings of each partition.
///
/// # Errors
/// When neither store knows the voucher, or the findings cannot be printed.
pub async fn run(settings: &Settings, args: &DoctorArgs) -> anyhow::Result<Exit> {
    let system = &settings.system;
    if let Some(voucher) = args.before_sale {
        return check_sales(settings, &system.chosen(voucher)?, voucher, args.output).await;
    }
    let mut exit = Exit::Ok;
    for (partition, diagnosis) in ask_all(system, async |settings| doctor::diagnose(settings).await).await {
        of_partition(system, partition, || args.output.print(&diagnosis, render))?;
        exit = exit_after(exit, &diagnosis);
    }
    Ok(exit)
}

async fn check_sales(
    settings: &Settings,
    system: &System,
    voucher: Option<VoucherId>,
    output: OutputArgs,
) -> anyhow::Result<Exit> {
    let certificate = settings.gate.tls.as_ref().map(|tls| {
        let tls = Tls::load(tls).map_err(|error| error_chain(&error))?;
        let expires = tls.not_after().and_then(|second| Timestamp::from_second(second.try_into().ok()?).ok());
        expires.ok_or_else(|| "the certificate does not show its end".to_owned())
    });
    let request = BeforeSaleRequest { voucher, busy_after: settings.busy_marker.busy_after, certificate };
    let mut exit = Exit::Ok;
    for (partition, checked) in ask_all(system, async |own| before_sale::check(own, &request).await).await {
        let checked = checked?;
        of_partition(system, partition, || output.print(&checked, render_sales))?;
        exit = exit_after(exit, &checked.report);
    }
    Ok(exit)
}

const fn exit_after(exit: Exit, report: &DoctorReport) -> Exit {
    if report.errors > 0 { Exit::No } else { exit }
}

fn render(diagnosis: &DoctorReport) -> String {
    let verdict = match diagnosis {
        DoctorReport { errors: 0, warnings: 0, not_read: 0, .. } => WELL.to_owned(),
        found => format!("{}.", numbers(found)),
    };
    format!("{}\n\n{verdict}", lines(diagnosis))
}

fn render_sales(BeforeSaleReport { sales, report }: &BeforeSaleReport) -> String {
    let verdict = match (report.errors, &sales[..]) {
        (0, []) => return "No sale begins within one hour.".to_owned(),
        (0, [_]) => "The sale may begin",
        (0, _) => "The sales may begin",
        _ => "Correct the errors before the sale begins",
    };
    format!("{}\n\n{verdict}: {}. To check the servers: tidegate doctor", lines(report), numbers(report))
}

fn lines(report: &DoctorReport) -> String {
    report.findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The numbers of findings that are not ok: `1 error, 2 warnings, 1 not read`.
fn numbers(report: &DoctorReport) -> String {
    let DoctorReport { errors, warnings, not_read, .. } = *report;
    let found = format!("{}, {}", counted(errors as u64, "error"), counted(warnings as u64, "warning"));
    if not_read > 0 { format!("{found}, {not_read} not read") } else { found }
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

//! The command `tidegate resume`: ends a pause, or lets unpaid orders expire again.

mod expirations;

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    fleet_pause::FleetPause,
    pause::{
        resume::{Resume, ResumePlan, ResumeReport, ResumeRequest, ResumedWorkers},
        voucher::VoucherPauseRequest,
    },
};
use tidegate_orders::VoucherId;

use super::pause::{failures, names, voucher};
use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate resume
  tidegate resume --workers
  tidegate resume --voucher 7 --yes
  tidegate resume --expirations --dry-run

Without a flag, the command ends the pause of all sales. With --workers, it ends the pause of all workers. A voucher
that was paused with --voucher stays paused: only --voucher resumes it. If nothing is paused, the command does
nothing.

Exits with 1 in these cases:
  - a pause remains that only another flag (--voucher or --workers) ends
  - Redis does not know the voucher
  - another command changed the pause of the workers at the same time

--expirations ends no pause. While orders wait for payment, workers raise a counter in MySQL and in Redis. If the
counter of one store falls, that store lost data, perhaps payments. Then no order expires until you run --expirations.
First find out what is lost, and append missing payments (tidegate order event paid): --expirations cancels overdue
orders at once.";

/// The arguments of `tidegate resume`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ResumeArgs {
    /// Resume the sale of only this voucher, even if `tidegate pause --voucher` paused it
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Resume the workers, and no sale
    #[arg(long, conflicts_with = "voucher")]
    workers: bool,
    /// Let unpaid orders expire again after Redis or MySQL lost data, and resume no sale
    #[arg(long, conflicts_with_all = ["voucher", "workers"])]
    expirations: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PlanText for ResumePlan {
    fn text(&self) -> String {
        let workers = self.workers.as_ref();
        let workers =
            workers.map(|pause| format!("the workers are paused {} and would be resumed", pause.origin()));
        let vouchers = (!self.vouchers.is_empty()).then(|| {
            format!(
                "{} would be resumed: {}",
                counted(self.vouchers.len() as u64, "sale"),
                names(&self.vouchers)
            )
        });
        let parts: Vec<String> = [
            workers,
            vouchers,
            stay_paused(&self.stay_paused),
            workers_stay_paused(self.workers_stay_paused.as_ref()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { "nothing is paused".to_owned() } else { parts.join("\n") }
    }
}

impl ReportText for ResumeReport {
    fn text(&self) -> String {
        let workers = match self.workers {
            ResumedWorkers::Resumed => Some("the workers start to read again within a second".to_owned()),
            ResumedWorkers::Refused => Some(
                "the workers were not resumed: another command has changed the pause meanwhile".to_owned(),
            ),
            ResumedWorkers::Unknown => {
                Some("it is unknown whether the workers were resumed, because Redis did not reply".to_owned())
            }
            ResumedWorkers::NotPaused => None,
        };
        let vouchers = &self.changed.vouchers;
        let sales = (!vouchers.is_empty())
            .then(|| format!("{} on: {}", going(vouchers.len() as u64), names(vouchers)));
        let parts: Vec<String> = [
            workers,
            sales,
            stay_paused(&self.stay_paused),
            workers_stay_paused(self.workers_stay_paused.as_ref()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() {
            return format!("no sale was resumed{}", failures(&self.changed));
        }
        format!("{}{}", parts.join("\n"), failures(&self.changed))
    }
}

fn going(sales: u64) -> String {
    format!("{} {}", counted(sales, "sale"), if sales == 1 { "goes" } else { "go" })
}

fn stay_paused(vouchers: &[VoucherId]) -> Option<String> {
    let named = names(vouchers);
    (!vouchers.is_empty())
        .then(|| format!("vouchers that stay paused, until you run tidegate resume --voucher ID: {named}"))
}

fn workers_stay_paused(pause: Option<&FleetPause>) -> Option<String> {
    pause.map(|pause| {
        format!("the workers stay paused, {}: to resume them, tidegate resume --workers", pause.origin())
    })
}

impl PartitionCommand for ResumeArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::EveryPartition(self.voucher)
    }

    /// Ends pauses, or lets unpaid orders expire again.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        if let Some(voucher) = self.voucher {
            return voucher::run(stores, VoucherPauseRequest::Resume(voucher), &self.change).await;
        }
        if self.expirations {
            return expirations::run(stores, &self.change).await;
        }
        let request = if self.workers { ResumeRequest::Workers } else { ResumeRequest::Sales };
        let redis = stores.redis().await?;
        let resume = Resume::new(redis, request);
        let plan = resume.plan(&ProgressBar::new()).await?;
        let report = ResumeReport::from(&plan);
        Change::new(stores, &self.change)
            .run_in_steps(plan, report, async |plan, report, job| resume.run(&plan, report, job).await)
            .await
    }
}

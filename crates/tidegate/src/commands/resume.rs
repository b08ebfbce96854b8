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

Without a flag, ends the pause of all sales; with --workers, that of all workers; with --voucher, that of one voucher. A
voucher that was paused with --voucher stays paused, even if `tidegate pause` has paused all others as well: only
--voucher resumes it. If nothing is paused, the command does nothing.

Exits with 1 in these cases:
  - the remaining pauses need another flag
  - Redis does not know the voucher
  - another command has changed the pause of the workers meanwhile

--expirations ends no pause. While orders wait for payment, workers raise a counter in MySQL and in Redis. If one store
has a lower counter than before, it lost data, perhaps payments, and no order expires. --expirations accepts both stores
as they are. First find out what is lost, and append missing payments (tidegate order event paid), because overdue
orders are cancelled at once.";

/// The arguments of `tidegate resume`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ResumeArgs {
    /// Only this voucher, however it was paused
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Resume the workers, instead of sales
    #[arg(long, conflicts_with = "voucher")]
    workers: bool,
    /// Let unpaid orders expire again after a store lost data, instead of resuming sales
    #[arg(long, conflicts_with_all = ["voucher", "workers"])]
    expirations: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PlanText for ResumePlan {
    fn text(&self) -> String {
        let workers = self.workers.as_ref();
        let workers =
            workers.map(|pause| format!("the workers, paused {}, would be resumed", pause.origin()));
        let vouchers = (!self.vouchers.is_empty()).then(|| {
            format!("{} would go on: {}", counted(self.vouchers.len() as u64, "sale"), names(&self.vouchers))
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
            ResumedWorkers::Resumed => Some("the workers read again within a second".to_owned()),
            ResumedWorkers::Refused => {
                Some("the workers: another command has changed their pause meanwhile".to_owned())
            }
            ResumedWorkers::Unknown => Some(
                "the workers: it is unknown whether they were resumed, because Redis did not reply"
                    .to_owned(),
            ),
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
        .then(|| format!("paused by name; to resume each, use tidegate resume --voucher ID: {named}"))
}

fn workers_stay_paused(pause: Option<&FleetPause>) -> Option<String> {
    pause.map(|pause| {
        format!("the workers stay paused, {}: tidegate resume --workers ends that", pause.origin())
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

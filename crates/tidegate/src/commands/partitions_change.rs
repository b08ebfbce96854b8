//! The command `tidegate partitions change`: changes the list of partitions of a system.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    System,
    partition_change::{self, ChangePlan, ChangeReport, PartitionChange, PlannedChange},
    partition_list::named_list,
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::SystemCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate partitions change --to 3,1 --dry-run
  tidegate partitions change --to 3,1,0,11
  tidegate partitions change --to 3,1,0,11 --yes

Run it in a quiet hour, because it pauses all sales. The command has four steps:
  1. It waits until workers have sent the results of removed partitions to webhooks. Then it pauses all
     sales: requests for orders get the reply 7 (paused).
  2. It waits until workers have written all orders of the streams and sent the last of these results.
     Then it waits until workers have ended and no HTTP gate uses the old list.
  3. It moves the keys of each voucher whose partition changes.
  4. It opens the sales again.
Gates load the new list by themselves. Keep the old list in stream.partitions until the command is done. Then give the
new list to producers and workers, and start the workers.

If the command is stopped or killed, run it again to continue. Until workers have written all orders and sent all
results, you can cancel the change: run the command with the old list in --to. If Redis is no cluster, --to ''
removes the partitions. Exits with 1 if a condition blocks the change, such as dead letters or a paused webhook with
unsent results.";

/// The arguments of `tidegate partitions change`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PartitionsChangeArgs {
    /// The new list: the tags of all partitions, in their order, separated by commas
    #[arg(long, value_name = "TAGS")]
    to: String,
    #[command(flatten)]
    change: ChangeArgs,
}

impl SystemCommand for PartitionsChangeArgs {
    /// Changes the list, or continues a change.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let to: Vec<String> = match self.to.as_str() {
            "" => Vec::new(),
            tags => tags.split(',').map(|tag| tag.trim().to_owned()).collect(),
        };
        partition_change::check(system, &to)?;
        let change = PartitionChange::connect(system, &to).await?;
        let plan = change.plan().await?;
        let report = ChangeReport::from(&plan);
        Change::new(change.log_stores(), &self.change)
            .run_in_steps(plan, report, async |plan, report, job| change.run(&plan, report, job).await)
            .await
    }
}

impl PlanText for ChangePlan {
    fn text(&self) -> String {
        let (from, to) = (named_list(&self.from), named_list(&self.to));
        match self.outcome {
            PlannedChange::ChangedBefore => {
                format!("the partitions are already {to}; nothing was changed")
            }
            PlannedChange::Refused => {
                let reason = self.reason.as_deref().unwrap_or_default();
                format!("the partitions stay {from}: {reason}")
            }
            PlannedChange::WouldGiveUp => {
                format!(
                    "the unfinished change would be cancelled: all sales would open again, and the partitions stay {to}"
                )
            }
            PlannedChange::WouldChange | PlannedChange::WouldGoOn => {
                let began = if self.outcome == PlannedChange::WouldGoOn { ", which has begun" } else { "" };
                format!(
                    "the partitions would change from {from} to {to}{began}: {} would be paused, {} moved. First, \
                     workers write {} and send {} of removed partitions to webhooks, {} end, and {} stop using the \
                     old list",
                    counted(self.vouchers, "sale"),
                    counted(self.moving, "sale"),
                    counted(self.entries, "entry"),
                    counted(self.unsent_results, "result"),
                    counted(self.workers, "worker"),
                    counted(self.gates, "gate")
                )
            }
        }
    }
}

impl ReportText for ChangeReport {
    fn text(&self) -> String {
        let to = named_list(&self.to);
        let done = format!(
            "{} paused, {} moved, {} opened",
            counted(self.closed, "sale"),
            counted(self.moved, "sale"),
            counted(self.opened, "sale")
        );
        if !self.is_done {
            let sales = if self.step.is_some() { "sales stay paused" } else { "no sale was paused" };
            return format!("the partitions are not changed to {to} yet: {done} so far; {sales}");
        }
        if self.from == self.to {
            return format!("the partitions stay {to}: {done}");
        }
        format!(
            "the partitions are {to}: {done}. Now set stream.partitions to this list for producers and workers, and start \
             the workers"
        )
    }
}

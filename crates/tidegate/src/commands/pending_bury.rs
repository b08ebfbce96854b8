//! The command `tidegate pending bury`: moves pending entries to the dead letters, so that no worker writes them.

use clap::Args;
use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    Stores,
    pending::bury::{BuryPlan, BuryReport, BuryRequest, PendingBurial, PendingChoice, RetainedReason},
};

use crate::{
    entry_arg::{self, EntryArg},
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
    output::table,
    pending::{PendingSelectionArgs, content},
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate pending bury 1795174742858-0 --why 'crashes every worker' --dry-run
  tidegate pending bury --dead --crashes 3 --why 'three workers died of it' --yes

Copies each entry to the dead letters and acknowledges the entry, in one step. The letters get the reason by_operator
(dead:reason), and the text of --why (dead:error). No units are released: until the letter is requeued or cancelled, its
units stay taken, and its user cannot order again.

Some entries stay, each with its reason:
  - entries of a consumer whose process is alive, because it may be writing them now: stop that
    worker, and run this command again before another worker claims the entries
  - entries of orders that are written or refused in MySQL: any worker acknowledges such entries
  - entries whose payload was deleted

Exits with 1 if any selected entry stays, or if more entries match than --limit. Ctrl-C ends the command with 6; run it
again to continue.";

/// The arguments of `tidegate pending bury`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PendingBuryArgs {
    /// The ids of the entries to move to the dead letters
    #[arg(value_name = "ENTRY", conflicts_with_all = ["consumer", "dead", "older_than", "set_aside", "crashes", "deliveries"])]
    pub entries: Vec<EntryArg>,
    #[command(flatten)]
    selection: PendingSelectionArgs,
    /// The reason, stored in the dead letter
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    why: String,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PendingBuryArgs {
    fn request(&self) -> BuryRequest {
        let entries = if self.entries.is_empty() {
            PendingChoice::Filter(self.selection.filter())
        } else {
            PendingChoice::Ids(entry_arg::ids(&self.entries))
        };
        BuryRequest { entries, why: self.why.clone() }
    }
}

fn reason(why: RetainedReason) -> &'static str {
    match why {
        RetainedReason::InProgress => "its consumer is alive and may be writing the order",
        RetainedReason::Written => "its order is written; any worker acknowledges the entry",
        RetainedReason::Refused => {
            "its order was refused; any worker releases the order and acknowledges the entry"
        }
        RetainedReason::Gone => "its payload was deleted; any worker acknowledges the entry",
        RetainedReason::NotPending => "the entry is not pending",
    }
}

impl PlanText for BuryPlan {
    fn text(&self) -> String {
        let mut table = table(&["entry", "consumer", "content", "would be"]);
        for pending in &self.bury {
            let consumer = printable(&pending.consumer);
            table.add_row([pending.entry.as_str(), &consumer, &content(pending), "buried"]);
        }
        for left in &self.left {
            table.add_row([left.entry.as_str(), "", "", &format!("left: {}", reason(left.why))]);
        }
        let more = if self.more { "\nMore pending entries match than --limit allows." } else { "" };
        if self.bury.is_empty() && self.left.is_empty() {
            return "No pending entry matches.".to_owned();
        }
        format!("{table}{more}")
    }
}

impl ReportText for BuryReport {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} buried.", counted(self.buried.len() as u64, "entry"))];
        lines.extend(self.left.iter().map(|left| format!("{} left: {}.", left.entry, reason(left.why))));
        lines.extend(self.more.then(|| "More pending entries match than --limit allows.".to_owned()));
        lines.join("\n")
    }
}

impl PartitionCommand for PendingBuryArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(&self.entries)
    }

    /// Buries the selected entries.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let request = self.request();
        // The flags are checked before a store is reached, so that mistakes are reported even if a store is away.
        request.check()?;
        let (redis, mysql) = stores.both().await?;
        let burial = PendingBurial::new((redis, mysql), stores.settings(), request)?;
        let plan = burial.plan(&ProgressBar::new()).await?;
        let report = BuryReport::from(&plan);
        Change::new(stores, &self.change)
            .run_in_steps(plan, report, async |plan, report, job| burial.run(&plan, report, job).await)
            .await
    }
}

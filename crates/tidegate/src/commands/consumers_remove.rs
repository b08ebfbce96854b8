//! `tidegate consumers remove`: removes dead consumers, after others have taken what they hold.

use std::time::Duration;

use clap::{ArgGroup, Args};
use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    SystemSettings, connect,
    consumers::{
        ConsumerChoice,
        remove::{ConsumerRemoval, ConsumerRemovalPlan, ConsumerRemovalReport, ConsumerRemovalRequest},
    },
};

use crate::{
    exit::Exit,
    moment,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate consumers remove --dead --dry-run
  tidegate consumers remove shop-7-0 shop-7-1
  tidegate consumers remove c1 --wait 5m --yes

Hands over what they hold, as `tidegate pending claim` does, and waits until workers have taken
it. Then removes each of them in one step, which checks again that it holds nothing and does not
live. A consumer that lives is refused. If entries are pending and no living worker reads the
stream, nothing is done: start a worker.

What could not be removed within --wait stays, and nothing of it is lost; the exit code is 1.
Ctrl-C ends it with 6; the same command again continues.

Workers remove dead, empty consumers by themselves after worker.retire_idle_ms.";

/// What `tidegate consumers remove` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("whom").required(true).args(["names", "dead"]))]
pub struct ConsumersRemoveArgs {
    /// Whom
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All whose process has no heartbeat
    #[arg(long)]
    dead: bool,
    /// How long to wait until workers have taken what they hold
    #[arg(long, value_name = "SPAN", value_parser = moment::parse_span, default_value = "2m")]
    wait: Duration,
    #[command(flatten)]
    change: ChangeArgs,
}

impl ConsumersRemoveArgs {
    fn request(&self) -> ConsumerRemovalRequest {
        let consumers =
            if self.dead { ConsumerChoice::Dead } else { ConsumerChoice::Named(self.names.clone()) };
        ConsumerRemovalRequest { consumers, wait: self.wait }
    }
}

impl PlanText for ConsumerRemovalPlan {
    fn text(&self) -> String {
        let Self { group, pending, .. } = self;
        if !self.unknown.is_empty() {
            return format!("Group {group} has no consumer {}.", printable(&self.unknown.join(", ")));
        }
        if !self.living.is_empty() {
            let living = printable(&self.living.join(", "));
            return format!("{living} lives, so nothing is done: stop its process (SIGTERM) first.");
        }
        if self.consumers.is_empty() {
            return format!("No consumer of group {group} is dead.");
        }
        let names: Vec<String> = self
            .consumers
            .iter()
            .map(|consumer| {
                format!("{}: {} pending", printable(&consumer.name), counted(consumer.pending, "entry"))
            })
            .collect();
        let names = names.join("\n");
        if self.has_no_taker() {
            let pending = counted(*pending, "entry");
            return format!(
                "{names}\nNo living worker reads the stream and could take {pending}, so nothing is done: start one."
            );
        }
        names
    }
}

impl ReportText for ConsumerRemovalReport {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} removed.", counted(self.removed.len() as u64, "consumer"))];
        if self.handed_over > 0 {
            lines.push(format!("{} handed over to workers.", counted(self.handed_over, "entry")));
        }
        lines.extend(self.kept.iter().map(|kept| {
            let consumer = printable(&kept.consumer);
            if kept.alive {
                return format!("{consumer} lives by now: it was not removed.");
            }
            let pending = counted(kept.pending, "entry");
            format!("{consumer} still has {pending} pending: it was not removed. See: tidegate pending list")
        }));
        lines.join("\n")
    }
}

/// Removes consumers.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &SystemSettings, args: &ConsumersRemoveArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let removal = ConsumerRemoval::new(&redis, settings, args.request());
    let plan = removal.plan().await?;
    let report = ConsumerRemovalReport::default();
    let work = async |plan: ConsumerRemovalPlan, report: &mut ConsumerRemovalReport, job: &_| {
        removal.run(&plan, report, job).await
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

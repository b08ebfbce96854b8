//! `tidegate purge`: deletes what is final and old.

use std::time::Duration;

use clap::Args;
use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    SystemSettings,
    purge::{Purge, PurgeCount, PurgeKind, PurgePlan, PurgeReport, PurgeRequest},
};
use tokio_util::sync::CancellationToken;

use crate::{
    exit::{Exit, WrongUsage},
    moment,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate purge --older-than 90d --refusals --events --dry-run
  tidegate purge --older-than 90d --refusals
  tidegate purge --older-than 30d --dead-letters --yes

Deletes what has an end in MySQL, is older than that, and whose order neither the stream nor a dead letter names any
more: refusals that no journal notes either; events of orders that are used, cancelled or refunded, but for the last
of each; dead letters whose orders are written, cancelled or refused. Nothing goes that is not named by a flag, nobody
else does this, and nothing brings it back: what can no longer be answered afterwards is in docs/purge.md. It deletes
at most some thousand rows at a time and rests as long. Ctrl-C ends it between two steps with exit code 6; the same
command again goes on.";

/// What `tidegate purge` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PurgeArgs {
    /// Only what is older than this, such as 90d
    #[arg(long, value_name = "SPAN", value_parser = moment::parse_span)]
    older_than: Duration,
    /// Purge refusals, in tidegate_refusal
    #[arg(long)]
    refusals: bool,
    /// Purge events of orders that have ended, in tidegate_event
    #[arg(long)]
    events: bool,
    /// Purge dead letters whose orders have ended in MySQL
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Purges.
///
/// # Errors
/// When a store cannot be reached, the stream cannot be read, or it was not said what to purge.
pub async fn run(settings: &SystemSettings, args: &PurgeArgs) -> anyhow::Result<Exit> {
    let PurgeArgs { older_than, refusals, events, dead_letters, ref change } = *args;
    let kinds = [
        (refusals, PurgeKind::Refusals),
        (events, PurgeKind::Events),
        (dead_letters, PurgeKind::DeadLetters),
    ];
    let kinds = kinds.into_iter().filter_map(|(is_wanted, kind)| is_wanted.then_some(kind)).collect();
    let request = PurgeRequest { older_than, kinds };
    if request.kinds.is_empty() {
        let wrong = "say what to purge: --refusals, --events, --dead-letters";
        return Err(WrongUsage(wrong.to_owned()).into());
    }
    let purge = Purge::connect(settings, request).await?;
    let plan = {
        let job = Job { stop: CancellationToken::new(), progress: Box::new(ProgressBar::new()) };
        purge.plan(&job).await?
    };
    let work = async |_plan: PurgePlan, report: &mut PurgeReport, job: &Job| purge.run(report, job).await;
    Change::new(settings, change).run_in_steps(plan, PurgeReport::default(), work).await
}

impl PlanText for PurgePlan {
    fn text(&self) -> String {
        lines(&[self.counts.refusals, self.counts.events, self.counts.dead_letters], "would go")
    }
}

impl ReportText for PurgeReport {
    fn text(&self) -> String {
        lines(&[self.counts.refusals, self.counts.events, self.counts.dead_letters], "deleted")
    }
}

fn lines(counts: &[Option<PurgeCount>; 3], what: &str) -> String {
    let nouns = ["refusal", "event", "dead letter"];
    let line = |(count, noun): (&Option<PurgeCount>, &str)| {
        let PurgeCount { purged, kept } = (*count)?;
        let kept = match kept {
            0 => String::new(),
            kept => format!("; {kept} as old stay, because something may still need them"),
        };
        Some(format!("{} {what}{kept}", counted(purged, noun)))
    };
    counts.iter().zip(nouns).filter_map(line).collect::<Vec<_>>().join("\n")
}

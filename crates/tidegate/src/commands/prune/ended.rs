//! `tidegate prune refusals`, `events` and `dead-letters`: deletes what is final and old.

use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    Stores,
    purge::{Purge, PurgeCount, PurgePlan, PurgeReport, PurgeRequest},
};
use tokio_util::sync::CancellationToken;

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
};

/// Prunes what the request names.
///
/// # Errors
/// When a store cannot be reached, or the stream cannot be read.
pub async fn run(stores: &Stores, request: PurgeRequest, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let purge = Purge::connect(stores, request).await?;
    let plan = {
        let job = Job { stop: CancellationToken::new(), progress: Box::new(ProgressBar::new()) };
        purge.plan(&job).await?
    };
    Change::new(stores, change)
        .run_in_steps(plan, PurgeReport::default(), async |_plan, report, job| purge.run(report, job).await)
        .await
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

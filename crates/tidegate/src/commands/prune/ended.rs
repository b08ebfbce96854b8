//! Pruning refusals, events and dead letters of orders that ended long ago.

use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    Stores,
    prune::{Prune, PruneCount, PruneCounts, PruneRequest},
};
use tokio_util::sync::CancellationToken;

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
};

/// Deletes old refusals, events or dead letters, as the request says.
///
/// # Errors
/// When a store cannot be reached, or the stream cannot be read.
pub async fn run(stores: &Stores, request: PruneRequest, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let prune = Prune::connect(stores, request).await?;
    let plan = {
        let job = Job { stop: CancellationToken::new(), progress: Box::new(ProgressBar::new()) };
        prune.plan(&job).await?
    };
    Change::new(stores, change)
        .run_in_steps(plan, PruneCounts::default(), async |_plan, report, job| prune.run(report, job).await)
        .await
}

impl PlanText for PruneCounts {
    fn text(&self) -> String {
        lines(self, "would be deleted")
    }
}

impl ReportText for PruneCounts {
    fn text(&self) -> String {
        lines(self, "deleted")
    }
}

fn lines(counts: &PruneCounts, what: &str) -> String {
    let line = |(count, noun): (Option<PruneCount>, &str)| {
        let PruneCount { purged, kept } = count?;
        let kept = match kept {
            0 => String::new(),
            kept => format!("; {kept} of the same age stay, because they may still be needed"),
        };
        Some(format!("{} {what}{kept}", counted(purged, noun)))
    };
    counts.by_noun().into_iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

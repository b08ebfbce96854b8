//! Pruning acknowledged stream entries that are old enough, as workers do by themselves.

use std::time::Duration;

use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    Stores,
    prune_stream::{Need, RetainedBy, StreamPrune, StreamPrunePlan, StreamPruneReport, StreamPruneRequest},
};
use tidegate_stream::EntryId;

use crate::{
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
    times,
};

/// Deletes old entries from the stream of orders.
///
/// # Errors
/// When Redis cannot be reached, its key holds no stream, or there is neither a flag nor a setting for the age.
pub async fn run(stores: &Stores, older_than: Option<Duration>, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let settings = stores.settings();
    let older_than = older_than.or(settings.stream.retention).ok_or_else(|| {
        WrongUsage("the setting stream.retention_ms is 0 (keep all entries): add --older-than".to_owned())
    })?;
    let request = StreamPruneRequest { older_than, count_all: change.is_plan_read() };
    let prune = StreamPrune::new(settings, stores.redis().await?.clone(), request);
    let plan = prune.plan(&ProgressBar::new()).await?;
    let report = StreamPruneReport::new(&plan);
    Change::new(stores, change)
        .run_in_steps(plan, report, async |plan, report, job| prune.run(&plan, report, job).await)
        .await
}

impl PlanText for StreamPrunePlan {
    fn text(&self) -> String {
        let Self { stream, length, entries, .. } = self;
        if self.no_group {
            return format!(
                "{stream}: no entry can be deleted: without a consumer group, it is unknown which entries are needed"
            );
        }
        let held = self.held_by.as_ref().map_or_else(String::new, |RetainedBy { group, id, why }| {
            let group = printable(group);
            match why {
                Need::Pending => {
                    format!("; group {group} needs all entries from {id} on, because {id} is pending")
                }
                Need::Unread => {
                    format!("; group {group} needs all entries after {id}, because it has not read them")
                }
            }
        });
        let of = counted(*length, "entry");
        if *entries == 0 {
            return format!(
                "{stream}: of {of}, none can be deleted{}{held}. Nothing was changed.",
                age(self)
            );
        }
        format!(
            "{stream}: {entries} of {of} can be deleted: they are old enough, and no group needs them{held}"
        )
    }
}

/// The phrase that compares the time of the oldest entry with the time before which entries are old enough.
fn age(plan: &StreamPrunePlan) -> String {
    let time = |id: EntryId| times::utc(i64::try_from(id.ms).unwrap_or(i64::MAX));
    let cutoff = time(plan.cutoff);
    plan.oldest.map(time).map_or_else(String::new, |oldest| {
        format!("; the oldest entry is of {oldest}, and only entries before {cutoff} are old enough")
    })
}

impl ReportText for StreamPruneReport {
    fn text(&self) -> String {
        let left = self.length.map(|length| format!(", {} left", counted(length, "entry")));
        format!("{}: {} deleted{}", self.stream, counted(self.deleted, "entry"), left.unwrap_or_default())
    }
}

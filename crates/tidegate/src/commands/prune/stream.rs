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

/// Prunes the stream.
///
/// # Errors
/// When Redis cannot be reached, its key holds no stream, or there is neither a flag nor a setting for the age.
pub async fn run(stores: &Stores, older_than: Option<Duration>, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let settings = stores.settings();
    let older_than = older_than.or(settings.stream.retention).ok_or_else(|| {
        WrongUsage("stream.retention_ms is 0, which keeps everything: give --older-than".to_owned())
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
                "{stream}: nothing can be deleted, because no consumer group shows which entries are still needed"
            );
        }
        let held = self.held_by.as_ref().map_or_else(String::new, |RetainedBy { group, id, why }| {
            let group = printable(group);
            match why {
                Need::Pending => format!("; group {group} needs all from {id} on, which is pending"),
                Need::Unread => {
                    format!("; group {group} has read nothing after {id} and needs all from there on")
                }
            }
        });
        let of = counted(*length, "entry");
        if *entries == 0 {
            return format!("{stream}: none of {of} can be deleted{}{held}. Nothing was changed.", age(self));
        }
        format!("{stream}: {entries} of {of} are old enough and needed by no group{held}")
    }
}

/// The age of the oldest entry, compared with the age that it would need.
fn age(plan: &StreamPrunePlan) -> String {
    let time = |id: EntryId| times::utc(i64::try_from(id.ms).unwrap_or(i64::MAX));
    let cutoff = time(plan.cutoff);
    plan.oldest.map(time).map_or_else(String::new, |oldest| {
        format!("; the oldest is of {oldest}, and only entries before {cutoff} are old enough")
    })
}

impl ReportText for StreamPruneReport {
    fn text(&self) -> String {
        let left = self.length.map(|length| format!(", {} left", counted(length, "entry")));
        format!("{}: {} deleted{}", self.stream, counted(self.deleted, "entry"), left.unwrap_or_default())
    }
}

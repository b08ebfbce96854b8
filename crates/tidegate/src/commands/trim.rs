//! `tidegate trim`: deletes acknowledged entries that are old enough, as workers do by themselves.

use std::time::Duration;

use clap::Args;
use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    SystemSettings, connect,
    trim::{HeldBy, Need, Trim, TrimPlan, TrimReport, TrimRequest},
};
use tidegate_stream::EntryId;

use crate::{
    exit::{Exit, WrongUsage},
    moment,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate trim --dry-run
  tidegate trim
  tidegate trim --older-than 12h --yes

Deletes entries that are older than stream.retention_ms or --older-than, below everything that any group of the stream
has not acknowledged or not read. What is unread or pending stays, however old. Redis deletes whole nodes, so up to a
hundred old entries stay. Workers do the same every worker.trim_every_ms; nobody needs this in everyday life. What is
deleted cannot be run again, and of orders without a journal it is the only trace in Redis: run tidegate audit before.
Ctrl-C ends it between two steps of 10,000 entries, with exit code 6; the same command again goes on.";

/// What `tidegate trim` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TrimArgs {
    /// Delete what is older than this, such as 12h or 3d; stream.retention_ms by default
    #[arg(long, value_name = "SPAN", value_parser = moment::parse_span)]
    older_than: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Trims the stream.
///
/// # Errors
/// When Redis cannot be reached, its key holds no stream, or there is no age to go by.
pub async fn run(settings: &SystemSettings, args: &TrimArgs) -> anyhow::Result<Exit> {
    let older_than = args.older_than.or(settings.stream.retention).ok_or_else(|| {
        WrongUsage("stream.retention_ms is 0, which keeps everything: say --older-than".to_owned())
    })?;
    let request = TrimRequest { older_than, count_all: args.change.is_plan_read() };
    let trim = Trim::new(settings, connect::redis(settings).await?, request);
    let plan = trim.plan(&ProgressBar::new()).await?;
    let report = TrimReport::new(&plan);
    let work = async |plan: TrimPlan, report: &mut TrimReport, job: &_| trim.run(&plan, report, job).await;
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

impl PlanText for TrimPlan {
    fn text(&self) -> String {
        let Self { stream, length, entries, .. } = self;
        if self.no_group {
            return format!("{stream}: nothing can be deleted, it has no group that says what it needs");
        }
        let held = self.held_by.as_ref().map_or_else(String::new, |HeldBy { group, id, why }| {
            let group = printable(group);
            match why {
                Need::Pending => format!("; group {group} keeps all from {id} on, which is pending"),
                Need::Unread => {
                    format!("; group {group} has read nothing after {id} and keeps all from there on")
                }
            }
        });
        let of = counted(*length, "entry");
        if *entries == 0 {
            return format!("{stream}: none of {of} can go{}{held}. Nothing was changed.", age(self));
        }
        format!("{stream}: {entries} of {of} are old enough and needed by no group{held}")
    }
}

/// How old the oldest entry is, beside how old it would have to be.
fn age(plan: &TrimPlan) -> String {
    let time = |id: EntryId| moment::utc(i64::try_from(id.ms).unwrap_or(i64::MAX));
    let cutoff = time(plan.cutoff);
    plan.oldest.map(time).map_or_else(String::new, |oldest| {
        format!("; the oldest is of {oldest}, and only what came before {cutoff} is old enough")
    })
}

impl ReportText for TrimReport {
    fn text(&self) -> String {
        let left = self.length.map(|length| format!(", {} left", counted(length, "entry")));
        format!("{}: {} deleted{}", self.stream, counted(self.deleted, "entry"), left.unwrap_or_default())
    }
}

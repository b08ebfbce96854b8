//! `tidegate replay`: runs entries again that are in the stream or in a file.

use std::{num::NonZeroU32, path::PathBuf};

use anyhow::Context;
use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    replay::{
        EntryRemark, RemarkKind, Replay, ReplayCounts, ReplayOutcomes, ReplayPlan, ReplayReport,
        ReplayRequest, ReplaySource,
    },
};
use tidegate_stream::server_time_ms;

use crate::{
    command_line::CommandLine,
    exit::{Exit, WrongUsage},
    times::{self, Point},
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
    scope::PartitionCommand,
    selection::{self, OnlyArgs},
};

const EXAMPLES: &str = "\
Examples:
  tidegate replay --from -2h --to now --dry-run
  tidegate replay --from '2026-11-20 10:00' --to '2026-11-20 11:00' --voucher 7
  tidegate replay --from 1763632800000-0 --to 1763636399999-5 --rate 2000 --yes
  tidegate replay --file orders.jsonl

Entries go through the same handler as in a worker, acknowledged or not. An order that is in
MySQL stays as it is, a missing one is written, a refused one stays refused. So the same replay
twice changes nothing the second time.

A replay acknowledges what it has run, where that is pending. It buries a pending entry that can
never be written, once no living worker has it in progress. It also runs what no worker has read
yet; the worker that reads it finds it done. It does not run an order that the journal knows as
released and MySQL does not know: its unit is sold to somebody else.

It publishes the results of what it acknowledges. Those of
other entries were published when they were acknowledged; --publish tells them once more.

--to is cut at the last entry that is there now.

--file reads what tidegate export wrote. The whole file is checked before anything is done. Its
entries need not be in the stream any more. Then --from and --to are optional, and nothing is
acknowledged or buried.

Exits with 0 when all was run, also when orders were refused; with 1 when some are left because
others hold their users or vouchers, or MySQL lacks what they depend on; with 3 when a store went away; with 6 after Ctrl-C. Unless
all was run, it says how to continue.";

/// What `tidegate replay` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The first: an entry id, RFC 3339, local time (a date alone is its midnight), -2h (so long ago) or Unix milliseconds
    #[arg(long, value_name = "TIME|ID", value_parser = times::parse_point, allow_hyphen_values = true)]
    #[arg(required_unless_present = "file")]
    from: Option<Point>,
    /// The last, in the same ways: a whole day ends at the next date
    #[arg(long, value_name = "TIME|ID", value_parser = times::parse_point, allow_hyphen_values = true)]
    #[arg(required_unless_present = "file")]
    to: Option<Point>,
    /// Read entries from this file instead of the stream
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    only: OnlyArgs,
    /// Orders a second, at most
    #[arg(long, value_name = "NUMBER")]
    rate: Option<NonZeroU32>,
    /// Publish the results of all entries, also of those that were acknowledged before
    #[arg(long)]
    publish: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for ReplayArgs {
    /// Runs them.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let now_ms = server_time_ms(redis.pool()).await.context("Failed to read the clock of Redis")?;
        let replay = Replay::open(stores, self.request(now_ms)?).await?;
        let plan = replay.plan(&ProgressBar::new()).await?;
        let report = ReplayReport::new(&plan);
        Change::new(stores, &self.change)
            .run_in_steps(plan, report, async |plan, report, job| replay.run(&plan, report, job).await)
            .await
    }
}

impl ReplayArgs {
    fn request(&self, now_ms: u64) -> Result<ReplayRequest, WrongUsage> {
        let (first, last) = times::range(self.from.as_ref(), self.to.as_ref(), now_ms)?;
        Ok(ReplayRequest {
            source: self.file.clone().map_or(ReplaySource::Stream, ReplaySource::File),
            first,
            last,
            filter: self.only.filter(),
            rate: self.rate,
            publish: self.publish,
            predict: self.change.is_plan_read(),
        })
    }
}

/// The command for `request`, but for the flags of every change.
fn typed(request: &ReplayRequest) -> CommandLine {
    let file = match &request.source {
        ReplaySource::Stream => None,
        ReplaySource::File(path) => Some(path.display()),
    };
    // What is so old that nobody can type it leaves nothing out.
    let from = request.first.map(|first| first.to_string());
    let from = from.filter(|from| times::parse_point(from).is_ok());
    let command = CommandLine::new("replay").flag("--file", file);
    let command = command.flag("--from", from).flag("--to", request.last);
    let command = selection::typed(request.filter, command).flag("--rate", request.rate);
    command.switch("--publish", request.publish)
}

impl PlanText for ReplayPlan {
    fn text(&self) -> String {
        let Self { source, first, last, entries, unread, .. } = self;
        let (Some(first), Some(last)) = (first, last) else {
            let (first, last) = self.bounds;
            return format!("{source}: {}, there is nothing to run", times::nothing_between(first, last));
        };
        let mut text = format!("{source}: {} from {first} to {last}", counted(*entries, "entry"));
        if *unread > 0 {
            text += &format!(", {unread} of them not read by any worker yet");
        }
        if let Some(ReplayOutcomes { counts, remarks }) = &self.predicted {
            let ReplayCounts { already_there, created, refused, buried, .. } = counts;
            let about = if self.is_estimate { "about " } else { "" };
            text += &format!(
                "\n{about}{already_there} already there, {created} would be created, {refused} would be refused, {buried} would \
                 be buried{}{}",
                rare(counts),
                lines(remarks),
            );
        }
        text
    }
}

impl ReportText for ReplayReport {
    fn text(&self) -> String {
        let Self { source, outcomes: ReplayOutcomes { counts, remarks }, left, acknowledged, .. } = self;
        let ReplayCounts { entries, already_there, created, refused, buried, .. } = counts;
        let mut text = format!(
            "{source}: {} run again\n{already_there} already there, {created} created, {refused} refused, {buried} buried{}; \
             {acknowledged} acknowledged",
            counted(*entries, "entry"),
            rare(counts),
        );
        if *left > 0 {
            text += &format!("\n{left} left: others are in the way, or MySQL lacks an order");
        }
        text + &lines(remarks)
    }

    fn continue_with(&self) -> Option<CommandLine> {
        Some(typed(&self.rest()))
    }
}

/// The counts that are named only where they are not 0.
fn rare(counts: &ReplayCounts) -> String {
    let rare = [
        (counts.events, "events recorded"),
        (counts.events_before, "events recorded before"),
        (counts.refused_before, "refused before"),
        (counts.released, "released and not run"),
        (counts.dead, "never to be written and not pending"),
        (counts.in_progress, "in progress of a living worker: waits"),
    ];
    let named = rare.iter().filter(|(count, _)| *count > 0);
    named.map(|(count, what)| format!(", {count} {what}")).collect()
}

/// A line for each.
fn lines(remarks: &[EntryRemark]) -> String {
    let line = |EntryRemark { entry, what, why }: &EntryRemark| {
        let what = match what {
            RemarkKind::Dead => "dead",
            RemarkKind::Released => "released",
            RemarkKind::InProgress => "in progress",
            RemarkKind::Left => "left",
        };
        format!("\n  {entry} {what}: {why}")
    };
    remarks.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tidegate_stream::EntryId;

    use super::*;
    use crate::cli;

    fn request(line: &str) -> ReplayRequest {
        let cli = cli::Cli::try_parse_from(line.split(' ')).unwrap();
        let cli::Command::Replay(args) = cli.command else { panic!("{line}") };
        args.request(1_763_640_000_000).unwrap()
    }

    #[test]
    fn the_command_for_the_rest_keeps_source_bounds_and_speed() {
        let id = |ms| EntryId { ms, seq: 0 };
        let (at, last) = (id(1_763_632_800_005), id(1_763_632_800_009));
        for (given, rest) in [
            (
                format!("--from -2h --to {last} --voucher 7 --rate 20 --publish"),
                format!("--from {at} --to {last} --voucher 7 --rate 20 --publish"),
            ),
            ("--file f.jsonl".to_owned(), format!("--file f.jsonl --from {at}")),
            ("--file f.jsonl --user 8".to_owned(), format!("--file f.jsonl --from {at} --user 8")),
            (format!("--file=-f --from -2h --to {last}"), format!("--file=-f --from {at} --to {last}")),
        ] {
            let request = request(&format!("tidegate replay {given}"));
            let again = typed(&ReplayRequest { first: Some(at), ..request });
            assert_eq!(again.parsed().0.join(" "), format!("tidegate replay {rest}"), "{given}");
        }
        let from_the_beginning =
            ReplayRequest { first: Some(EntryId::MIN), ..request("tidegate replay --file f.jsonl") };
        assert_eq!(typed(&from_the_beginning).parsed().0.join(" "), "tidegate replay --file f.jsonl");
    }
}

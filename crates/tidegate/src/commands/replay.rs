//! The command `tidegate replay`: processes entries of the stream or of a file again.

use std::{num::NonZeroU32, path::PathBuf};

use anyhow::Context;
use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    replay::{
        EntryWarning, Replay, ReplayCounts, ReplayOutcomes, ReplayPlan, ReplayReport, ReplayRequest,
        ReplaySource, WarningKind,
    },
};
use tidegate_stream::server_time_ms;

use crate::{
    command_line::CommandLine,
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
    scope::PartitionCommand,
    selection::{self, OnlyArgs},
    times::{self, Point},
};

const EXAMPLES: &str = "\
Examples:
  tidegate replay --from -2h --to now --dry-run
  tidegate replay --from '2026-11-20 10:00' --to '2026-11-20 11:00' --voucher 7
  tidegate replay --from 1763632800000-0 --to 1763636399999-5 --rate 2000 --yes
  tidegate replay --file orders.jsonl

The command handles each entry like a worker, even if the entry is acknowledged. An order that is in MySQL stays
unchanged, a missing order is written, and a refused order stays refused. A second run of the same replay changes
nothing.

The replay acknowledges the pending entries that it handles. If a pending entry can never be written and no living
worker has it in progress, the replay moves the entry to the dead letters. It also handles entries that no worker has
read yet. The replay skips an order that was released in Redis and that MySQL does not know, because its units may be
sold to another user.

It publishes the results of the entries that it acknowledges. With --publish, it also publishes the results of entries
that were acknowledged before.

It stops at the last entry that exists now, even if --to is later.

--file reads the output of tidegate export. The whole file is checked first. The stream need not have the entries any
more. With --file, --from and --to are optional, and the replay leaves pending entries and dead letters unchanged.

Exit codes:
  0  all entries were handled, also if MySQL refused orders
  1  some entries are left: other sessions hold locks, or MySQL lacks the order of an event
  3  Redis or MySQL could not be reached any more
  6  Ctrl-C ended the command
Unless all entries were handled, the command prints how to continue.";

/// The arguments of `tidegate replay`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The first entry: an entry id, RFC 3339, local time (a date alone is its midnight), -2h (two hours ago) or Unix
    /// milliseconds
    #[arg(long, value_name = "TIME|ID", value_parser = times::parse_point, allow_hyphen_values = true)]
    #[arg(required_unless_present = "file")]
    from: Option<Point>,
    /// The last entry, in the same formats as --from; for a whole day, give the date of the next day
    #[arg(long, value_name = "TIME|ID", value_parser = times::parse_point, allow_hyphen_values = true)]
    #[arg(required_unless_present = "file")]
    to: Option<Point>,
    /// Read entries from this file instead of the stream
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    only: OnlyArgs,
    /// The most orders to handle in a second
    #[arg(long, value_name = "NUMBER")]
    rate: Option<NonZeroU32>,
    /// Publish the results of all entries, including entries that were acknowledged before
    #[arg(long)]
    publish: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for ReplayArgs {
    /// Handles the selected entries again.
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

/// The command line for `request`, without the flags of [`ChangeArgs`].
fn typed(request: &ReplayRequest) -> CommandLine {
    let file = match &request.source {
        ReplaySource::Stream => None,
        ReplaySource::File(path) => Some(path.display()),
    };
    // A time before 2001 cannot be typed, but it would leave out no entry either.
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
            return format!(
                "{source}: {}, so there is no entry to replay",
                times::nothing_between(first, last)
            );
        };
        let mut text = format!("{source}: {} from {first} to {last}", counted(*entries, "entry"));
        if *unread > 0 {
            text += &format!(", among them {unread} that no worker has read yet");
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
            "{source}: {} handled again\n{already_there} already there, {created} created, {refused} refused, {buried} \
             buried{}; {acknowledged} acknowledged",
            counted(*entries, "entry"),
            rare(counts),
        );
        if *left > 0 {
            let left = counted(*left, "entry");
            text +=
                &format!("\n{left} left: another session holds locks, or MySQL lacks the order of an event");
        }
        text + &lines(remarks)
    }

    fn continue_with(&self) -> Option<CommandLine> {
        Some(typed(&self.rest()))
    }
}

/// The counts that are printed only if they are not 0.
fn rare(counts: &ReplayCounts) -> String {
    let rare = [
        (counts.events, "events recorded"),
        (counts.events_before, "events recorded before"),
        (counts.refused_before, "refused before"),
        (counts.released, "released and not written"),
        (counts.dead, "not pending and impossible to write"),
        (counts.in_progress, "left to a living worker that has them in progress"),
    ];
    let named = rare.iter().filter(|(count, _)| *count > 0);
    named.map(|(count, what)| format!(", {count} {what}")).collect()
}

/// The text of the remarks about entries, one a line.
fn lines(remarks: &[EntryWarning]) -> String {
    let line = |EntryWarning { entry, what, why }: &EntryWarning| {
        let what = match what {
            WarningKind::Dead => "dead",
            WarningKind::Released => "released",
            WarningKind::InProgress => "in progress",
            WarningKind::Left => "left",
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

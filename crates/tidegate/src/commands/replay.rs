//! `tidegate replay`: runs entries again that are in the stream or in a file.

use std::{num::NonZeroU32, path::PathBuf};

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::Foresight;
use tidegate_stream::{EntryId, Survey, server_time_ms};

use crate::{
    command_line::CommandLine,
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    moment::{self, Point},
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Progress, Report},
    output::counted,
    replay::{Counts, Done, FileLines, Origin, Pace, Replay, Source, Tidings},
    selection::{OnlyArgs, Page, Selection, StreamPages},
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
never be written, once no living worker has it in hand. It also runs what no worker has read
yet; the worker that reads it finds it done. It does not run an order that the journal knows as
given back and MySQL does not know: its unit is sold to somebody else.

--to is cut at the last entry that is there now.

--file reads what tidegate export wrote. The whole file is checked before anything is done. Its
entries need not be in the stream any more. Then --from and --to are optional, and nothing is
acknowledged or buried.

Exits with 0 when all was run, also when orders were refused; with 1 when some are left because
others hold their users or vouchers; with 3 when a store went away; with 6 after Ctrl-C. Unless
all was run, it says how to continue.";

/// What `tidegate replay` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The first: an entry id, RFC 3339, local time, -2h (so long ago) or Unix milliseconds
    #[arg(long, value_name = "TIME|ID", value_parser = moment::parse_point, allow_hyphen_values = true)]
    #[arg(required_unless_present = "file")]
    from: Option<Point>,
    /// The last, in the same ways
    #[arg(long, value_name = "TIME|ID", value_parser = moment::parse_point, allow_hyphen_values = true)]
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
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Outlook {
    /// The stream, or the file.
    source: String,
    /// The first of the entries.
    from: Option<String>,
    /// The last of them.
    to: Option<String>,
    /// How many there are.
    entries: u64,
    /// How many of them the group has not read yet.
    unread: u64,
    /// What would become of them; None where nobody would read it.
    foreseen: Option<Tidings>,
    /// There are so many that this is about right, and no more: orders that come twice may count as two.
    about: bool,
    #[serde(skip)]
    is_sorted: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Replayed<'a> {
    source: String,
    #[serde(flatten)]
    done: Done,
    #[serde(skip)]
    args: &'a ReplayArgs,
    #[serde(skip)]
    selection: Selection,
    #[serde(skip)]
    is_sorted: bool,
    /// This one and all after it are still to be run.
    #[serde(skip)]
    next: EntryId,
}

impl Plan for Outlook {
    fn text(&self) -> String {
        let Self { source, from, to, entries, unread, .. } = self;
        let (Some(from), Some(to)) = (from, to) else { return format!("{source}: there is nothing to run") };
        let mut text = format!("{source}: {} from {from} to {to}", counted(*entries, "entry"));
        if *unread > 0 {
            text += &format!(", {unread} of them not read by any worker yet");
        }
        if let Some(Tidings { counts, notes }) = &self.foreseen {
            let Counts { already_there, created, refused, buried, .. } = counts;
            let about = if self.about { "about " } else { "" };
            text += &format!(
                "\n{about}{already_there} already there, {created} would be created, {refused} would be refused, {buried} would \
                 be buried{}",
                rest(counts)
            );
            for note in notes {
                text += &format!("\n{}", note.text());
            }
        }
        text
    }

    fn next(&self) -> Next {
        match self.entries {
            0 => Next::Nothing(Exit::Ok),
            entries => Next::Ask(format!("Run {} of {} again?", counted(entries, "entry"), self.source)),
        }
    }
}

impl Report for Replayed<'_> {
    fn text(&self) -> String {
        let Done { tidings: Tidings { counts, notes }, left, acknowledged, .. } = &self.done;
        let Counts { entries, already_there, created, refused, buried, .. } = counts;
        let mut text = format!(
            "{}: {} run again\n{already_there} already there, {created} created, {refused} refused, {buried} buried{}; \
             {acknowledged} acknowledged",
            self.source,
            counted(*entries, "entry"),
            rest(counts),
        );
        if *left > 0 {
            text += &format!("\n{left} left: others are in the way");
        }
        for note in notes {
            text += &format!("\n{}", note.text());
        }
        text
    }

    fn counts(&self) -> Json {
        let mut counts = serde_json::to_value(&self.done.tidings.counts).unwrap_or_default();
        counts["acknowledged"] = json!(self.done.acknowledged);
        counts["left"] = json!(self.done.left);
        counts
    }

    fn ending(&self) -> Ending {
        if self.done.left > 0 { Ending::Left } else { Ending::Done }
    }

    fn go_on(&self) -> Option<CommandLine> {
        Some(self.args.typed_from(self.first_left(), self.selection, self.is_sorted))
    }
}

impl Replayed<'_> {
    /// What others were in the way of comes first: what was done since is found done.
    fn first_left(&self) -> EntryId {
        self.done.first_left.map_or(self.next, |left| left.min(self.next))
    }
}

impl ReplayArgs {
    /// The command for the entries from `at` on, but for the flags of every change.
    fn typed_from(
        &self,
        at: EntryId,
        Selection { first, last, only }: Selection,
        is_sorted: bool,
    ) -> CommandLine {
        let file = self.file.as_ref();
        let command = CommandLine::new("replay").flag("--file", file.map(|path| path.display()));
        // In a file that is not sorted, nothing can be left out: what is done is found done.
        let from = if is_sorted { Some(at) } else { self.from.map(|_| first) };
        // Nothing is meant that is so old.
        let from = from.map(|from| from.to_string()).filter(|from| moment::parse_point(from).is_ok());
        let to = (file.is_none() || self.to.is_some()).then_some(last);
        only.typed(command.flag("--from", from).flag("--to", to)).flag("--rate", self.rate)
    }
}

/// The counts that are told only if there is something to tell.
fn rest(counts: &Counts) -> String {
    let rest = [
        (counts.refused_before, "refused before"),
        (counts.given_back, "given back and not run"),
        (counts.dead, "never to be written and not pending"),
        (counts.in_hand, "in hand of a living worker: waits"),
    ];
    let told = rest.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!(", {count} {what}")).collect()
}

/// Runs them.
///
/// # Errors
/// When a store cannot be reached, or the file is not what it must be.
pub async fn run(settings: &Settings, args: &ReplayArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let command = Command { settings, args, redis: &redis };
    let selection = command.selection().await?;
    // Before MySQL: what is wrong with the file is said even without.
    let mut source = command.open(selection)?;
    let origin = if args.file.is_some() { Origin::File } else { Origin::Stream };
    let replay = Replay::open(settings, redis.clone(), origin).await?;
    let plan = command.look(&mut source, &replay).await?;
    let report = Replayed {
        source: plan.source.clone(),
        done: Done::default(),
        args,
        selection,
        is_sorted: plan.is_sorted,
        next: selection.first,
    };
    let work = async |plan: Outlook, done: &mut Replayed<'_>, job: &Job| {
        job.progress.expect(plan.entries, "entries");
        command.run_all(&replay, done, job).await
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

struct Command<'a> {
    settings: &'a Settings,
    args: &'a ReplayArgs,
    redis: &'a Pool,
}

impl Command<'_> {
    fn survey(&self) -> Survey {
        Survey::new(self.redis.clone(), self.settings.stream_names())
    }

    /// Entries to read at once.
    fn page(&self) -> u16 {
        u16::try_from(self.settings.worker.batch).unwrap_or(u16::MAX)
    }

    async fn selection(&self) -> anyhow::Result<Selection> {
        let now_ms = server_time_ms(self.redis).await.context("Failed to read the clock of Redis")?;
        let first = self.args.from.map_or(EntryId::MIN, |from| from.first(now_ms));
        let mut last = self.args.to.map_or(LARGEST, |to| to.last(now_ms));
        if first > last {
            return Err(WrongUsage("--from lies after --to".to_owned()).into());
        }
        if self.args.file.is_none() {
            // What comes in from now on is not meant: it would never end.
            let stream = self.settings.stream_names().stream;
            last = last.min(self.survey().last_id(&stream).await.context("Failed to read the stream")?);
        }
        Ok(Selection { first, last, only: self.args.only })
    }

    fn open(&self, selection: Selection) -> anyhow::Result<Source> {
        let fields = self.settings.keys.fields.clone();
        Ok(match &self.args.file {
            Some(path) => Source::File(FileLines::open(path, fields, selection)?),
            None => Source::Stream(StreamPages::new(self.survey(), fields, selection)),
        })
    }

    async fn look(&self, source: &mut Source, replay: &Replay) -> anyhow::Result<Outlook> {
        let is_foreseen = self.args.change.is_plan_read();
        let names = self.settings.stream_names();
        let (source_name, delivered) = match &self.args.file {
            Some(path) => (path.display().to_string(), None),
            None => (names.stream, Some(self.survey().last_delivered().await?.unwrap_or_default())),
        };
        let progress = Progress::new();
        match source {
            Source::Stream(_) => {
                progress.expect(self.survey().length(&source_name).await?, "entries looked at, at most");
            }
            Source::File(lines) => progress.expect(lines.length()?, "bytes looked at"),
        }
        let mut outlook = Outlook {
            source: source_name,
            from: None,
            to: None,
            entries: 0,
            unread: 0,
            foreseen: is_foreseen.then(Tidings::default),
            about: false,
            is_sorted: true,
        };
        let (mut before, mut bounds) = (Foresight::default(), None);
        while let Some(Page { entries, looked_at }) = source.next(self.page()).await? {
            let ids = || entries.iter().map(|entry| entry.id);
            for id in ids() {
                let (first, last) = bounds.unwrap_or((id, id));
                bounds = Some((id.min(first), id.max(last)));
            }
            outlook.entries += entries.len() as u64;
            outlook.unread += ids().filter(|id| delivered.is_some_and(|last| *id > last)).count() as u64;
            if let Some(seen) = &mut outlook.foreseen {
                replay.foresee(&entries, &mut before, seen).await.context("Failed to look")?;
            }
            progress.add(looked_at);
        }
        (outlook.from, outlook.to) =
            bounds.map(|(first, last)| (first.to_string(), last.to_string())).unzip();
        outlook.about = before.has_forgotten();
        if let Source::File(lines) = source {
            outlook.is_sorted = lines.is_sorted();
        }
        Ok(outlook)
    }

    async fn run_all(&self, replay: &Replay, all: &mut Replayed<'_>, job: &Job) -> anyhow::Result<End> {
        let mut source = self.open(all.selection)?;
        let mut pace = Pace::new(self.args.rate);
        let step = pace.step(self.page().into());
        while let Some(page) = source.next(self.page()).await? {
            for batch in page.entries.chunks(step) {
                all.next = batch[0].id;
                if job.is_stopped() || !pace.wait_for(batch.len(), &job.stop).await {
                    return Ok(End::Stopped);
                }
                if let Some(left) = replay.run(batch, &mut all.done, &job.stop).await? {
                    all.next = left;
                    return Ok(End::Stopped);
                }
                job.progress.add(batch.len() as u64);
            }
            all.next = page.entries.last().map_or(all.next, |last| last.id.next());
            if page.entries.is_empty() && job.is_stopped() {
                return Ok(End::Stopped);
            }
        }
        Ok(End::Whole)
    }
}

/// No entry has a larger id.
const LARGEST: EntryId = EntryId { ms: u64::MAX, seq: u64::MAX };

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli;

    #[test]
    fn the_command_for_the_rest_keeps_source_bounds_and_speed() {
        let id = |ms| EntryId { ms, seq: 0 };
        let (first, at, last) = (id(1_763_632_800_001), id(1_763_632_800_005), id(1_763_632_800_009));
        let bounds = &format!("--from -2h --to {last}");
        let rest_of = &format!("--from {at}");
        for (typed, is_sorted, rest) in [
            (
                format!("{bounds} --voucher 7 --rate 20"),
                true,
                format!("{rest_of} --to {last} --voucher 7 --rate 20"),
            ),
            ("--file f.jsonl".to_owned(), true, format!("--file f.jsonl {rest_of}")),
            ("--file f.jsonl --user 8".to_owned(), false, "--file f.jsonl --user 8".to_owned()),
            (format!("--file=-f {bounds}"), false, format!("--file=-f --from {first} --to {last}")),
        ] {
            let line = format!("tidegate replay {typed}");
            let cli = cli::Cli::try_parse_from(line.split(' ')).unwrap();
            let cli::Command::Replay(args) = cli.command else { panic!("{line}") };
            let selection = Selection { first, last, only: args.only };
            let again = args.typed_from(at, selection, is_sorted);
            assert_eq!(again.parsed().0.join(" "), format!("tidegate replay {rest}"), "{line}");
        }
        let cli = cli::Cli::try_parse_from(["tidegate", "replay", "--file", "f.jsonl"]).unwrap();
        let cli::Command::Replay(args) = cli.command else { panic!("another command") };
        let selection = Selection { first: EntryId::MIN, last, only: args.only };
        let again = args.typed_from(EntryId::MIN, selection, true);
        assert_eq!(again.parsed().0.join(" "), "tidegate replay --file f.jsonl");
    }
}

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
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    moment::{self, Point},
    operator::{Change, ChangeArgs, Ending, Job, Next, Plan, Progress, Report},
    output::counted,
    replay::{Counts, Done, FileLines, Origin, Pace, Replay, Source, Tidings},
    selection::{OnlyArgs, Page, Selection, StreamPages},
};

const EXAMPLES: &str = "\
Examples:
  tidegate replay --from -2h --to 0s --dry-run
  tidegate replay --from '2026-11-20 10:00' --to '2026-11-20 11:00' --voucher 7
  tidegate replay --from 1763632800000-0 --to 1763636399999-5 --rate 2000 --yes
  tidegate replay --file orders.jsonl

Entries go through the same handler as in a worker, acknowledged or not: an order that is in MySQL stays as it is, one
that is missing is written, one that was refused stays refused. So the same replay twice changes nothing the second time.
Of what it has run, it acknowledges what is pending, and buries what is pending and can never be written. What no worker
has read yet is run, too; the worker that reads it finds it done. An order that the journal knows as given back and
MySQL does not know is not run: its unit is sold to somebody else. --to is cut at the last entry that is there now.

A file holds what tidegate export wrote, and is checked as a whole before anything is done. Its entries need not be in
the stream any more; --from and --to are optional then, and nothing is acknowledged or buried.

Exits with 0 when all was run, also when orders were refused; with 1 when some are left because others hold their users
or vouchers; with 3 when a store went away; with 6 after Ctrl-C. In each of these cases it says how to go on.";

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
    selection: Selection,
    #[serde(skip)]
    is_sorted: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Replayed {
    source: String,
    #[serde(flatten)]
    done: Done,
    /// Why it ended before the end.
    error: Option<String>,
    stopped: bool,
    /// What to type for the rest.
    go_on: Option<String>,
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

impl Report for Replayed {
    fn text(&self) -> String {
        let Done { tidings: Tidings { counts, notes }, left, acknowledged } = &self.done;
        let Counts { entries, already_there, created, refused, buried, .. } = counts;
        let mut text = format!(
            "{}: {} run again\n{already_there} already there, {created} created, {refused} refused, {buried} buried{}; \
             {acknowledged} acknowledged",
            self.source,
            counted(*entries, "entry"),
            rest(counts),
        );
        if *left > 0 {
            text += &format!("\n{left} left: others are in the way; run them again later");
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
        match (&self.error, &self.go_on) {
            (Some(error), Some(go_on)) => Ending::Failed { error: error.clone(), go_on: go_on.clone() },
            (_, Some(go_on)) if self.stopped => Ending::Stopped { go_on: go_on.clone() },
            _ if self.done.left > 0 => Ending::Refused,
            _ => Ending::Done,
        }
    }
}

/// The counts that are told only if there is something to tell.
fn rest(counts: &Counts) -> String {
    let rest = [
        (counts.refused_before, "refused before"),
        (counts.given_back, "given back and not run"),
        (counts.dead, "never to be written and not pending"),
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
    let plan = command.look(selection, &mut source, &replay).await?;
    let work = async |plan: Outlook, job: &Job| command.work(plan, &replay, job).await;
    Change::new(settings, &args.change).run(plan, work).await
}

struct Command<'a> {
    settings: &'a Settings,
    args: &'a ReplayArgs,
    redis: &'a Pool,
}

/// Why it ended before the end.
enum End {
    Stopped,
    Failed(String),
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
        Ok(match &self.args.file {
            Some(path) => Source::File(FileLines::open(path, selection)?),
            None => Source::Stream(StreamPages::new(self.survey(), selection)),
        })
    }

    async fn look(
        &self,
        selection: Selection,
        source: &mut Source,
        replay: &Replay,
    ) -> anyhow::Result<Outlook> {
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
            selection,
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

    async fn work(&self, plan: Outlook, replay: &Replay, job: &Job) -> anyhow::Result<Replayed> {
        job.progress.expect(plan.entries, "entries");
        let mut done = Done::default();
        let end = self.run_all(&plan, replay, job, &mut done).await?;
        let (stopped, error) = match &end {
            Some((End::Stopped, _)) => (true, None),
            Some((End::Failed(error), _)) => (false, Some(error.clone())),
            None => (false, None),
        };
        let go_on = end.map(|(_, at)| self.again(&plan, at));
        Ok(Replayed { source: plan.source, done, error, stopped, go_on })
    }

    /// Runs all, or up to the entry that it answers with: that and all after it are left.
    async fn run_all(
        &self,
        plan: &Outlook,
        replay: &Replay,
        job: &Job,
        done: &mut Done,
    ) -> anyhow::Result<Option<(End, EntryId)>> {
        let mut source = self.open(plan.selection)?;
        let mut pace = Pace::new(self.args.rate);
        let step = pace.step(self.page().into());
        let mut next = plan.selection.first;
        loop {
            let page = match source.next(self.page()).await {
                Ok(Some(page)) => page.entries,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some((End::Failed(format!("{error:#}")), next))),
            };
            for batch in page.chunks(step) {
                next = batch[0].id;
                if job.is_stopped() || !pace.wait_for(batch.len(), &job.stop).await {
                    return Ok(Some((End::Stopped, next)));
                }
                match replay.run(batch, done, &job.stop).await {
                    Ok(None) => {}
                    Ok(Some(left)) => return Ok(Some((End::Stopped, left))),
                    Err(outage) => return Ok(Some((End::Failed(outage.to_string()), next))),
                }
                job.progress.add(batch.len() as u64);
            }
            next = page.last().map_or(next, |last| last.id.next());
        }
    }

    /// What to type to go on at an entry.
    fn again(&self, plan: &Outlook, at: EntryId) -> String {
        let Selection { last, only, .. } = plan.selection;
        let rate = self.args.rate.map(|rate| format!(" --rate {rate}")).unwrap_or_default();
        let (only, to) = (only.typed(), format!(" --to {last}"));
        match &self.args.file {
            None => format!("tidegate replay --from {at}{to}{only}{rate}"),
            Some(path) => {
                let path = path.to_string_lossy();
                let path = shlex::try_quote(&path).unwrap_or_else(|_| path.as_ref().into());
                // In a file that is not sorted, nothing can be left out: what is done is found done.
                let from = if plan.is_sorted { format!(" --from {at}") } else { String::new() };
                let to = if self.args.to.is_some() { to } else { String::new() };
                format!("tidegate replay --file {path}{from}{to}{only}{rate}")
            }
        }
    }
}

/// No entry has a larger id.
const LARGEST: EntryId = EntryId { ms: u64::MAX, seq: u64::MAX };

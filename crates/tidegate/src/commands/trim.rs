//! `tidegate trim`: deletes acknowledged entries that are old enough, as workers do by themselves.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use fred::{clients::Pool, interfaces::StreamsInterface};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_stream::{EntryId, Hold, KeyKind, Need, Survey, Trimmer, count_before, inspect};

use crate::{
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    moment,
    operator::{Change, ChangeArgs, End, Job, Next, Plan, Progress, Report},
    output::{counted, printable},
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

/// What was found.
#[derive(Debug, Serialize)]
struct Outlook {
    stream: String,
    /// Entries in the stream.
    length: u64,
    /// Only entries before this one are old enough.
    cutoff: String,
    /// The first entry there is.
    oldest: Option<String>,
    /// How many would go, at most. Where nobody reads this, it is only told apart whether any would.
    entries: u64,
    /// Why no more; None: all that are old enough would go.
    held_by: Option<HeldBy>,
    /// Nothing can go, because nobody says what is needed.
    no_group: bool,
    #[serde(skip)]
    before: EntryId,
}

/// The group that needs the oldest entry.
#[derive(Debug, Serialize)]
struct HeldBy {
    group: String,
    id: String,
    /// `pending` or `unread`: this entry is pending, or all after it are unread.
    why: &'static str,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Trimmed {
    stream: String,
    deleted: u64,
    /// Entries that are left; None: Redis does not tell any more.
    length: Option<u64>,
}

impl Plan for Outlook {
    fn text(&self) -> String {
        let Self { stream, length, entries, .. } = self;
        if self.no_group {
            return format!("{stream}: nothing can be deleted, it has no group that says what it needs");
        }
        let held = self.held_by.as_ref().map_or_else(String::new, |HeldBy { group, id, why }| {
            let group = printable(group);
            match *why {
                "pending" => format!("; group {group} keeps all from {id} on, which is pending"),
                _ => format!("; group {group} has read nothing after {id} and keeps all from there on"),
            }
        });
        let of = counted(*length, "entry");
        if *entries == 0 {
            return format!("{stream}: none of {of} can go{}{held}. Nothing was changed.", self.age());
        }
        format!("{stream}: {entries} of {of} are old enough and needed by no group{held}")
    }

    fn next(&self) -> Next {
        match self.entries {
            0 => Next::Nothing(Exit::Ok),
            entries => Next::Ask(format!("Delete up to {} of {}?", counted(entries, "entry"), self.stream)),
        }
    }
}

impl Outlook {
    /// How old the oldest entry is, beside how old it would have to be.
    fn age(&self) -> String {
        let time = |id: &str| {
            id.parse().ok().map(|id: EntryId| moment::utc(i64::try_from(id.ms).unwrap_or(i64::MAX)))
        };
        let (oldest, cutoff) = (self.oldest.as_deref().and_then(time), time(&self.cutoff));
        let (Some(oldest), Some(cutoff)) = (oldest, cutoff) else { return String::new() };
        format!("; the oldest is of {oldest}, and only what came before {cutoff} is old enough")
    }
}

impl Report for Trimmed {
    fn text(&self) -> String {
        let left = self.length.map(|length| format!(", {} left", counted(length, "entry")));
        format!("{}: {} deleted{}", self.stream, counted(self.deleted, "entry"), left.unwrap_or_default())
    }

    fn counts(&self) -> Json {
        json!({ "deleted": self.deleted })
    }
}

/// Trims the stream.
///
/// # Errors
/// When Redis cannot be reached, its key holds no stream, or there is no age to go by.
pub async fn run(settings: &Settings, args: &TrimArgs) -> anyhow::Result<Exit> {
    let retention = args.older_than.or(settings.stream.retention).ok_or_else(|| {
        WrongUsage("stream.retention_ms is 0, which keeps everything: say --older-than".to_owned())
    })?;
    let redis = connect::redis(settings).await?;
    let trimmer = Trimmer::new(redis.clone(), settings.stream_names(), retention);
    let enough = if args.change.is_plan_read() { u64::MAX } else { 1 };
    let plan = look(&redis, settings, &trimmer, enough).await.context("Failed to read the stream")?;
    let report = Trimmed { stream: plan.stream.clone(), deleted: 0, length: None };
    let work = async |plan: Outlook, done: &mut Trimmed, job: &Job| {
        job.progress.expect(if enough == 1 { plan.length } else { plan.entries }, "entries, at most");
        let mut end = End::Stopped;
        while !job.is_stopped() {
            let now = trimmer.step(plan.before).await.context("Failed to trim the stream")?;
            if now == 0 {
                end = End::Whole;
                break;
            }
            job.progress.add(now);
            done.deleted += now;
        }
        done.length = Some(redis.xlen(&plan.stream).await.context("Failed to read the stream")?);
        Ok(end)
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

async fn look(redis: &Pool, settings: &Settings, trimmer: &Trimmer, enough: u64) -> anyhow::Result<Outlook> {
    let names = settings.stream_names();
    let status = inspect(redis, &names).await?;
    if let KeyKind::Other(kind) = status.kind {
        anyhow::bail!("{} holds a {kind}", names.stream);
    }
    let cutoff = trimmer.cutoff().await?;
    let outlook = trimmer.outlook(cutoff).await?;
    let survey = Survey::new(redis.clone(), names.clone());
    let oldest = survey.page(&names.stream, (EntryId::MIN, EntryId::MAX), 1).await?;
    let progress = Progress::new();
    let entries = match outlook.keep_from {
        None => 0,
        Some(before) => {
            progress.expect(status.length, "entries looked at");
            count_before(redis, &names.stream, before, enough, |seen| progress.add(seen)).await?
        }
    };
    Ok(Outlook {
        stream: names.stream,
        length: status.length,
        cutoff: cutoff.to_string(),
        oldest: oldest.first().map(|entry| entry.id.to_string()),
        entries,
        held_by: outlook.held_by.map(held_by),
        no_group: outlook.keep_from.is_none(),
        before: cutoff,
    })
}

fn held_by(hold: Hold) -> HeldBy {
    let why = match hold.need {
        Need::Pending => "pending",
        Need::LastDelivered => "unread",
    };
    HeldBy { group: hold.group, id: hold.id.to_string(), why }
}

//! `tidegate export`: entries of the stream as lines of JSON.

use std::{
    fs::File,
    io::{self, BufWriter, ErrorKind, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use serde::Serialize;
use tidegate_stream::{EntryId, Line, Survey, server_time_ms};

use crate::{
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    moment::{self, Point},
    operator::Progress,
    output::{OutputArgs, counted},
    selection::{OnlyArgs, Page, Selection, StreamPages},
    signals::Signals,
};

/// Entries that are read at once.
const PAGE: u16 = 1_000;

const EXAMPLES: &str = "\
Examples:
  tidegate export --from 2026-11-20 --to 2026-11-21 --out orders.jsonl
  tidegate export --from -2h --to 0s --voucher 7 | gzip > orders.jsonl.gz
  tidegate export --from 1763632800000-0 --to 1763636399999-5 --user 1001

Writes one entry a line, as it stands in the stream, acknowledged or not:
  {\"entry\":\"1763632800000-0\",\"fields\":[[\"userId\",\"1001\"],[\"voucherId\",\"7\"],[\"id\",\"693106606080001\"]]}
A name or value that is no UTF-8 is written as {\"base64\":\"//4=\"}. Entries that are no orders are written, too.
tidegate replay --file runs them. Changes nothing in Redis, and never writes over a file. --to is cut at the last entry
that is there now. Ctrl-C ends it after whole lines with exit code 6, and says how to go on. With --out, what was done
is printed; --json makes that JSON.";

/// What `tidegate export` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The first: an entry id, RFC 3339, local time, -2h (so long ago) or Unix milliseconds
    #[arg(long, value_name = "TIME|ID", value_parser = moment::parse_point, allow_hyphen_values = true)]
    from: Point,
    /// The last, in the same ways
    #[arg(long, value_name = "TIME|ID", value_parser = moment::parse_point, allow_hyphen_values = true)]
    to: Point,
    #[command(flatten)]
    only: OnlyArgs,
    /// Write to this file, which must not be there; stdout by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Exported {
    stream: String,
    out: Option<PathBuf>,
    entries: u64,
    /// What to type for the rest.
    go_on: Option<String>,
}

/// Writes them.
///
/// # Errors
/// When Redis cannot be reached, its key holds no stream, or the file is there or cannot be written.
pub async fn run(settings: &Settings, args: &ExportArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let (survey, stream) =
        (Survey::new(redis.clone(), settings.stream_names()), settings.stream_names().stream);
    let selection = selection(args, &redis, &survey).await?;
    let mut signals = Signals::listen().context("Failed to listen to signals")?;
    let progress = Progress::new();
    if io::stderr().is_terminal() {
        progress.expect(survey.length(&stream).await?, "entries, at most");
    }
    let mut out = Out::open(args.out.as_deref())?;
    let mut pages = StreamPages::new(survey, selection);
    let (mut entries, mut next) = (0, selection.first);
    let mut go_on = None;
    loop {
        let page = tokio::select! {
            biased;
            _ = signals.next() => {
                go_on = Some(again(args, next, selection.last));
                break;
            }
            page = pages.next(PAGE) => page.with_context(|| {
                format!("Failed to read the stream; go on with: {}", again(args, next, selection.last))
            })?,
        };
        let Some(Page { entries: page, looked_at }) = page else { break };
        let lines: String = page.iter().map(|entry| Line::from(entry).to_json() + "\n").collect();
        if !out.write(&lines)? {
            return Ok(Exit::Ok);
        }
        entries += page.len() as u64;
        next = page.last().map_or(next, |last| last.id.next());
        progress.add(looked_at);
    }
    out.finish()?;
    drop(progress);
    let exit = if go_on.is_some() { Exit::Stopped } else { Exit::Ok };
    if let Some(go_on) = &go_on {
        eprintln!("Stopped before all was done. Go on with: {go_on}");
    }
    if args.out.is_some() {
        let exported = Exported { stream, out: args.out.clone(), entries, go_on };
        args.output.print(&exported, |exported| {
            let out = exported.out.as_ref().map(|out| out.display().to_string()).unwrap_or_default();
            format!("{out}: {} of {} written", counted(exported.entries, "entry"), exported.stream)
        })?;
    }
    Ok(exit)
}

async fn selection(args: &ExportArgs, redis: &Pool, survey: &Survey) -> anyhow::Result<Selection> {
    let now_ms = server_time_ms(redis).await.context("Failed to read the clock of Redis")?;
    let (first, last) = (args.from.first(now_ms), args.to.last(now_ms));
    if first > last {
        return Err(WrongUsage("--from lies after --to".to_owned()).into());
    }
    // What comes in from now on is not meant: it would never end.
    let end = survey.last_id(&survey.names().stream).await.context("Failed to read the stream")?;
    Ok(Selection { first, last: last.min(end), only: args.only })
}

/// What to type to go on at an entry; the lines are to be appended.
fn again(args: &ExportArgs, at: EntryId, last: EntryId) -> String {
    let out = args.out.as_ref().map(|out| {
        let out = out.to_string_lossy();
        let quoted = shlex::try_quote(&out).unwrap_or_else(|_| out.as_ref().into());
        format!(" >> {quoted}")
    });
    format!("tidegate export --from {at} --to {last}{}{}", args.only.typed(), out.unwrap_or_default())
}

/// Where the lines go.
enum Out {
    Stdout,
    File(BufWriter<File>, PathBuf),
}

impl Out {
    fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        match File::create_new(path) {
            Ok(file) => Ok(Self::File(BufWriter::new(file), path.to_owned())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(WrongUsage(format!("{} is there already, and is not written over", path.display()))
                    .into())
            }
            Err(error) => Err(error).with_context(|| format!("Failed to make {}", path.display())),
        }
    }

    /// Writes whole lines. Answers whether anybody still reads.
    fn write(&mut self, lines: &str) -> anyhow::Result<bool> {
        match self {
            Self::Stdout => match io::stdout().write_all(lines.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
                written => written.context("Failed to write to stdout").map(|()| true),
            },
            Self::File(file, path) => {
                let written = file.write_all(lines.as_bytes());
                written.with_context(|| format!("Failed to write to {}", path.display())).map(|()| true)
            }
        }
    }

    /// To the disk: the stream may be trimmed next.
    fn finish(self) -> anyhow::Result<()> {
        let Self::File(mut file, path) = self else { return Ok(io::stdout().flush().or_else(is_gone)?) };
        let synced = file.flush().and_then(|()| file.get_ref().sync_all());
        synced.with_context(|| format!("Failed to write to {}", path.display()))
    }
}

/// A reader who went away early (`| head`) is no failure.
fn is_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

//! `tidegate log`: what operators did.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use clap::Args;
use tidegate_stream::{EntryId, server_time_ms};
use tokio::time::sleep;

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    moment::{self, Point},
    operator::{Line, OperatorLog, Outcome},
    output::{OutputArgs, printable, table},
};

/// Lines that are read at once.
const PAGE: u64 = 1_000;
/// Between two looks for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  tidegate log
  tidegate log --last 100
  tidegate log --since -2h
  tidegate log --since 2026-11-20 --json | jq '.[] | select(.outcome == \"failed\")'
  tidegate log --follow

A command that changes something leaves two lines: when it begins and when it ends. Shown is the second; the first
only where there is no second, because the command is still at work or was killed. Outcomes: began, done, refused,
stopped (by a signal), failed. Counts of 0 are in --json only. With --follow, every line is shown as it comes, as JSON one object in a line, until
Ctrl-C. About operator.log_lines lines are kept.";

/// What `tidegate log` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LogArgs {
    /// The last so many commands; 20 by default, all with --since
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    last: Option<u64>,
    /// From this time on: RFC 3339, local time, -2h (so long ago), Unix milliseconds or an entry id
    #[arg(long, value_name = "TIME", value_parser = moment::parse_point, allow_hyphen_values = true)]
    since: Option<Point>,
    /// Go on with what comes
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the log.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &LogArgs) -> anyhow::Result<Exit> {
    let pool = connect::redis(settings).await?;
    let log = OperatorLog::new(pool.clone(), settings);
    let since = match args.since {
        Some(since) => Some(since.first(server_time_ms(&pool).await?)),
        None => None,
    };
    let lines = read(&log, since, args.last).await.context("Failed to read the log")?;
    if args.follow {
        return follow(&log, lines, since.unwrap_or(EntryId::MIN), args.output).await;
    }
    args.output.print(&lines, |lines| render(lines.as_slice()))?;
    Ok(Exit::Ok)
}

/// One line for each command, oldest first.
async fn read(log: &OperatorLog, since: Option<EntryId>, last: Option<u64>) -> anyhow::Result<Vec<Line>> {
    let (lines, most) = match (since, last) {
        (Some(since), last) => (read_all(log, since).await?, last),
        // Two lines make one.
        (None, last) => (log.last(last.unwrap_or(20) * 2).await?, Some(last.unwrap_or(20))),
    };
    let lines = without_beginnings(lines);
    let most = usize::try_from(most.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let skipped = lines.len().saturating_sub(most);
    Ok(lines.into_iter().skip(skipped).collect())
}

async fn read_all(log: &OperatorLog, since: EntryId) -> anyhow::Result<Vec<Line>> {
    let (mut lines, mut from) = (Vec::new(), since);
    loop {
        let page = log.read(from, PAGE).await?;
        let is_last = (page.len() as u64) < PAGE;
        lines.extend(page);
        match lines.last() {
            Some(line) if !is_last => from = line.id.next(),
            _ => return Ok(lines),
        }
    }
}

/// The beginning of a command says nothing any more once its end is there.
fn without_beginnings(lines: Vec<Line>) -> Vec<Line> {
    let ended: BTreeSet<String> = lines.iter().filter_map(|line| line.began.clone()).collect();
    lines.into_iter().filter(|line| !ended.contains(&line.id.to_string())).collect()
}

/// Prints lines, and those that come from `from` on, until the reader goes away or the program is interrupted.
async fn follow(
    log: &OperatorLog,
    mut lines: Vec<Line>,
    mut from: EntryId,
    output: OutputArgs,
) -> anyhow::Result<Exit> {
    loop {
        for line in &lines {
            if !output.print_line(line, sentence)? {
                return Ok(Exit::Ok);
            }
            from = line.id.next();
        }
        sleep(LOOK_EVERY).await;
        lines = log.read(from, PAGE).await.context("Failed to read the log")?;
    }
}

fn render(lines: &[Line]) -> String {
    let mut table = table(&["time", "who", "command", "outcome", "counts"]);
    for line in lines {
        table.add_row(cells(line));
    }
    if lines.is_empty() { "The log is empty.".to_owned() } else { table.to_string() }
}

fn sentence(line: &Line) -> String {
    cells(line).join("  ")
}

fn cells(line: &Line) -> [String; 5] {
    let outcome = line.outcome.map_or("?", Outcome::word);
    let counts = line.counts.as_ref().and_then(|counts| counts.as_object()).into_iter().flatten();
    let counts = counts.filter(|(_, count)| count.as_u64() != Some(0));
    let counts: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
    let error = line.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let time = line.at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let cells = [
        time.unwrap_or_else(|| line.id.to_string()),
        line.who.clone(),
        format!("{} {}", line.command, line.arguments),
        format!("{outcome}{error}"),
        counts.join(", "),
    ];
    cells.map(|cell| printable(&cell).trim_end().to_owned())
}

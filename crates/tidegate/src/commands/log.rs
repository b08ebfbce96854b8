//! The command `tidegate log`: the operators' commands.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use futures_util::future::join_all;
use serde_json::Value as Json;
use tidegate_compare::text::{error_chain, printable};
use tidegate_stream::{EntryId, server_time_ms};
use tokio::time::sleep;

use crate::{
    exit::Exit,
    output::{OutputArgs, print_note, table},
    partitions::{is_undivided, of_partition, over_all},
    scope::SystemCommand,
    times::{self, Point},
};
use tidegate_operations::{
    InvalidInput, System, SystemSettings, connect,
    operator_log::{CommandOutcome, LogLine, LogRequest, OperatorLog},
};

const FAILED: &str = "Failed to read the operator log";

/// The time between two readings of the log.
const LOOK_EVERY: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  tidegate log
  tidegate log --last 100
  tidegate log --since -2h
  tidegate log --since 2026-11-20 --json | jq '.[] | select(.outcome == \"failed\")'
  tidegate log --follow

A command that changes something writes two log lines: one when it begins, one when it ends. Only the second line is
shown. While a command is running, or if it was killed, the first line is shown. Outcomes: began, done, partly, refused,
stopped (by a signal), failed. Counts of 0 appear only in --json.

With --follow, the command prints each new line until Ctrl-C. With --follow and --json, it prints one object a line. The
log keeps about 10000 lines.";

/// The arguments of `tidegate log`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LogArgs {
    /// The number of newest commands to show. Default: 20, or all commands with --since
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    last: Option<u64>,
    /// Show commands from this time on: RFC 3339, local time, -2h (two hours ago), Unix milliseconds or an entry id
    #[arg(long, value_name = "TIME", value_parser = times::parse_point, allow_hyphen_values = true)]
    since: Option<Point>,
    /// Keep running, and print new lines
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl SystemCommand for LogArgs {
    /// Prints the log of each partition.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        if self.follow {
            return follow(system, self).await;
        }
        over_all(system, async |stores| {
            let lines = Opened::new(stores.settings(), self).await?.lines(self).await?;
            self.output.print(&lines, |lines| render(lines.as_slice()))?;
            Ok(Exit::Ok)
        })
        .await
    }
}

/// The operator log of a partition, and the first line to show.
struct Opened {
    log: OperatorLog,
    from: Option<EntryId>,
}

impl Opened {
    async fn new(settings: &SystemSettings, args: &LogArgs) -> anyhow::Result<Self> {
        let redis = connect::redis(settings).await?;
        let from = match &args.since {
            Some(since) => Some(since.first(server_time_ms(redis.pool()).await?)),
            None => None,
        };
        Ok(Self { log: OperatorLog::new(redis, settings), from })
    }

    async fn lines(&self, args: &LogArgs) -> anyhow::Result<Vec<LogLine>> {
        let request = LogRequest { since: self.from, last: args.last };
        self.log.commands(&request).await.context(FAILED)
    }
}

/// The operator log of one partition that `--follow` reads, and whether an error was printed for the partition.
struct Followed<'a> {
    settings: &'a SystemSettings,
    opened: Option<Opened>,
    is_said_away: bool,
}

impl Followed<'_> {
    /// Reads the log lines that were added since the last reading.
    async fn look(&mut self, args: &LogArgs) -> anyhow::Result<Vec<LogLine>> {
        let (opened, lines) = match self.opened.take() {
            Some(opened) => {
                let lines = opened.log.page(opened.from.unwrap_or(EntryId::MIN)).await;
                (opened, lines.context(FAILED))
            }
            None => {
                let opened = Opened::new(self.settings, args).await?;
                let lines = opened.lines(args).await?;
                (opened, Ok(lines))
            }
        };
        let opened = self.opened.insert(opened);
        let lines = lines?;
        opened.from = lines.last().map(|line| line.id.next()).or(opened.from);
        Ok(lines)
    }
}

/// Prints the existing log lines and then new lines, until the reader closes the pipe or a signal ends the program.
async fn follow(system: &System, args: &LogArgs) -> anyhow::Result<Exit> {
    let followed = |settings| Followed { settings, opened: None, is_said_away: false };
    let mut all: Vec<Followed<'_>> = system.partitions().iter().map(followed).collect();
    loop {
        let looks = join_all(all.iter_mut().map(async |one| (one.look(args).await, one))).await;
        for (lines, one) in looks {
            let partition = one.settings.partition();
            let lines = match lines {
                Ok(lines) => lines,
                Err(error) if is_undivided(system) || error.is::<InvalidInput>() => return Err(error),
                Err(error) => {
                    if !std::mem::replace(&mut one.is_said_away, true) {
                        let error = error_chain(&error);
                        print_note(&format!(
                            "error: partition {partition}: {error}; its lines follow when Redis answers again"
                        ));
                    }
                    continue;
                }
            };
            one.is_said_away = false;
            for line in &lines {
                let is_read = match is_undivided(system) {
                    true => args.output.print_line(line, sentence)?,
                    false => of_partition(system, one.settings, || {
                        args.output
                            .print_line_of_partition(line, |line| format!("{partition}  {}", sentence(line)))
                    })?,
                };
                if !is_read {
                    return Ok(Exit::Ok);
                }
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

fn render(lines: &[LogLine]) -> String {
    let mut table = table(&["time", "who", "command", "outcome", "counts"]);
    for line in lines {
        table.add_row(cells(line));
    }
    if lines.is_empty() { "The operator log is empty.".to_owned() } else { table.to_string() }
}

/// A count with its noun, such as `2 vouchers` or `1 voucher`; `name` is a plural. None: the count is 0.
fn count_text(name: &str, count: &Json) -> Option<String> {
    match (count.as_u64(), count.as_bool()) {
        (Some(0), _) | (_, Some(false)) => None,
        (_, Some(true)) => Some(name.to_owned()),
        (Some(1), _) => {
            let entry = name.strip_suffix("ies").map(|stem| format!("{stem}y"));
            Some(format!("1 {}", entry.as_deref().or(name.strip_suffix('s')).unwrap_or(name)))
        }
        _ => Some(format!("{count} {name}")),
    }
}

fn sentence(line: &LogLine) -> String {
    cells(line).join("  ")
}

fn cells(line: &LogLine) -> [String; 5] {
    let outcome = line.outcome.map_or("?", CommandOutcome::word);
    let counts = line.counts.as_ref().and_then(|counts| counts.as_object()).into_iter().flatten();
    let counts: Vec<String> = counts.filter_map(|(name, count)| count_text(name, count)).collect();
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_count_of_one_is_said_as_such() {
        let said = |name: &str, count: Json| count_text(name, &count).unwrap_or_default();
        assert_eq!(said("vouchers", json!(1)), "1 voucher");
        assert_eq!(said("vouchers", json!(2)), "2 vouchers");
        assert_eq!(said("entries", json!(1)), "1 entry");
        assert_eq!(said("deleted", json!(1)), "1 deleted");
        assert_eq!(said("workers", json!(true)), "workers");
        assert_eq!(said("workers", json!(false)) + &said("failed", json!(0)), "");
    }
}

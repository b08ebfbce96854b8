//! `tidegate log`: what operators did.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::Value as Json;
use tidegate_stream::{EntryId, server_time_ms};
use tokio::time::sleep;

use crate::{
    exit::Exit,
    moment::{self, Point},
    output::{OutputArgs, table},
};
use tidegate_operations::{
    SystemSettings, connect,
    operator_log::{Line, LogRequest, OperatorLog, Outcome},
    text::printable,
};

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
only where there is no second, because the command is still at work or was killed. Outcomes: began, done, partly, refused,
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
pub async fn run(settings: &SystemSettings, args: &LogArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let log = OperatorLog::new(redis.clone(), settings);
    let since = match &args.since {
        Some(since) => Some(since.first(server_time_ms(&redis).await?)),
        None => None,
    };
    let lines = log.commands(&LogRequest { since, last: args.last }).await;
    let lines = lines.context("Failed to read the log")?;
    if args.follow {
        return follow(&log, lines, since.unwrap_or(EntryId::MIN), args.output).await;
    }
    args.output.print(&lines, |lines| render(lines.as_slice()))?;
    Ok(Exit::Ok)
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
        lines = log.page(from).await.context("Failed to read the log")?;
    }
}

fn render(lines: &[Line]) -> String {
    let mut table = table(&["time", "who", "command", "outcome", "counts"]);
    for line in lines {
        table.add_row(cells(line));
    }
    if lines.is_empty() { "The log is empty.".to_owned() } else { table.to_string() }
}

/// Names are plurals: `2 vouchers`, `1 voucher`. None: there is nothing of it.
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

fn sentence(line: &Line) -> String {
    cells(line).join("  ")
}

fn cells(line: &Line) -> [String; 5] {
    let outcome = line.outcome.map_or("?", Outcome::word);
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

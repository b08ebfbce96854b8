//! `tidegate export`: entries of the stream as lines of JSON.

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use tidegate_stream::{EntryId, Line, Survey, server_time_ms};

use super::lines::{self, Lines, LinesArgs};
use crate::{
    command_line::CommandLine,
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    moment::{self, Point},
    selection::{OnlyArgs, Page, Selection, StreamPages},
};

/// Entries that are read at once.
const PAGE: u16 = 1_000;

const EXAMPLES: &str = "\
Examples:
  tidegate export --from 2026-11-20 --to 2026-11-21 --out orders.jsonl
  tidegate export --from -2h --to now --voucher 7 | gzip > orders.jsonl.gz
  tidegate export --from 1763632800000-0 --to 1763636399999-5 --user 1001

Writes one entry a line, as it stands in the stream, acknowledged or not:
  {\"entry\":\"1763632800000-0\",\"fields\":[[\"userId\",\"1001\"],[\"voucherId\",\"7\"],[\"id\",\"693106606080001\"]]}
A name or value that is not UTF-8 is written as {\"base64\":\"//4=\"}. Entries that are no orders are
written, too.

tidegate replay --file runs the entries. The export changes nothing in Redis, and never writes
over a file. --to is cut at the last entry that is there now.

Ctrl-C ends it after whole lines with exit code 6, and it says how to continue. A second Ctrl-C
ends it at once. With --out, it prints what was done; --json makes that JSON.";

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
    #[command(flatten)]
    lines: LinesArgs,
}

/// The entries that are meant.
struct Entries {
    pages: StreamPages,
    selection: Selection,
}

impl lines::Pages for Entries {
    async fn next(&mut self) -> anyhow::Result<Option<Lines>> {
        let page = self.pages.next(PAGE).await.context("Failed to read the stream")?;
        Ok(page.map(|Page { entries, looked_at }| Lines {
            text: entries.iter().map(|entry| Line::from(entry).to_json() + "\n").collect(),
            count: entries.len() as u64,
            looked_at,
            missing: Vec::new(),
        }))
    }

    fn rest(&self) -> CommandLine {
        typed_from(self.pages.at(), self.selection)
    }
}

/// The command for the entries from `at` on.
fn typed_from(at: EntryId, Selection { last, only, .. }: Selection) -> CommandLine {
    only.typed(CommandLine::new("export").flag("--from", Some(at)).flag("--to", Some(last)))
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
    let total = survey.length(&stream).await?;
    let entries =
        Entries { pages: StreamPages::new(survey, settings.keys.fields.clone(), selection), selection };
    lines::export(&args.lines, (stream, total), entries).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;

    #[test]
    fn the_command_for_the_rest_is_about_the_rest() {
        let only = OnlyArgs { voucher: Some(7.try_into().unwrap()), user: Some(8.try_into().unwrap()) };
        let id = |ms: u64| EntryId { ms: 1_763_632_800_000 + ms, seq: 3 };
        let rest = typed_from(id(5), Selection { first: id(1), last: id(9), only });
        let (words, cli) = rest.parsed();
        let bounds = format!("--from {} --to {}", id(5), id(9));
        assert_eq!(words.join(" "), format!("tidegate export {bounds} --voucher 7 --user 8"));
        let Command::Export(args) = cli.command else { panic!("{words:?}") };
        assert_eq!((args.from.first(0), args.to.last(0)), (id(5), id(9)));
    }
}

//! The command `tidegate export`: writes entries of the stream as JSON lines.

use anyhow::Context;
use clap::Args;
use tidegate_operations::{System, export::ExportSelection, selection::EntrySelection};
use tidegate_orders::RedisStore;
use tidegate_stream::{EntryId, server_time_ms};

use super::lines::{self, LinesArgs};
use crate::{
    exit::Exit,
    scope::SystemCommand,
    selection::OnlyArgs,
    times::{self, Point},
};

const EXAMPLES: &str = "\
Examples:
  tidegate export --from 2026-11-20 --to 2026-11-21 --out orders.jsonl
  tidegate export --from -2h --to now --voucher 7 | gzip > orders.jsonl.gz
  tidegate export --from 1763632800000-0 --to 1763636399999-5 --user 1001

Writes one entry a line, whether acknowledged or not, with all its fields:
  {\"entry\":\"1763632800000-0\",\"fields\":[[\"userId\",\"1001\"],[\"voucherId\",\"7\"],[\"id\",\"693106606080001\"]]}
A name or value that is not UTF-8 is written as {\"base64\":\"//4=\"}. Entries that are no orders are written, too. In a
system with partitions, the entries of all partitions are sorted by their ids, each with its \"partition\".

tidegate replay --file writes the orders of the file to MySQL. The export changes nothing in Redis, and never overwrites
a file. If no entry is selected, it creates no file. It stops at the last entry that exists now, even if --to is later.

On Ctrl-C, the command completes the current line, prints how to continue, and exits with 6. A second Ctrl-C ends it at
once. With --out, it prints a report. With --out and --json, the report is JSON.";

/// The arguments of `tidegate export`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The first entry: an entry id, RFC 3339, local time (a date alone is its midnight), -2h (two hours ago) or Unix
    /// milliseconds
    #[arg(long, value_name = "TIME|ID", value_parser = times::parse_point, allow_hyphen_values = true)]
    from: Point,
    /// The last entry, in the same formats as --from; for a whole day, give the date of the next day
    #[arg(long, value_name = "TIME|ID", value_parser = times::parse_point, allow_hyphen_values = true)]
    to: Point,
    #[command(flatten)]
    only: OnlyArgs,
    #[command(flatten)]
    lines: LinesArgs,
}

impl SystemCommand for ExportArgs {
    /// Writes the selected entries.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let partitions = lines::connect(system).await?;
        let (_, redis) = &partitions[0];
        let entries = ExportSelection::Entries(selection(self, redis).await?);
        lines::run(&partitions, entries, &self.lines).await
    }
}

async fn selection(args: &ExportArgs, redis: &RedisStore) -> anyhow::Result<EntrySelection> {
    let now_ms = server_time_ms(redis.pool()).await.context("Failed to read the clock of Redis")?;
    let (first, last) = times::range(Some(&args.from), Some(&args.to), now_ms)?;
    let range = (first.unwrap_or(EntryId::MIN), last.unwrap_or(EntryId::MAX));
    Ok(EntrySelection::new(range, args.only.filter())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;

    #[test]
    fn the_command_for_the_rest_is_about_the_rest() {
        let only = OnlyArgs { voucher: Some(7.try_into().unwrap()), user: Some(8.try_into().unwrap()) };
        let id = |ms: u64| EntryId { ms: 1_763_632_800_000 + ms, seq: 3 };
        let rest = EntrySelection { first: id(5), last: id(9), filter: only.filter() };
        let rest = lines::typed(&ExportSelection::Entries(rest));
        let (words, cli) = rest.parsed();
        let bounds = format!("--from {} --to {}", id(5), id(9));
        assert_eq!(words.join(" "), format!("tidegate export {bounds} --voucher 7 --user 8"));
        let Command::Export(args) = cli.command else { panic!("{words:?}") };
        assert_eq!((args.from.first(0), args.to.last(0)), (id(5), id(9)));
    }
}

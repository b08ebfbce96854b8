//! The command `tidegate dead export`: writes letters as JSON lines.

use clap::Args;
use tidegate_operations::{System, export::ExportSelection};

use crate::{
    commands::lines::{self, LinesArgs},
    entry_arg,
    exit::Exit,
    scope::SystemCommand,
    selection::letters::LetterSelectionArgs,
};

const EXAMPLES: &str = "\
Examples:
  tidegate dead export > letters.jsonl
  tidegate dead export --reason unknown_voucher --voucher 7 > letters.jsonl
  tidegate dead export --all --out letters.jsonl
  tidegate dead export 1795175193179-0 | jq .dead.error

Writes one letter a line, oldest first. The members `entry` and `fields` have the same format as in tidegate export, so
tidegate replay --file can write the orders. `dead` has the reason. Without ids or filters, the command writes all
letters. It changes nothing in Redis, and never overwrites a file.

On Ctrl-C, the command completes the current line, prints how to continue, and exits with 6. A second Ctrl-C ends it at
once. With --out, it prints a report. With --out and --json, the report is JSON.";

/// The arguments of `tidegate dead export`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadExportArgs {
    /// The dead letters to export.
    #[command(flatten)]
    pub selection: LetterSelectionArgs,
    #[command(flatten)]
    lines: LinesArgs,
}

impl SystemCommand for DeadExportArgs {
    /// Writes the selected letters.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let chosen = entry_arg::partition_of(&self.selection.letters, system)?;
        let partitions = lines::connect(&chosen).await?;
        let (_, redis) = &partitions[0];
        let letters = ExportSelection::Letters(self.selection.letters(redis).await?);
        lines::run(&partitions, letters, &self.lines).await
    }
}

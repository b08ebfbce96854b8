//! `tidegate dead export`: letters as lines of JSON.

use anyhow::Context;
use clap::Args;

use super::{
    door,
    letter::Whole,
    selection::{SelectionArgs, Walk},
};
use crate::{
    command_line::CommandLine,
    commands::lines::{self, Lines, LinesArgs},
    config::Settings,
    connect,
    exit::Exit,
};

const EXAMPLES: &str = "\
Examples:
  tidegate dead export > letters.jsonl
  tidegate dead export --reason unknown_voucher --voucher 7 > letters.jsonl
  tidegate dead export --all --out letters.jsonl
  tidegate dead export 1795175193179-0 | jq .dead.error

Writes one letter a line, oldest first: `entry` and `fields` as tidegate export writes them, so that tidegate replay --file
runs them, and in `dead` why it died. All letters where none are named. Changes nothing, and never writes over a file. Ctrl-C
ends it after whole lines with exit code 6, and says how to go on; once more, at once. With --out, what was done is printed;
--json makes that JSON.";

/// What `tidegate dead export` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadExportArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    lines: LinesArgs,
}

impl lines::Pages for Walk<'_> {
    async fn next(&mut self) -> anyhow::Result<Option<Lines>> {
        let Some(page) = Walk::next(self).await.context("Failed to read the dead letters")? else {
            return Ok(None);
        };
        let lines = page.letters.iter().map(|letter| Ok(serde_json::to_string(&Whole::from(letter))? + "\n"));
        Ok(Some(Lines {
            text: lines.collect::<anyhow::Result<_>>()?,
            count: page.letters.len() as u64,
            looked_at: page.looked_at,
            missing: page.missing.iter().map(|id| format!("letter {id}")).collect(),
        }))
    }

    fn rest(&self) -> CommandLine {
        self.typed_rest(CommandLine::new("dead export"))
    }
}

/// Writes them.
///
/// # Errors
/// When Redis cannot be reached, the key holds no stream, or stdout cannot be written to.
pub async fn run(settings: &Settings, args: &DeadExportArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let dead = door(settings, &redis);
    let all = dead.count().await.context("Failed to read the dead letters")?;
    let selection = args.selection.resolve(&redis, &dead).await?;
    let total = selection.length(all);
    lines::export(&args.lines, (settings.stream.dead.clone(), total), selection.walk(&dead)).await
}

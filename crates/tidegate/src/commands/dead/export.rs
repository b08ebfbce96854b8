//! `tidegate dead export`: letters as lines of JSON.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;
use clap::Args;

use super::{door, letter::Whole, selection::SelectionArgs};
use crate::{config::Settings, connect, exit::Exit, operator::Progress, signals::Signals};

const EXAMPLES: &str = "\
Examples:
  tidegate dead export > letters.jsonl
  tidegate dead export --reason unknown_voucher --voucher 7 > letters.jsonl
  tidegate dead export 1795175193179-0 | jq .dead.error

Writes one letter a line, oldest first: `entry` and `fields` as tidegate export writes them, so that tidegate replay --file
runs them, and in `dead` why it died. All letters where none are named. Changes nothing. Ctrl-C ends it after whole
lines with exit code 6, and says how to go on.";

/// What `tidegate dead export` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadExportArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Changes nothing: the lines are JSON in any case
    #[arg(long)]
    json: bool,
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
    let mut signals = Signals::listen().context("Failed to listen to signals")?;
    let progress = Progress::new();
    if !io::stdout().is_terminal() {
        progress.expect(selection.length(all), "letters, at most");
    }
    let (mut walk, mut last, mut exit) = (selection.walk(&dead), None, Exit::Ok);
    loop {
        let page = tokio::select! {
            biased;
            _ = signals.next() => {
                let rest = selection.typed_after(last);
                progress.say(&format!("Stopped before all was done. Go on with: tidegate dead export{rest}"));
                exit = Exit::Stopped;
                break;
            }
            page = walk.next() => page.context("Failed to read the dead letters")?,
        };
        let Some(page) = page else { break };
        for id in &page.missing {
            progress.say(&format!("{} holds no letter {id}", settings.stream.dead));
            exit = Exit::No;
        }
        let lines = page.letters.iter().map(|letter| Ok(serde_json::to_string(&Whole::from(letter))? + "\n"));
        let lines: String = lines.collect::<anyhow::Result<_>>()?;
        match io::stdout().write_all(lines.as_bytes()).and_then(|()| io::stdout().flush()) {
            // A reader who went away early (`| head`) is no failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            written => written.context("Failed to write to stdout")?,
        }
        last = page.letters.last().map(|letter| letter.id).or(last);
        progress.add(page.looked_at);
    }
    Ok(exit)
}

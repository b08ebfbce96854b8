//! `tidegate status`: how far the stream is behind, who works on it, and the stocks of both sides.

mod text;

use clap::Args;

use crate::{config::Settings, connect, exit::Exit, output::OutputArgs, status::Status};

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status --json | jq .stream.oldest_pending_s

The age of the oldest undelivered and of the oldest pending entry is what to alarm on: counts depend on how busy
the sale is, an age of a minute never is good. Exits with 3 where a store is away, after showing what it can.";

/// What `tidegate status` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Shows what can be seen.
///
/// # Errors
/// When stdout cannot be written to.
pub async fn run(settings: &Settings, args: &StatusArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = (connect::redis(settings), connect::mysql(settings));
    let status = Status::read(settings, redis, mysql, settings.mysql.statement_timeout).await;
    args.output.print(&status, text::render)?;
    Ok(if status.errors.is_empty() { Exit::Ok } else { Exit::Failed })
}

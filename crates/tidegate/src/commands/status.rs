//! `tidegate status`: how far the stream is behind, who works on it, and the stocks of both sides.

mod text;

use clap::Args;
use tidegate_operations::{SystemSettings, connect, status::Status};

use crate::{exit::Exit, output::OutputArgs};

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status --json | jq .stream.oldest_pending_s

Alarm on the age of the oldest undelivered and of the oldest pending entry. Counts depend on how
busy the sale is, but an age of a minute is never good. If a store is away, it shows what it can
and exits with 3.";

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
pub async fn run(settings: &SystemSettings, args: &StatusArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = (connect::redis(settings), connect::mysql(settings));
    let status = Status::read(settings, redis, mysql, settings.mysql.statement_timeout).await;
    args.output.print(&status, text::render)?;
    Ok(if status.errors.is_empty() { Exit::Ok } else { Exit::Failed })
}

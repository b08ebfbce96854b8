//! `tidegate dead drop`: deletes letters of which nothing can be given back, or whose orders are written.

use clap::Args;
use tidegate_operations::{SystemSettings, dead_letters::LetterAction};

use super::change;
use crate::{exit::Exit, operator::ChangeArgs, selection::letters::SelectionArgs};

const EXAMPLES: &str = "\
Examples:
  tidegate dead drop --reason bad_value --from -1h
  tidegate dead drop 1795175193179-0 --yes
  tidegate dead drop --reason id_taken --to -7d

Use it for letters of which nothing can be given back: those that hold no order, those whose
order stands in MySQL, and those whose order id is another order's (their reason is id_taken, or
the journal names another user). It deletes the letter and what is left of its entry in the
stream. Nothing brings a letter back: export it first.

Some letters stay:
  - one that holds an order which is not written: see tidegate dead requeue and tidegate dead
    cancel
  - an event about money (paid, refunding, refunded, refund_failed): see tidegate dead requeue
  - one whose order took units, as the journal says: see tidegate dead cancel

Exits with 1 if letters stay. Ctrl-C ends it between two pages with exit code 6, and it says how
to continue.";

/// What `tidegate dead drop` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadDropArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Deletes them.
///
/// # Errors
/// When Redis cannot be reached, the key holds no stream, or it was not said which letters.
pub async fn run(settings: &SystemSettings, args: &DeadDropArgs) -> anyhow::Result<Exit> {
    change::run(settings, (&args.selection, &args.change), LetterAction::Drop).await
}

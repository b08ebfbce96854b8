//! The command `tidegate dead requeue`: puts letters back into the stream.

use clap::Args;
use tidegate_operations::{Stores, dead_letters::LetterAction};

use super::change;
use crate::{
    exit::Exit,
    operator::ChangeArgs,
    scope::{PartitionCommand, Scope},
    selection::letters::LetterSelectionArgs,
};

const EXAMPLES: &str = "\
Examples:
  tidegate dead requeue --reason unknown_voucher --voucher 7
  tidegate dead requeue 1795175193179-0 1795175193180-0 --yes
  tidegate dead requeue --all --dry-run
  tidegate dead requeue --reason rejected_by_database --force

In one step, it appends the entry to the stream again, with its fields and history, and deletes the letter. Workers
handle the entry like any other. If the cause is not fixed, the entry becomes a dead letter again. --dry-run and the
confirmation question show how many entries would become dead letters again.

If an order is requeued, the dead letters of its events (such as payments) are requeued after the order. You need not
select these letters.

Some letters stay:
  - a letter that was requeued three times, unless you give --force
  - a letter whose order was cancelled or released, because the order would not be written
  - an event whose order is a dead letter, if that order stays or would become a dead letter again

If another command cancels the order at the same moment, the order is released and not written. If you run this command
twice, or two at the same time, each letter is requeued only once.

Exits with 1 if letters stay. Ctrl-C ends the command after the letters in progress, with exit code 6; it then prints
how to continue.";

/// The arguments of `tidegate dead requeue`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadRequeueArgs {
    #[command(flatten)]
    pub selection: LetterSelectionArgs,
    /// Also requeue letters that were requeued three times or more
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for DeadRequeueArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(&self.selection.letters)
    }

    /// Puts the selected letters back into the stream.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        change::run(stores, (&self.selection, &self.change), LetterAction::Requeue { force: self.force })
            .await
    }
}

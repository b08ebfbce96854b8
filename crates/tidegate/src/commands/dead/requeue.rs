//! `tidegate dead requeue`: puts letters back into the stream.

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

Adds the entry to the stream again, byte for byte and with its history, and deletes the letter,
in one step. Workers write it like any other. If the cause is not fixed, the entry dies again,
as a new letter that says so. --dry-run and the question say how many would die again as things
stand.

An order takes its buried events along: they go back behind it, in the order in which they were
appended, whether they were selected or not.

Some letters stay:
  - one that was requeued three times, unless you give --force
  - one whose order was cancelled or released, because it would not be written
  - an event whose order is a dead letter that does not go back, or would die again

If somebody else cancels the order at the same moment, it is released. Two requeues at once,
or the same one again, put a letter back only once.

Exits with 1 if letters stay. Ctrl-C ends it between two pages with exit code 6, and it says how
to continue.";

/// What `tidegate dead requeue` takes.
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

    /// Puts them back.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        change::run(stores, (&self.selection, &self.change), LetterAction::Requeue { force: self.force })
            .await
    }
}

//! `tidegate dead drop`: deletes letters of which nothing can be released, or whose orders are written.

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
  tidegate dead drop --reason bad_value --from -1h
  tidegate dead drop 1795175193179-0 --yes
  tidegate dead drop --reason id_taken --to -7d

Use it for letters of which nothing can be released: those that hold no order, those whose
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
    pub selection: LetterSelectionArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for DeadDropArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(&self.selection.letters)
    }

    /// Deletes them.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        change::run(stores, (&self.selection, &self.change), LetterAction::Drop).await
    }
}

//! The command `tidegate dead drop`: deletes letters that hold no units to release, or whose orders are written.

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

Use it for dead letters without an order that has taken units:
  - letters that hold no order
  - letters whose order is written in MySQL
  - letters whose order id belongs to another order (the letter has the reason id_taken, or the
    journal, the Redis hash of all admissions, names another user)

It deletes the letter, and the entry if the stream still has it. You cannot restore a deleted letter: export it first.

Some letters stay:
  - a letter with an order that is not written: see tidegate dead requeue and tidegate dead cancel
  - an event about money (paid, refunding, refunded, refund_failed): see tidegate dead requeue
  - a letter whose order has taken units, according to the journal: use tidegate dead cancel

Exits with 1 if letters stay. Ctrl-C ends the command after the letters in progress, with exit code 6; it then prints
how to continue.";

/// The arguments of `tidegate dead drop`.
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

    /// Deletes the selected letters.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        change::run(stores, (&self.selection, &self.change), LetterAction::Drop).await
    }
}

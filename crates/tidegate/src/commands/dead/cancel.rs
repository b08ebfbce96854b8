//! The command `tidegate dead cancel`: cancels the orders of dead letters.

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
  tidegate dead cancel --reason unknown_voucher --voucher 7
  tidegate dead cancel 1795175193179-0 --yes
  tidegate dead cancel --all --dry-run

Use it for orders that must not be written any more. It first writes a cancelled order (status 4) with the same id to
MySQL, so that workers cannot write the order later. Then, in one script in Redis, the units return to the stock, the
user may order again, the journal (the hash of all admissions and releases) notes the release, and the letter is
deleted. The units return only once for each order id, even if you run the command several times.

Some letters stay:
  - a letter whose order is written in MySQL
  - a letter that holds no order
  - a letter whose order id belongs to another user, according to the journal or MySQL
  - a letter whose cancelled row MySQL rejects, for example because of a foreign key or a check

Exits with 1 if letters stay. Ctrl-C ends the command after the letters in progress, with exit code 6; it then prints
how to continue.";

/// The arguments of `tidegate dead cancel`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadCancelArgs {
    #[command(flatten)]
    pub selection: LetterSelectionArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for DeadCancelArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(&self.selection.letters)
    }

    /// Cancels the orders of the selected letters.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        change::run(stores, (&self.selection, &self.change), LetterAction::Cancel).await
    }
}

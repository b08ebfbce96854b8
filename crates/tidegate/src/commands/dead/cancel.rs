//! `tidegate dead cancel`: cancels the orders of dead letters.

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

Use it for orders that are not to be written any more. It tells MySQL first, by a cancelled
order (status 4) under the same id, so that no copy of the order can ever be written. Then, in
one step, its units go back to the stock in Redis, its user may order again, the journal says
so, and the letter is deleted. This happens once for each order id, however often you ask.

Some letters stay:
  - one whose order stands in MySQL
  - one that holds no order
  - one whose order id belongs to another user, as the journal or MySQL knows
  - one whose cancelled row MySQL refuses (a foreign key, a check)

Exits with 1 if letters stay. Ctrl-C ends it between two pages with exit code 6, and it says how
to continue.";

/// What `tidegate dead cancel` takes.
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

    /// Releases them.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        change::run(stores, (&self.selection, &self.change), LetterAction::Cancel).await
    }
}

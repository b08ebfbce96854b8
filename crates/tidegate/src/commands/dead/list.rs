//! `tidegate dead list`: what died, and why.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{Stores, dead_letters, dead_letters::LetterList};
use tidegate_orders::DeadLetters;

use super::text;
use crate::{
    exit::Exit, operator::ProgressBar, output::OutputArgs, scope::PartitionCommand,
    selection::letters::FilterArgs,
};

const EXAMPLES: &str = "\
Examples:
  tidegate dead list
  tidegate dead list --reason unknown_voucher --voucher 7
  tidegate dead list --from -2h --limit 1000 --json
  tidegate dead list --user 1001

Counts all letters that match by reason and voucher, then shows the newest 10 of them, or as many
as --limit says. --voucher and --user also find entries that are no orders, if the field can be
read. A letter that says `requeued 2` has died three times. Changes nothing.";

/// What `tidegate dead list` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Show so many, the newest; all are counted
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    limit: u32,
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for DeadListArgs {
    /// Lists them.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let (dead, letters) = (DeadLetters::new(redis.clone()), self.filter.letters(redis).await?);
        let list = dead_letters::list(&dead, letters, self.limit as usize, &ProgressBar::new()).await?;
        self.output.print(&list, render)?;
        Ok(Exit::Ok)
    }
}

fn render(LetterList { stream, counts, newest }: &LetterList) -> String {
    let mut shown = format!("{stream}: {}\n{}", counted(counts.letters, "letter"), text::counts(counts));
    if !newest.is_empty() {
        shown += &format!("\n\n{}", text::letters(newest));
    }
    match counts.letters - newest.len() as u64 {
        0 => shown,
        older => format!("{shown}\nand {older} older: --limit {} shows all", counts.letters),
    }
}

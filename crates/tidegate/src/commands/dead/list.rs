//! The command `tidegate dead list`: the dead letters, and why they were buried.

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

Counts all selected letters by reason and voucher, then shows the newest 10 letters, or as many as --limit says.
--voucher and --user also find entries that are no orders, if the voucher or user can be read. A letter with `requeued
2` was put back into the stream twice, and became a dead letter three times.";

/// The arguments of `tidegate dead list`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// The number of letters to show, newest first; the counts include all letters
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    limit: u32,
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for DeadListArgs {
    /// Lists the selected letters.
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
        older => format!("{shown}\nand {older} older letters: --limit {} shows all", counts.letters),
    }
}

//! The command `tidegate partitions show`: the partitions, and whether they keep the same list.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{Stores, connect, partition_list::named_list, partition_show::PartitionView};

use crate::{exit::Exit, output::OutputArgs, scope::PartitionCommand};

const EXAMPLES: &str = "\
Examples:
  tidegate partitions show
  tidegate partitions show --json | jq 'select(.agrees | not) | .tag'

Shows the partitions of the setting stream.partitions, even if Redis has another list, or if the list is being changed.
Exits with 1 if the list in Redis differs from stream.partitions.";

/// The arguments of `tidegate partitions show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PartitionsShowArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for PartitionsShowArgs {
    /// Shows one partition: its list, and what it holds.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let settings = stores.settings();
        let redis = connect::redis_of_any_list(settings).await?;
        let view = PartitionView::read(&redis, settings).await?;
        self.output.print(&view, text)?;
        Ok(if view.agrees { Exit::Ok } else { Exit::No })
    }
}

fn text(view: &PartitionView) -> String {
    let list = match (&view.list, &view.changing_to) {
        (Some(from), Some(to)) => {
            format!(
                "is being changed from the list {} to {} ({})",
                named_list(from),
                named_list(to),
                view.step.map_or("", |step| step.word())
            )
        }
        (Some(list), None) if view.agrees => format!("keeps the list {}", named_list(list)),
        (Some(list), None) => {
            format!("stores ANOTHER list of partitions than stream.partitions: {}", named_list(list))
        }
        (None, _) => "keeps no list".to_owned(),
    };
    let master = view.master.as_ref().map(|master| format!(", on {master}"));
    format!(
        "number {}{}: {list}; {}, {} to be settled, {}, {}, {}",
        view.number,
        master.unwrap_or_default(),
        counted(view.vouchers, "voucher"),
        counted(view.entries, "entry"),
        counted(view.dead_letters, "dead letter"),
        counted(view.workers, "worker"),
        counted(view.gates, "gate")
    )
}

//! The command `tidegate consumers list`: the consumers, whether they are alive, and the entries they hold.

use clap::Args;
use tidegate_compare::text::printable;
use tidegate_operations::{Stores, consumers::ConsumerList};

use crate::{
    exit::Exit,
    output::{OutputArgs, table},
    pending::life,
    scope::PartitionCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate consumers list
  tidegate consumers list --json | jq '.consumers[] | select(.alive | not) | .name'

A consumer is a loop (lane) of a worker: shop-7-1 is lane 1 of process shop-7. A process is alive while its heartbeat is
no older than worker.heartbeat_ttl_ms. Consumers of other programs have no heartbeat, so the list shows them as gone.";

/// The arguments of `tidegate consumers list`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConsumersListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for ConsumersListArgs {
    /// Lists the consumers of the group.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let list = ConsumerList::read(redis, stores.settings()).await?;
        self.output.print(&list, render)?;
        Ok(Exit::Ok)
    }
}

fn render(list: &ConsumerList) -> String {
    if list.consumers.is_empty() {
        return format!("Group {} of {} has no consumers.", list.group, list.stream);
    }
    let mut table = table(&["consumer", "pending", "idle", "process", "heartbeat"]);
    for consumer in &list.consumers {
        table.add_row([
            printable(&consumer.name),
            consumer.pending.to_string(),
            format!("{:.1} s", consumer.idle_s),
            life(consumer.alive).to_owned(),
            printable(consumer.process.as_deref().unwrap_or_default()),
        ]);
    }
    table.to_string()
}

//! The command `tidegate pending list`: entries that were read and not acknowledged, and their consumers.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{Stores, pending::PendingList};

use crate::{
    exit::Exit,
    operator::ProgressBar,
    output::OutputArgs,
    pending::{self, PendingSelectionArgs},
    scope::PartitionCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate pending list
  tidegate pending list --dead
  tidegate pending list --older-than 5m --set-aside
  tidegate pending list --crashes 1
  tidegate pending list --consumer shop-7-0 --limit 1000 --json | jq .entries[].order.id

A consumer is a loop (lane) of a worker. A process is alive while it has a heartbeat.

  set aside  no worker has the entry in progress. The consumer retries the entry later: when
             a store is back, or a lock is released. The list shows which lock or row the entry
             waits for, if the worker has reported it. `tidegate status` shows all causes, and
             since when
  crashes    the number of workers that died with the entry in progress. From the second crash
             on, a worker handles the entry alone; after five crashes, the entry becomes a dead letter
  claimable  `tidegate consumers drain` has made the entry claimable for all workers

If an entry has no payload any more, it was deleted or trimmed. Workers acknowledge and log the entry.";

/// The arguments of `tidegate pending list`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PendingListArgs {
    #[command(flatten)]
    selection: PendingSelectionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PartitionCommand for PendingListArgs {
    /// Lists the pending entries.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let list = PendingList::read(redis, stores.settings(), &self.selection.filter(), &ProgressBar::new())
            .await?;
        self.output.print(&list, render)?;
        Ok(Exit::Ok)
    }
}

fn render(list: &PendingList) -> String {
    let pending = counted(list.pending, "entry");
    if list.entries.is_empty() {
        return format!("No pending entry matches: {pending} of group {} are pending.", list.group);
    }
    let more = if list.more { ", and more match (--limit)" } else { "" };
    let shown = list.entries.len();
    let events = list.entries.iter().filter(|entry| entry.content.event.is_some()).count();
    let events = if events > 0 { format!(" ({})", counted(events as u64, "event")) } else { String::new() };
    format!("{}\n\n{shown} shown{events} of {pending} pending{more}.", pending::render(&list.entries))
}

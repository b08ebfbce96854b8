//! The command `tidegate consumers drain`: hands over the entries of consumers, and removes the consumers with
//! `--remove`.

mod claim;
mod remove;

use std::time::Duration;

use clap::{ArgGroup, Args};
use tidegate_operations::{
    Stores,
    consumers::{ConsumerChoice, remove::ConsumerRemovalRequest},
    pending::claim::ClaimRequest,
};

use crate::{exit::Exit, operator::ChangeArgs, scope::PartitionCommand, times};

/// The default time that `--remove` waits until workers have taken the entries.
const REMOVAL_WAIT: Duration = Duration::from_mins(2);

const EXAMPLES: &str = "\
Examples:
  tidegate consumers drain --dead --dry-run
  tidegate consumers drain --dead --wait 1m --yes
  tidegate consumers drain shop-7-0 shop-7-1 --remove

Workers claim entries that were untouched for worker.claim_idle_ms. This command makes the entries claimable now: any
worker takes them within worker.claim_every_ms. Until then, the entries stay with their old consumer. Nothing is lost,
even if no living worker reads the stream.

An entry that was delivered less than worker.lock_lease_ms ago is skipped, because its worker may still hold the locks.
Run the command again later. Entries that a worker left pending to retry them later (set aside) are not skipped.

A consumer is a lane (loop) of a worker. If its process is alive, the command does not change it. With --force, it makes
the entries claimable anyway. Use --force for a lane that hangs, or that no process runs after a restart with fewer
lanes. Entries that a hanging lane has in progress are handled twice, but no order is written twice. --force needs
names, and cannot be combined with --remove. Write -- before a name that begins with a hyphen.

With --wait, the command exits with 1 if workers have not taken all entries in time. Ctrl-C ends the command with 6.

With --remove, the command waits until workers have taken the entries. Then it removes each consumer that is still dead
and holds no entry. If entries are pending and no living worker reads the stream, the command removes nothing: start a
worker. If a consumer cannot be removed within --wait, it stays, no entry is lost, and the command exits with 1. After
an hour, workers remove dead consumers without entries by themselves.";

/// The arguments of `tidegate consumers drain`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("whose").required(true).args(["names", "dead"]))]
pub struct ConsumersDrainArgs {
    /// The names of the consumers to drain
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Drain all consumers whose process has no heartbeat
    #[arg(long)]
    dead: bool,
    /// Also drain consumers whose process is alive, and entries delivered less than worker.lock_lease_ms ago
    #[arg(long, requires = "names", conflicts_with = "remove")]
    force: bool,
    /// Remove each dead consumer after workers have taken all its entries
    #[arg(long)]
    remove: bool,
    /// The longest time to wait until workers have taken the entries, such as 1m. Default: 0s, or 2m with --remove
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    wait: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for ConsumersDrainArgs {
    /// Makes the entries claimable, and removes the consumers with `--remove`.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let ConsumersDrainArgs { ref names, dead, force, remove, wait, ref change } = *self;
        let consumers = if dead { ConsumerChoice::Dead } else { ConsumerChoice::Named(names.clone()) };
        if remove {
            let wait = wait.unwrap_or(REMOVAL_WAIT);
            return remove::run(stores, ConsumerRemovalRequest { consumers, wait }, change).await;
        }
        claim::run(stores, ClaimRequest { consumers, force, wait }, change).await
    }
}

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

/// The default time that a removal waits.
const REMOVAL_WAIT: Duration = Duration::from_mins(2);

const EXAMPLES: &str = "\
Examples:
  tidegate consumers drain --dead --dry-run
  tidegate consumers drain --dead --wait 1m --yes
  tidegate consumers drain shop-7-0 shop-7-1 --remove

Workers claim entries that were untouched for worker.claim_idle_ms. This command makes the entries claimable now: the
next scan of any lane takes them, within worker.claim_every_ms. Until then, they belong to their old consumer. The
command counts no failure and no delivery. Nothing is lost if no living worker reads the stream.

An entry that was in progress less than worker.lock_lease_ms ago is skipped, because the locks of its worker may still
be held. Run the command again later. This does not apply to entries that were set aside.

A consumer whose process is alive is refused: it is working on its entries, or retries them. With --force, its entries
are made claimable anyway. Use it for a lane that hangs, or that a restart with fewer lanes has left behind. The entries
that such a lane has in progress are handled twice, but no order is written twice. --force needs names, and cannot be
combined with --remove. Write -- before a name that begins with a hyphen.

--wait waits until all entries were taken, and exits with 1 if they were not. Ctrl-C ends it with 6.

With --remove, the command waits until workers have taken the entries. Then it removes each consumer in one step, which
checks again that the consumer is dead and holds nothing. If entries are pending and no living worker reads the stream,
nothing is done: start a worker. If a consumer could not be removed within --wait, it stays, nothing is lost, and the
exit code is 1. Workers remove dead, empty consumers by themselves after an hour.";

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
    /// Also drain consumers whose process is alive, and entries that were delivered a moment ago
    #[arg(long, requires = "names", conflicts_with = "remove")]
    force: bool,
    /// Remove the consumers once workers have taken their entries
    #[arg(long)]
    remove: bool,
    /// How long to wait until workers have taken the entries, such as 1m. Default: no wait; with --remove, 2m
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

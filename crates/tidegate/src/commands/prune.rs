//! The command `tidegate prune`: deletes old data that no order needs any more.

mod ended;
mod stream;

use std::{collections::BTreeSet, time::Duration};

use clap::{Args, ValueEnum};
use tidegate_operations::{
    Stores,
    prune::{PruneKind, PruneRequest},
};

use crate::{
    exit::{Exit, WrongUsage},
    operator::ChangeArgs,
    scope::PartitionCommand,
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate prune stream --older-than 12h --dry-run
  tidegate prune stream
  tidegate prune refusals events --older-than 90d --dry-run
  tidegate prune dead-letters --older-than 30d --yes

stream: deletes entries that are older than --older-than (default: stream.retention_ms) if every group has read and
acknowledged them. It stops at the first entry that a group still needs. Redis deletes blocks of a hundred entries, so
up to a hundred old entries stay. Workers delete such entries once a minute, so you rarely need this command. Deleted
entries cannot be replayed. The entry may be the only trace of an order that your own script admitted: run tidegate
audit first. Each step deletes 10,000 entries.

refusals, events, dead-letters: deletes data that is older than --older-than, if its order has ended in MySQL and no
stream entry and no dead letter names that order:
  - refusals of orders that no journal (Redis hash of all admissions of a voucher) has
  - events, except payments, refunds, releases of units, and the last event and last status change of each order
  - dead letters whose orders are written, cancelled or refused
Workers never delete this data, and you cannot restore it. docs/prune.md lists what you cannot find out afterwards.
The command pauses after every few thousand rows, to leave MySQL time for the sale.

Ctrl-C ends the command between two steps with exit code 6; run it again to continue.";

/// The arguments of `tidegate prune`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PruneArgs {
    /// The data to prune: either stream, or one or more of refusals, events, dead-letters
    #[arg(value_name = "WHAT", required = true)]
    what: Vec<Prunable>,
    /// Delete only data that is older than this, such as 12h or 90d. Required, except for the stream (default:
    /// stream.retention_ms)
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    older_than: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// The data that can be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Prunable {
    /// Acknowledged entries of the stream
    Stream,
    /// Refusals, in tidegate_refusal
    Refusals,
    /// Events of orders that have ended, in tidegate_event
    Events,
    /// Dead letters whose orders have ended in MySQL
    DeadLetters,
}

impl Prunable {
    const fn kind(self) -> Option<PruneKind> {
        match self {
            Self::Stream => None,
            Self::Refusals => Some(PruneKind::Refusals),
            Self::Events => Some(PruneKind::Events),
            Self::DeadLetters => Some(PruneKind::DeadLetters),
        }
    }
}

impl PartitionCommand for PruneArgs {
    /// Prunes the selected data.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let PruneArgs { what, older_than, change } = self;
        let kinds: BTreeSet<PruneKind> = what.iter().filter_map(|what| what.kind()).collect();
        let wrong = match (what.contains(&Prunable::Stream), older_than) {
            (true, older_than) if kinds.is_empty() => return stream::run(stores, *older_than, change).await,
            (true, _) => {
                "the stream cannot be pruned together with other data: use a separate command for the stream"
            }
            (false, None) => "--older-than is missing: only the stream has a default (stream.retention_ms)",
            (false, Some(older_than)) => {
                return ended::run(stores, PruneRequest { older_than: *older_than, kinds }, change).await;
            }
        };
        Err(WrongUsage(wrong.to_owned()).into())
    }
}

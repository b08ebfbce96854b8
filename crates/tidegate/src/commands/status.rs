//! The command `tidegate status`: the backlog of the stream, its consumers, and the stocks in both stores.

pub mod expirations;
mod text;

use std::future::ready;

use clap::Args;
use serde::Serialize;
use tidegate_operations::{InvalidInput, Stores, System, SystemSettings, finding::Level, status::Status};

use crate::{
    exit::Exit,
    output::OutputArgs,
    partitions::{ask_all, is_undivided, of_partition},
    scope::SystemCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status --json | jq .stream.oldest_pending_s
  tidegate status --json | jq .expirations.overdue

Set your alerts on the ages of the oldest undelivered entry and the oldest pending entry. Counts depend on how busy the
sale is, but an age above a minute is always a problem. If orders wait or a sale is open and no worker is alive, the
command reports this and exits with 1.

It also shows how late unpaid orders expire. If a store lost data, no order expires until you run tidegate resume
--expirations.

If a store cannot be reached, it shows the rest and exits with 3. If only some partitions answer, it exits with 12.";

/// The arguments of `tidegate status`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl SystemCommand for StatusArgs {
    /// Shows the status of each partition and of all together.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let read = async |settings: &SystemSettings| {
            let stores = Stores::new(settings);
            let (redis, mysql) = tokio::join!(stores.redis(), stores.mysql());
            let redis = known_list(redis.cloned())?;
            let within = settings.mysql.statement_timeout;
            anyhow::Ok(Status::read(settings, ready(redis), ready(known_list(mysql.cloned())?), within).await)
        };
        let parts = ask_all(system, read).await.into_iter();
        let parts: Vec<_> =
            parts.map(|(settings, read)| anyhow::Ok((settings, read?))).collect::<Result<_, _>>()?;
        let mut whole = Whole::default();
        for (settings, status) in &parts {
            of_partition(system, settings, || self.output.print(status, text::render))?;
            whole.add(settings.partition().tag().unwrap_or_default(), status);
        }
        let is_known = parts.iter().all(|(_, status)| status.errors.is_empty());
        let is_dead = |(_, status): &(_, Status)| {
            status.no_worker.as_ref().is_some_and(|found| found.level == Level::Error)
        };
        let known = if parts.iter().any(is_dead) { Exit::No } else { Exit::Ok };
        if is_undivided(system) {
            return Ok(if is_known { known } else { Exit::Failed });
        }
        if parts.len() > 1 {
            self.output.print_line(&whole, text::whole)?;
        }
        Ok(if is_known { known } else { Exit::Unknown })
    }
}

/// Passes on the result of opening a store. A store that cannot be reached is part of the output. A store of another
/// system is an error, because its values would be wrong.
fn known_list<T>(opened: anyhow::Result<T>) -> anyhow::Result<anyhow::Result<T>> {
    match opened {
        Err(error) if error.is::<InvalidInput>() => Err(error),
        opened => Ok(opened),
    }
}

/// The totals of all partitions.
#[derive(Debug, Default, Serialize)]
struct Whole {
    all_partitions: Vec<String>,
    /// The tags of the partitions with values that could not be read.
    unknown: Vec<String>,
    stream: Sum,
}

/// The sums over the partitions whose streams could be read.
#[derive(Debug, Default, Serialize)]
struct Sum {
    undelivered: u64,
    /// Whether there are more undelivered entries than counted.
    undelivered_is_at_least: bool,
    oldest_undelivered_s: Option<f64>,
    pending: u64,
    oldest_pending_s: Option<f64>,
    dead_letters: u64,
}

impl Whole {
    fn add(&mut self, tag: &str, status: &Status) {
        self.all_partitions.push(tag.to_owned());
        if !status.errors.is_empty() {
            self.unknown.push(tag.to_owned());
        }
        let Some(stream) = &status.stream else { return };
        let older = |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        self.stream = Sum {
            undelivered: self.stream.undelivered + stream.backlog.undelivered,
            undelivered_is_at_least: self.stream.undelivered_is_at_least
                || stream.backlog.undelivered_is_at_least,
            oldest_undelivered_s: older(
                self.stream.oldest_undelivered_s,
                stream.backlog.oldest_undelivered_s,
            ),
            pending: self.stream.pending + stream.backlog.pending,
            oldest_pending_s: older(self.stream.oldest_pending_s, stream.backlog.oldest_pending_s),
            dead_letters: self.stream.dead_letters + stream.dead_letters,
        };
    }
}

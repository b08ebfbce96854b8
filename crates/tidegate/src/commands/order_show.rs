//! The command `tidegate order show`: everything that both stores hold of one order, its state, and what to type next.

mod commands;
mod not_found;
mod sentence;
mod text;
mod times;

use clap::Args;
use futures_util::future::join_all;
use serde::Serialize;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores, System, SystemSettings,
    order_partition::OrderPartitions,
    order_show::{OrderQuery, OrderRecords, OrderReport, show_order},
};
use tidegate_orders::{Keys, OrderId, OrderStatus, UserId, VoucherId};

pub use self::sentence::status;
use self::{
    commands::{RedisNames, command},
    sentence::sentence,
};
use crate::{
    entry_arg::EntryArg,
    exit::Exit,
    invocation::Invocation,
    operator::ProgressBar,
    output::{OutputArgs, print_note},
    partitions::unless_away,
    scope::SystemCommand,
};

/// The default for the highest number of entries to search, in the stream of orders and in the stream of dead letters.
pub const SCAN: u64 = 100_000;

const EXAMPLES: &str = "\
Examples:
  tidegate order show 662196605998333958
  tidegate order show 662196605998333958 --voucher 7
  tidegate order show 662196605998333958 --json | jq -r .fate.is

Shows all data of the order in MySQL, the journal (the Redis hash of all admissions of a voucher), the stream, the
pending list and the dead letters. Then it prints the state of the order in a sentence, and the commands to type next.
States: written, cancelled, contradictory, refused, released, dead, undelivered, pending, lost, unsure, unknown.

An order id contains neither the voucher nor the entry. If MySQL and the dead letters do not know the id, the command
searches the journals of the vouchers with the highest ids, and then all journals in Redis. It also searches the stream:
first around the time that the id contains, if `tidegate admit` made the id, and then from the end. --voucher, --user
and --entry avoid these searches. The command prints what it did not search. In a system with partitions, it first
searches the partition that the id names, and then all other partitions.

Exits with 1 if it finds nothing of the order. If a store cannot be reached, it shows the rest and exits with 3.";

/// The arguments of `tidegate order show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OrderShowArgs {
    /// The id of the order
    #[arg(value_name = "ORDER")]
    pub order: OrderId,
    /// The voucher of the order, if you know it
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// The user of the order, if you know it
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
    /// The entry of the order, if you know it
    #[arg(long, value_name = "ENTRY")]
    entry: Option<EntryArg>,
    /// The most entries to search in the stream, and the most dead letters to search
    #[arg(long, value_name = "NUMBER", default_value_t = SCAN, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// The records of an order and the conclusion, as the command prints them as JSON.
#[derive(Serialize)]
struct ShownOrder {
    order: OrderId,
    #[serde(rename = "fate")]
    conclusion: Conclusion,
    #[serde(flatten)]
    records: OrderRecords,
    #[serde(skip)]
    user: Option<UserId>,
    /// The note that names flags to add to the commands, such as a URL with a password.
    #[serde(skip)]
    note: Option<String>,
}

/// The status of an order, as it follows from all records, and the next steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Conclusion {
    #[serde(rename = "is")]
    status: OrderStatus,
    /// The sentences that explain the status of the order and the next steps.
    sentence: String,
    /// The command lines that the operator can type next.
    commands: Vec<String>,
}

impl Conclusion {
    fn of(report: &OrderReport, names: &RedisNames, claim_idle_ms: u64) -> Self {
        let commands = report.next_steps.iter().map(|step| command(step, report.query.order, names));
        Self {
            status: report.status,
            sentence: sentence(report, claim_idle_ms),
            commands: commands.collect(),
        }
    }
}

impl SystemCommand for OrderShowArgs {
    /// Shows one order.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let OrderShowArgs { order, voucher, user, ref entry, scan, .. } = *self;
        let entry = entry.as_ref().map(|entry| entry.id);
        let query = OrderQuery { order, voucher, user, entry, budget: scan };
        let places = OrderPartitions::find(system, order, voucher).await?;
        let (settings, report) = look_in(&places, query).await;
        let exit = print(settings, query, report, &self.output)?;
        Ok(unless_away(exit, &places.away))
    }
}

/// Searches the likeliest partition. If no record is found there, searches all other partitions. Returns the partition
/// that has the order, or the likeliest partition.
async fn look_in<'a>(places: &OrderPartitions<'a>, query: OrderQuery) -> (&'a SystemSettings, OrderReport) {
    let progress = ProgressBar::new();
    let (first, others) = (places.all[0], &places.all[1..]);
    let mut report = show_order(&Stores::new(first), query, &progress).await;
    if others.is_empty() || !report.records.is_unknown() {
        return (first, report);
    }
    // The futures are boxed, because each of them is large.
    let asked = others.iter().map(async |own| (*own, show_order(&Stores::new(own), query, &progress).await));
    let mut found = None;
    for (own, other) in join_all(asked.map(Box::pin)).await {
        if !other.records.is_unknown() {
            found = found.or(Some((own, other)));
        } else {
            let errors = other.records.search.errors.iter();
            report
                .records
                .search
                .errors
                .extend(errors.map(|error| format!("partition {}: {error}", own.partition())));
        }
    }
    drop(progress);
    if let Some((own, found)) = found {
        print_note(&format!("order {} is in partition {}", query.order, own.partition()));
        return (own, found);
    }
    let all = counted(places.all.len() as u64, "partition");
    let said = if report.records.search.errors.is_empty() { "knows" } else { "that gave an answer knows" };
    print_note(&format!("none of the {all} {said} order {}", query.order));
    (first, report)
}

fn print(
    settings: &SystemSettings,
    query: OrderQuery,
    report: OrderReport,
    output: &OutputArgs,
) -> anyhow::Result<Exit> {
    let (keys, stream) = (Keys::new(settings.keys.clone()), settings.stream_names().stream);
    let claim_idle_ms = u64::try_from(settings.fleet.claim_idle.as_millis()).unwrap_or(u64::MAX);
    let mut conclusion = Conclusion::of(&report, &RedisNames { stream, keys }, claim_idle_ms);
    let shell = Invocation::current();
    let is_ours = |command: &String| command.starts_with("tidegate ");
    let note = shell.note().filter(|_| conclusion.commands.iter().any(is_ours));
    conclusion.commands.iter_mut().for_each(|command| *command = shell.complete(command));
    let (user, records) = (report.records.user(&query), report.records);
    let shown = ShownOrder { order: query.order, conclusion, records, user, note };
    output.print(&shown, text::render)?;
    Ok(match (shown.records.search.errors.is_empty(), shown.records.is_unknown()) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::No,
        (true, false) => Exit::Ok,
    })
}

#[cfg(test)]
mod tests;

//! Running a command on the partitions of a system: one after the other, each under its own heading.
//!
//! If a partition cannot be reached, the command names it, and the overall answer is unknown. The other partitions are
//! still processed. All partitions are checked at once, so that many dead partitions cost no more time than one.

use std::{collections::BTreeMap, fmt::Write, ops::ControlFlow, sync::Arc};

use fred::interfaces::ClientLike;
use futures_util::future::join_all;
use tidegate_compare::text::error_chain;
use tidegate_operations::{
    InvalidInput, Stores, System, SystemSettings, connect,
    order_partition::{OrderPartition, ShardsAway},
};
use tidegate_orders::{OrderId, VoucherId};

use crate::{
    exit::{Exit, WrongUsage},
    operator::Together,
    output::{self, print_note},
};

/// Runs a command in each partition; in a system without partitions, once.
///
/// # Errors
/// The failure of the command in a system without partitions, or wrong input in any partition.
pub async fn over_all(
    system: &System,
    command: impl AsyncFn(&Stores) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    over(system, Whole::EveryOne, command).await
}

/// Runs a search command in each partition. The command succeeds if it succeeds in one partition.
///
/// # Errors
/// As [`over_all`].
pub async fn over_any(
    system: &System,
    command: impl AsyncFn(&Stores) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    over(system, Whole::AnyOne, command).await
}

/// Runs a command like [`over_all`], but once for each MySQL database instead of each partition.
///
/// # Errors
/// As [`over_all`].
pub async fn over_shards(
    system: &System,
    command: impl AsyncFn(&Stores) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let shards = system.shards();
    if let [only] = shards[..] {
        return command(&Stores::new(only)).await;
    }
    let parts: Vec<_> = shards.into_iter().map(|shard| (shard.mysql.shard_tags.join(","), shard)).collect();
    let until_error = |_: &SystemSettings, ended: &anyhow::Result<Exit>| match ended {
        Ok(_) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let ended = run_parts(&parts, BTreeMap::new(), &command, until_error).await;
    let exits = ended.into_iter().collect::<anyhow::Result<Vec<Exit>>>()?;
    Ok(Whole::EveryOne.exit(&exits, true))
}

/// The condition under which the overall answer is yes.
#[derive(Clone, Copy)]
enum Whole {
    /// Every partition must answer yes.
    EveryOne,
    /// One partition must answer yes.
    AnyOne,
}

/// Queries all partitions at the same time, for commands that only read. The results have the order of the partition
/// list.
pub async fn ask_all<'a, T>(
    system: &'a System,
    ask: impl AsyncFn(&'a SystemSettings) -> T,
) -> Vec<(&'a SystemSettings, T)> {
    at_once(system.partitions(), async |settings| (settings, ask(settings).await)).await
}

/// Runs `ask` on all items at the same time. The results are in the order of the items.
pub async fn at_once<'a, P, T>(all: &'a [P], ask: impl AsyncFn(&'a P) -> T) -> Vec<T> {
    // The futures are boxed, because each of them is large.
    join_all(all.iter().map(|one| Box::pin(ask(one)))).await
}

/// Runs `tell`, which prints the output of one partition. If there are several partitions, first prints a heading.
pub fn of_partition<T>(system: &System, settings: &SystemSettings, tell: impl FnOnce() -> T) -> T {
    if is_undivided(system) {
        return tell();
    }
    output::begin_partition(settings.partition().tag());
    let told = tell();
    output::begin_partition(None);
    told
}

/// Whether the system has no partitions, or only one partition, so that commands print no summary of all partitions.
pub fn is_undivided(system: &System) -> bool {
    matches!(system.partitions(), [only] if only.partition().tags().len() < 2)
}

/// Formats the tags of partitions for people: `{a}, {b}`.
pub fn names<'a>(tags: impl IntoIterator<Item = &'a String>) -> String {
    tags.into_iter().fold(String::new(), |mut names, tag| {
        let comma = if names.is_empty() { "" } else { ", " };
        let _ = write!(names, "{comma}{{{tag}}}");
        names
    })
}

/// The errors of the partitions whose Redis cannot be reached, by their index in the list. Errors in the input are left
/// out, because the command reports them.
async fn unreachable(system: &System) -> BTreeMap<usize, anyhow::Error> {
    let reached = ask_all(system, async |settings| {
        let redis = connect::redis_in_order(settings).await?;
        let _closed = redis.pool().quit().await;
        anyhow::Ok(())
    });
    let errors = reached.await.into_iter().enumerate();
    let errors = errors.filter_map(|(at, (_, reached))| Some((at, reached.err()?)));
    errors.filter(|(_, error)| !error.is::<InvalidInput>()).collect()
}

/// Whether the error is about the arguments or the configuration, which is the same in every partition.
fn is_wrong_input(error: &anyhow::Error) -> bool {
    error.is::<InvalidInput>() || error.is::<WrongUsage>()
}

/// Runs a command on these partitions, one after the other, each under its heading, until `after` breaks. If a
/// partition asks a question, it waits until all questions are known. Then all questions are asked together, and the
/// partitions continue one after the other. `away` has the error of each partition that is not run.
async fn run_parts(
    parts: &[(String, &SystemSettings)],
    mut away: BTreeMap<usize, anyhow::Error>,
    command: &impl AsyncFn(&Stores) -> anyhow::Result<Exit>,
    mut after: impl FnMut(&SystemSettings, &anyhow::Result<Exit>) -> ControlFlow<()>,
) -> Vec<anyhow::Result<Exit>> {
    let together = Arc::new(Together::new());
    let (mut all_ended, mut waiting) = (Vec::new(), Vec::new());
    for (at, (tag, settings)) in parts.iter().enumerate() {
        output::begin_partition(Some(tag));
        // The connections of the partition end with this future.
        let run = async { command(&Stores::new(settings)).await };
        let mut running = Box::pin(together.part(format!("{{{tag}}}"), run));
        let ended = match away.remove(&at) {
            Some(error) => Some(Err(error)),
            None => tokio::select! {
                biased;
                ended = &mut running => Some(ended),
                () = together.waits() => None,
            },
        };
        output::begin_partition(None);
        match ended {
            Some(ended) => {
                let further = after(settings, &ended);
                all_ended.push(ended);
                if further.is_break() {
                    return all_ended;
                }
            }
            None => waiting.push((tag, settings, running)),
        }
    }
    if !waiting.is_empty() {
        together.ask();
    }
    for (tag, settings, running) in waiting {
        output::begin_partition(Some(tag));
        let ended = running.await;
        output::begin_partition(None);
        let is_stopped = matches!(ended, Ok(Exit::Stopped));
        let _told = after(settings, &ended);
        all_ended.push(ended);
        if is_stopped {
            break;
        }
    }
    all_ended
}

async fn over(
    system: &System,
    whole: Whole,
    command: impl AsyncFn(&Stores) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    if let ([only], true) = (system.partitions(), is_undivided(system)) {
        return command(&Stores::new(only)).await;
    }
    let unreachable = match system.partitions() {
        [_] => BTreeMap::new(),
        _ => unreachable(system).await,
    };
    let tag = |settings: &SystemSettings| settings.partition().tag().unwrap_or_default().to_owned();
    let parts: Vec<_> = system.partitions().iter().map(|settings| (tag(settings), settings)).collect();
    let (mut exits, mut failed) = (Vec::new(), Vec::new());
    let tell = |settings: &SystemSettings, ended: &anyhow::Result<Exit>| match ended {
        Ok(Exit::Stopped) => ControlFlow::Break(()),
        Ok(_) => ControlFlow::Continue(()),
        Err(error) if is_wrong_input(error) => ControlFlow::Break(()),
        Err(error) => {
            print_note(&format!("error: partition {}: {}", settings.partition(), error_chain(error)));
            failed.push(settings.partition().to_string());
            ControlFlow::Continue(())
        }
    };
    for ended in run_parts(&parts, unreachable, &command, tell).await {
        match ended {
            Ok(Exit::Stopped) => return Ok(Exit::Stopped),
            Ok(exit) => exits.push(exit),
            Err(error) if is_wrong_input(&error) => return Err(error),
            Err(_) => {}
        }
    }
    if !failed.is_empty() {
        let (away, all) = (failed.len(), system.partitions().len());
        print_note(&format!(
            "UNKNOWN: {away} of {all} partitions gave no answer: {}. The output above lacks these partitions.",
            failed.join(", ")
        ));
    }
    Ok(whole.exit(&exits, failed.is_empty()))
}

/// Finds the partition in which to search for an order. If the partition is only a guess, prints a note.
///
/// # Errors
/// When the partition of the order cannot be found.
pub async fn place_of(
    system: &System,
    order: OrderId,
    voucher: Option<VoucherId>,
) -> anyhow::Result<FoundPartition<'_>> {
    let place = OrderPartition::find(system, order, voucher).await?;
    if place.is_guessed {
        let partition = place.system.partition();
        print_note(&format!(
            "MySQL does not know order {order}: searching partition {partition}, which the order id names (to choose \
             another partition: --voucher or --partition)"
        ));
    }
    Ok(FoundPartition(place))
}

/// The partition in which to search for an order, and whether it is a guess.
pub struct FoundPartition<'a>(OrderPartition<'a>);

impl<'a> FoundPartition<'a> {
    /// Searches the partition for the order with `look`. If the order is not found, and a MySQL shard does not answer,
    /// the result is "unknown" instead of "not found".
    ///
    /// # Errors
    /// As `look`.
    pub async fn conclude(
        self,
        look: impl AsyncFnOnce(&'a SystemSettings) -> anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        Ok(unless_away(look(self.0.system).await?, &self.0.away))
    }

    /// The partition in which to change the order. If a MySQL shard does not answer, so that the partition is
    /// uncertain, this is an error.
    ///
    /// # Errors
    /// When a shard is away.
    pub fn certain(self) -> anyhow::Result<&'a SystemSettings> {
        match &self.0.away[..] {
            [] => Ok(self.0.system),
            away => Err(ShardsAway("nothing was changed".to_owned(), away.join("; ")).into()),
        }
    }
}

/// The exit code of a search for an order. If the order was not found, and the MySQL shards in `away` did not answer,
/// the exit code means "unknown".
pub fn unless_away(exit: Exit, away: &[String]) -> Exit {
    if exit == Exit::Ok || away.is_empty() {
        return exit;
    }
    print_note(&format!(
        "UNKNOWN: a MySQL shard that may have the order gave no answer: {}. To query only one shard, add --voucher.",
        away.join("; ")
    ));
    Exit::Unknown
}

impl Whole {
    /// The overall exit code: unknown results come first, then failures and negative answers.
    fn exit(self, exits: &[Exit], are_known: bool) -> Exit {
        if !are_known {
            return Exit::Unknown;
        }
        let is_well = |exit: &Exit| match self {
            Self::EveryOne => *exit == Exit::Ok,
            Self::AnyOne => matches!(exit, Exit::Ok | Exit::No),
        };
        let is_there = exits.contains(&Exit::Ok);
        let not_well = exits.iter().copied().filter(|exit| !is_well(exit));
        let worst = not_well.max_by_key(|exit| (*exit == Exit::Unknown, *exit as u8));
        worst.unwrap_or(if is_there { Exit::Ok } else { Exit::No })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_partition_that_is_away_leaves_the_whole_unknown() {
        assert_eq!(Whole::EveryOne.exit(&[Exit::Ok, Exit::Ok], true), Exit::Ok);
        assert_eq!(Whole::EveryOne.exit(&[Exit::Ok, Exit::No], true), Exit::No);
        assert_eq!(Whole::EveryOne.exit(&[Exit::Failed, Exit::No], true), Exit::Failed);
        assert_eq!(Whole::EveryOne.exit(&[Exit::Ok], false), Exit::Unknown);
        assert_eq!(Whole::EveryOne.exit(&[Exit::No], false), Exit::Unknown);
        assert_eq!(Whole::EveryOne.exit(&[Exit::Unknown, Exit::No], true), Exit::Unknown);
    }

    #[test]
    fn what_one_partition_has_is_there_unless_one_is_away() {
        assert_eq!(Whole::AnyOne.exit(&[Exit::No, Exit::Ok], true), Exit::Ok);
        assert_eq!(Whole::AnyOne.exit(&[Exit::No, Exit::No], true), Exit::No);
        assert_eq!(Whole::AnyOne.exit(&[Exit::Ok, Exit::Failed], true), Exit::Failed);
        assert_eq!(Whole::AnyOne.exit(&[Exit::Ok], false), Exit::Unknown);
    }
}

//! How a command goes over the partitions of a system: one after the other, each under its own heading. One that is away is named,
//! and leaves the answer of the whole unknown; the others are looked at all the same.

use tidegate_operations::{InvalidInput, System, SystemSettings, order_place::OrderPlace, text::error_chain};
use tidegate_orders::{OrderId, VoucherId};

use crate::{
    exit::{Exit, WrongUsage},
    output::{self, print_note},
};

/// Runs a command on all partitions. In a system without any, this is the command itself.
///
/// # Errors
/// What the command failed with in a system without partitions, or what is wrong with its input in any.
pub async fn over_all(
    system: &System,
    command: impl AsyncFn(&SystemSettings) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let [first, others @ ..] = system.partitions() else { unreachable!("there is one at least") };
    if others.is_empty() && first.partition().tags().len() < 2 {
        return command(first).await;
    }
    let (mut exits, mut failed) = (Vec::new(), Vec::new());
    for settings in system.partitions() {
        output::begin_partition(settings.partition().tag());
        let ended = command(settings).await;
        output::begin_partition(None);
        match ended {
            Ok(Exit::Stopped) => return Ok(Exit::Stopped),
            Ok(exit) => exits.push(exit),
            Err(error) if error.is::<InvalidInput>() || error.is::<WrongUsage>() => return Err(error),
            Err(error) => {
                print_note(&format!("error: partition {}: {}", settings.partition(), error_chain(&error)));
                failed.push(settings.partition().to_string());
            }
        }
    }
    if !failed.is_empty() {
        let (away, all) = (failed.len(), system.partitions().len());
        print_note(&format!(
            "UNKNOWN: {away} of {all} partitions gave no answer: {}. What is said above is true of the others only.",
            failed.join(", ")
        ));
    }
    Ok(of_all(&exits, failed.is_empty()))
}

/// The partition in which to look for an order. Where that is a guess, it says so.
///
/// # Errors
/// When nothing tells which it is.
pub async fn place_of(
    system: &System,
    order: OrderId,
    voucher: Option<VoucherId>,
) -> anyhow::Result<&SystemSettings> {
    let place = OrderPlace::find(system, order, voucher).await?;
    if place.is_guessed {
        let partition = place.system.partition();
        print_note(&format!(
            "MySQL does not know order {order}: looking in partition {partition}, which its id names (--voucher or \
             --partition says another)"
        ));
    }
    Ok(place.system)
}

/// The exit code of the whole: what is not known comes first, then whatever is not well.
fn of_all(exits: &[Exit], are_known: bool) -> Exit {
    if !are_known {
        return Exit::Unknown;
    }
    let not_well = exits.iter().copied().filter(|exit| *exit != Exit::Ok);
    not_well.max_by_key(|exit| (*exit == Exit::Unknown, *exit as u8)).unwrap_or(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_partition_that_is_away_leaves_the_whole_unknown() {
        assert_eq!(of_all(&[Exit::Ok, Exit::Ok], true), Exit::Ok);
        assert_eq!(of_all(&[Exit::Ok, Exit::No], true), Exit::No);
        assert_eq!(of_all(&[Exit::Failed, Exit::No], true), Exit::Failed);
        assert_eq!(of_all(&[Exit::Ok], false), Exit::Unknown);
        assert_eq!(of_all(&[Exit::No], false), Exit::Unknown);
        assert_eq!(of_all(&[Exit::Unknown, Exit::No], true), Exit::Unknown);
    }
}

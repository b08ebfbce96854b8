//! The accidents of workers and operators during the sales. Workers die, orders are run again, stocks grow, unpaid
//! orders end, and the fleet pauses.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rand::{RngExt, rngs::StdRng};

use super::fleet::Fleet;
use crate::fixture::{DEADLINE, Worker, until_within};

const RELEASE_UNPAID: [&str; 7] =
    ["order", "release-unpaid", "--voucher", "1", "--older-than", "1s", "--yes"];
/// The number of accidents in each fleet.
const ACCIDENTS: usize = 7;

/// The number of sales that still run.
#[derive(Default)]
pub struct Open(pub AtomicI64);

/// Causes the accidents, each a while after the one before.
pub async fn happen(fleet: &Fleet<'_>, workers: &mut Vec<Worker>, open: &Open, rng: &mut StdRng) {
    for accident in 0..ACCIDENTS {
        let before = fleet.done().await;
        // The accident happens in the middle of the work, or at its end.
        let more = rng.random_range(50..400);
        until_within(4 * DEADLINE, "there is more to do, or nothing any more", || async {
            fleet.done().await > before + more || (open.0.load(Relaxed) == 0 && fleet.is_settled().await)
        })
        .await;
        match rng.random_range(0..8) {
            0 => fleet.tidegate(&["pause", "--workers", "--for", "1s", "--yes"]).await,
            // Some entries are in progress at a worker meanwhile, and the replay leaves them.
            1 => fleet.tidegate_tries(&["replay", "--from", "2020-01-01", "--to", "0s", "--yes"]).await,
            2 => {
                // The same change twice would count as a repetition of the first.
                let units = (accident + 1).to_string();
                fleet.tidegate(&["voucher", "add", "--voucher", "1", "--units", &units, "--yes"]).await;
            }
            // Some orders are paid meanwhile: their events are rejected.
            3 => fleet.tidegate_tries(&RELEASE_UNPAID).await,
            _ => {
                workers.swap_remove(0).kill9();
                workers.push(fleet.worker(accident + 2));
            }
        }
    }
}

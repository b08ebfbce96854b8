//! The commands that an operator types after a loss, page by page of the runbook.

use std::{
    process::Output,
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use tokio::time::sleep;

use super::losses::Loss;
use crate::{fixture::DEADLINE, life_model::fleet::Fleet};

/// The most repairs that are needed. A repair may leave orders in flight, orders that moved meanwhile, and differences
/// that appear only after lost events are recorded.
const MOST_REPAIRS: usize = 5;

/// Repairs as `docs/runbook/store-went-back.md` and its linked pages describe. For an older Redis, both `rebuild` and
/// `reconcile` work: `rebuild` fills it anew, and `reconcile` repairs it by difference.
pub async fn repair(fleet: &Fleet<'_>, losses: &[Loss], rebuilds: bool) {
    let is_forgotten = kinds(&look(fleet).await).iter().any(|kind| kind == "sale_forgotten");
    if is_forgotten || rebuilds && losses.iter().any(|loss| loss.is_of_redis()) {
        let done = alone(fleet, &["rebuild", "--all", "--yes"]).await;
        assert!(done.status.success(), "{done:?}");
    }
    repair_by_difference(fleet).await;
    fleet.tidegate_tries(&["resume", "--expirations", "--yes"]).await;
    // A loss after the last restore counter is not detected, so expirations continue. If the loss included an `expired`
    // event, the order would get another one after ten minutes. The test does not wait for that.
    let unseen = "UPDATE tidegate_unpaid_order SET ask_ms = due_ms";
    sqlx::query(unseen).execute(&fleet.pool).await.expect("MySQL answers");
}

/// Repairs until both sides agree and no order is in flight. An order may wait for data that only the next repair
/// restores (`lost_in_mysql`).
pub async fn repair_what_is_left(fleet: &Fleet<'_>) {
    let (mut began, mut repairs) = (Instant::now(), 0);
    loop {
        let is_settled = fleet.none_is_due().await && fleet.is_settled().await;
        let left = look(fleet).await;
        if left["clean"] == true {
            if is_settled {
                return;
            }
            if began.elapsed() >= 2 * DEADLINE {
                let pending = fleet.run(&["pending", "list"]).await;
                panic!("waits for ever: {}", String::from_utf8_lossy(&pending.stdout));
            }
        } else {
            assert!(repairs < MOST_REPAIRS, "not repaired: {left:#}");
            repair_by_difference(fleet).await;
            (began, repairs) = (Instant::now(), repairs + 1);
        }
    }
}

pub async fn look(fleet: &Fleet<'_>) -> Json {
    let Output { stdout, stderr, .. } = alone(fleet, &["reconcile", "--json"]).await;
    serde_json::from_slice(&stdout)
        .unwrap_or_else(|_| panic!("no look: {}", String::from_utf8_lossy(&stderr)))
}

/// Repairs once by difference, which may leave a part.
async fn repair_by_difference(fleet: &Fleet<'_>) {
    let done = alone(fleet, &["reconcile", "--repair", "--yes"]).await;
    assert!(matches!(done.status.code(), Some(0 | 1)), "{done:?}");
}

/// Runs a command, and repeats it while another one holds the lease. That may be a lease from before the loss, which
/// came back with an older Redis.
async fn alone(fleet: &Fleet<'_>, args: &[&str]) -> Output {
    let began = Instant::now();
    loop {
        let done = fleet.run(args).await;
        if !String::from_utf8_lossy(&done.stderr).contains("at a time:") {
            return done;
        }
        assert!(began.elapsed() < DEADLINE, "somebody is always at it: {done:?}");
        sleep(Duration::from_millis(500)).await;
    }
}

fn kinds(look: &Json) -> Vec<String> {
    let vouchers = look["vouchers"].as_array().into_iter().flatten();
    let differences = vouchers.flat_map(|voucher| voucher["differences"].as_array().into_iter().flatten());
    differences.filter_map(|it| it["kind"].as_str().map(str::to_owned)).collect()
}

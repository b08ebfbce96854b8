//! Resumes expirations after a store went back in time: an operator has checked both stores, and accepts them as they
//! are.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::text::counted;
use tidegate_orders::{RestoreCounter, RestoreState, restore_counter::RestoreCounters, unpaid_orders};

use super::{ExpirationsView, assign_partitions};
use crate::{
    Stores,
    change::{Next, Plan, Report},
    within::in_session,
};

/// The time after which a store that has not answered counts as unavailable.
const PATIENCE: Duration = Duration::from_secs(10);

impl Plan for ExpirationsView {
    fn next(&self) -> Next {
        let overdue = counted(self.unpaid.overdue, "unpaid order");
        match self.state {
            RestoreState::Whole => Next::NothingToDo,
            RestoreState::RedisWentBack | RestoreState::MySqlWentBack => {
                Next::Ask(format!("Let unpaid orders expire again, and cancel {overdue} now?"))
            }
        }
    }
}

/// The report of the command `tidegate resume --expirations`, which lets unpaid orders expire again.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExpirationsReport {
    /// The new restore counters in both stores, which show whether a store loses data later.
    pub counters: RestoreCounters,
    /// Whether Redis or MySQL has lost data, as the new counters show.
    pub state: RestoreState,
}

impl Report for ExpirationsReport {
    fn counts(&self) -> Json {
        json!({ "restore_counter": self.counters.mark })
    }
}

/// Reads whether the expiration of unpaid orders is stopped.
///
/// # Errors
/// If a store does not answer.
pub async fn plan(stores: &Stores) -> anyhow::Result<ExpirationsView> {
    let (settings, (redis, mysql)) = (stores.settings(), stores.both().await?);
    ExpirationsView::read(settings, redis, mysql, PATIENCE).await
}

/// Accepts the data of both stores as correct, so that unpaid orders expire again.
///
/// # Errors
/// If a store does not answer; the same command continues.
pub async fn run(stores: &Stores) -> anyhow::Result<ExpirationsReport> {
    let (settings, (redis, mysql)) = (stores.settings(), stores.both().await?);
    let counter = RestoreCounter::new(redis.clone());
    assign_partitions(mysql, settings, || false).await?;
    let renewed = in_session(mysql, PATIENCE, async |session| {
        // This comes before any order expires: events that were not recorded yet may have been lost with the store that
        // went back.
        unpaid_orders::ask_at_once(session, settings.partition()).await?;
        Ok(counter.renew(session).await?)
    });
    let counters = renewed.await.context("Failed to write a new counter that shows lost data")?;
    Ok(ExpirationsReport { counters, state: counters.state() })
}

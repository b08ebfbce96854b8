//! Orders that expire because they are not paid in time: finding them, the worker that expires them, and continuing
//! after a store went back in time.

mod resume;
mod sweep;
mod unread_events;

use std::time::Duration;

use anyhow::Context;
use fred::interfaces::KeysInterface;
use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    RedisStore, RestoreCounter, RestoreState,
    restore_counter::RestoreCounters,
    unpaid_orders::{self, Assigned, SUMMED_UP, UnpaidSummary},
};
use tokio::time::Instant;

pub use self::{
    resume::{ExpirationsReport, plan, run},
    sweep::{SweepResult, Sweeper},
};
use crate::{
    settings::SystemSettings,
    within::{in_session, in_time, until},
};

/// Assigns orders that have to be paid in time to the partition that expires them, in MySQL. It works in steps, each
/// with its own timeout. False: it was stopped before the end.
///
/// # Errors
/// If MySQL does not answer; the next call continues.
pub(crate) async fn assign_partitions(
    mysql: &MySqlPool,
    settings: &SystemSettings,
    is_stopped: impl Fn() -> bool,
) -> anyhow::Result<bool> {
    while !is_stopped() {
        let assigned = in_session(mysql, settings.mysql.statement_timeout, async |session| {
            Ok(unpaid_orders::assign(session, settings.partition()).await?)
        });
        if assigned.await.context("Failed to store each unpaid order's partition")? == Assigned::All {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The address of the runbook page about a store that lost its newest data ([`RestoreState::RedisWentBack`],
/// [`RestoreState::MySqlWentBack`]).
pub const WENT_BACK: &str = "docs/runbook/store-went-back.md";

/// The number of unpaid orders with a time limit, and the restore counters, which show whether a store lost its newest
/// data. This is also the plan of the command `tidegate resume --expirations`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExpirationsView {
    /// The number of unpaid orders, and the seconds by which they are overdue.
    #[serde(flatten)]
    pub unpaid: UnpaidSummary,
    /// Whether there are more unpaid orders than the number in `unpaid`.
    pub at_least: bool,
    /// The name of the worker that now ends unpaid orders whose time limit is over; None: no worker does this.
    pub sweeper: Option<String>,
    /// Whether Redis or MySQL lost its newest data. If so, no order expires.
    pub state: RestoreState,
    /// The restore counters in both stores, which show whether a store lost its newest data.
    pub counters: RestoreCounters,
}

impl ExpirationsView {
    /// Reads the unpaid orders from MySQL, and the restore counters from both stores. These counters show lost data.
    ///
    /// # Errors
    /// If a store does not answer in time.
    pub async fn read(
        settings: &SystemSettings,
        redis: &RedisStore,
        mysql: &MySqlPool,
        within: Duration,
    ) -> anyhow::Result<Self> {
        let keys = redis.keys();
        let counter = RestoreCounter::new(redis.clone());
        let end = Instant::now() + within;
        let holder = async { Ok(redis.pool().get::<Option<String>, _>(keys.fleet().sweeper()).await?) };
        let holder = in_time("Redis", within, holder)
            .await
            .context("Failed to read which worker lets unpaid orders expire")?;
        let (unpaid, counters) = in_session(mysql, until(end), async |session| {
            Ok((unpaid_orders::summary(session, settings.partition()).await?, counter.read(session).await?))
        })
        .await
        .context("Failed to read the unpaid orders")?;
        Ok(Self {
            at_least: unpaid.orders >= u64::from(SUMMED_UP),
            unpaid,
            sweeper: holder.map(|token| sweeper_of(&token).to_owned()),
            state: counters.state(),
            counters,
        })
    }
}

/// Returns the worker's name from the lease token: the name, and a word that no other process has.
fn sweeper_of(token: &str) -> &str {
    token.split_once(' ').map_or(token, |(name, _)| name)
}

//! A pass over the orders that are due, which appends an event `expired` for each. Lanes decide about it after all
//! earlier entries of the order. So an order whose payment is in the stream stays paid.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use sqlx::{MySqlConnection, MySqlPool};
use tidegate_orders::{
    Event, EventKind, OrderId, RedisStore, RestoreCounter, RestoreState,
    event::NewEvent,
    scripts::ScriptError,
    unpaid_orders::{self, Assigned, UnpaidOrder},
};
use tidegate_stream::{EntryId, StreamInspector};
use tokio::time::Instant;

use super::unread_events::UnreadEvents;
use crate::{consumers::Consumers, settings::SystemSettings, within::in_session};

/// The events that a pass appends at most.
const PASS: usize = 1_000;
/// The number of calls in which a pass assigns rows to their partitions, at most. The pass's own orders wait during
/// these calls.
const ASSIGN_CALLS: usize = 5;
/// The time after which an order is due again although its event was appended: the event may be lost, or may wait for a
/// held row.
const ASK_AGAIN: Duration = Duration::from_secs(600);
/// The time between two raises of the restore counter while no order is due.
const RAISE_EVERY: Duration = Duration::from_secs(1);
/// The reason that the events give for the expiration.
const NOT_PAID_IN_TIME: &str = "not_paid_in_time";

/// The result of one search for unpaid orders whose time limit is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepResult {
    /// No order has to be paid in time.
    NoLimits,
    /// No order is due; the next order is due after this time.
    NothingDue(Duration),
    /// The pass appended this number of events.
    Appended(usize),
    /// The limit of unread events is reached, or there is no group yet that would read them.
    Full,
    /// One of the stores lost its newest data, so no order expires.
    WentBack(RestoreState),
    /// These workers live and would bury events, because they are of an older version.
    OlderWorkers(Vec<String>),
}

/// The task that ends unpaid orders whose time limit is over. Two processes may run this task at the same time, because
/// an order expires only once.
#[derive(Debug)]
pub struct Sweeper {
    redis: RedisStore,
    mysql: MySqlPool,
    inspector: StreamInspector,
    counter: RestoreCounter,
    unread: UnreadEvents,
    raised: Option<Instant>,
    within: Duration,
    appended: Arc<AtomicU64>,
}

impl Sweeper {
    /// Creates the task that ends unpaid orders of one partition. The task uses a MySQL session for a short time in
    /// each pass.
    #[must_use]
    pub fn new(settings: &SystemSettings, redis: RedisStore, mysql: MySqlPool) -> Self {
        Self {
            inspector: redis.inspector().clone(),
            counter: RestoreCounter::new(redis.clone()),
            redis,
            mysql,
            unread: UnreadEvents::default(),
            raised: None,
            within: settings.mysql.statement_timeout,
            appended: Arc::default(),
        }
    }

    /// Returns the number of `expired` events that this sweeper has appended so far.
    #[must_use]
    pub fn appended(&self) -> &Arc<AtomicU64> {
        &self.appended
    }

    /// Makes one pass: appends `expired` events for the unpaid orders whose time limit is over.
    ///
    /// # Errors
    /// If a store does not answer. A later pass appends the same events again, which does no harm.
    pub async fn pass(&mut self) -> anyhow::Result<SweepResult> {
        let (mysql, within) = (self.mysql.clone(), self.within);
        in_session(&mysql, within, async |session| self.pass_in(session).await).await
    }

    async fn pass_in(&mut self, session: &mut MySqlConnection) -> anyhow::Result<SweepResult> {
        // Rows that other programs wrote have no partition yet: the first sweeper that finds them assigns it.
        for _ in 0..ASSIGN_CALLS {
            let assigned = unpaid_orders::assign(session, self.redis.keys().partition()).await;
            if assigned.context("Failed to store each unpaid order's partition")? == Assigned::All {
                break;
            }
        }
        let next_in = unpaid_orders::next_in(session, self.redis.keys().partition()).await;
        let next_in = next_in.context("Failed to search for unpaid orders")?;
        let Some(next_in) = next_in else { return Ok(SweepResult::NoLimits) };
        let is_due = next_in.is_zero();
        // The counter is raised before any event is appended: orders are due only if neither store went back in time.
        if is_due || self.raised.is_none_or(|raised| raised.elapsed() >= RAISE_EVERY) {
            let state = self
                .counter
                .raise(session)
                .await
                .context("Failed to increase the counter that shows lost data")?;
            if state != RestoreState::Whole {
                return Ok(SweepResult::WentBack(state));
            }
            self.raised = Some(Instant::now());
        }
        if !is_due {
            return Ok(SweepResult::NothingDue(next_in));
        }
        let older = Consumers::read(&self.redis).await?.without_events();
        if !older.is_empty() {
            return Ok(SweepResult::OlderWorkers(older));
        }
        let position = self.inspector.group().position().await?;
        let room = position.map_or(0, |position| self.unread.room(position));
        if room == 0 {
            return Ok(SweepResult::Full);
        }
        let due = unpaid_orders::due(session, self.redis.keys().partition(), room.min(PASS)).await;
        let due = due.context("Failed to read the unpaid orders that must expire now")?;
        if due.is_empty() {
            // The orders were paid since, or they are rows of another program with invalid ids: the next pass can wait.
            return Ok(SweepResult::NothingDue(RAISE_EVERY));
        }
        self.append(session, &due).await
    }

    /// Appends the events of due orders. An order whose event may not be in the stream is due again at once.
    async fn append(
        &mut self,
        session: &mut MySqlConnection,
        due: &[UnpaidOrder],
    ) -> anyhow::Result<SweepResult> {
        let events: Vec<NewEvent> = due.iter().map(|order| expired(order).into()).collect();
        let appended = self.redis.events().append(&events).await;
        let appended = due.iter().zip(appended).map(|(due, appended)| Ok((due.order, appended?)));
        let (appended, failed): (Vec<_>, Vec<Result<_, ScriptError>>) = appended.partition(Result::is_ok);
        let appended: Vec<(OrderId, EntryId)> = appended.into_iter().flatten().collect();
        let orders: Vec<OrderId> = appended.iter().map(|(order, _)| *order).collect();
        if let Some(last) = appended.iter().map(|(_, entry)| *entry).max() {
            self.unread.note(last, appended.len());
            self.appended.fetch_add(appended.len() as u64, Relaxed);
        }
        let put_off = unpaid_orders::ask_again(session, &orders, ASK_AGAIN).await;
        put_off.context("Failed to store in MySQL the orders whose `expired` events were appended")?;
        if let Some(Err(error)) = failed.into_iter().next() {
            let stream = &self.inspector.names().stream;
            return Err(error).with_context(|| format!("Failed to append to {stream}"));
        }
        Ok(SweepResult::Appended(orders.len()))
    }
}

fn expired(UnpaidOrder { order, user, voucher }: &UnpaidOrder) -> Event {
    Event {
        kind: EventKind::Expired,
        order: *order,
        user: *user,
        voucher: *voucher,
        reference: None,
        payment: None,
        reason: NOT_PAID_IN_TIME.parse().ok(),
    }
}

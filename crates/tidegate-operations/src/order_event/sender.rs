//! Appends events, and reads what workers have recorded about them.

use std::{collections::HashMap, time::Duration};

use anyhow::Context;
use sqlx::MySqlPool;
use tidegate_compare::Job;
use tidegate_orders::{
    OrderId, Records, RedisStore,
    event::{Event, History, NewEvent},
    records::EventRow,
    scripts::ScriptError,
};
use tidegate_stream::EntryId;
use tokio::time::{Instant, sleep, timeout};

use super::{SentEvent, SentEventOutcome};
use crate::{Stores, connect, consumers::Consumers, handover::poll_waits, settings::SystemSettings};

/// The number of events that are appended at once.
pub(crate) const PAGE: usize = 100;

/// Appends events, and waits until workers have recorded them.
#[derive(Debug)]
pub(crate) struct EventSender<'a> {
    settings: &'a SystemSettings,
    redis: RedisStore,
    mysql: MySqlPool,
}

impl<'a> EventSender<'a> {
    /// Connects to Redis and MySQL of the partition.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub(crate) async fn connect(stores: &'a Stores) -> anyhow::Result<Self> {
        // The events of one order must be in the stream in the order in which they were named.
        let settings = stores.settings();
        let (redis, mysql) = tokio::try_join!(connect::redis_in_order(settings), stores.mysql())?;
        let mysql = mysql.clone();
        Ok(Self { settings, redis, mysql })
    }

    /// Returns the timeout of a MySQL statement.
    pub(crate) fn statement_timeout(&self) -> Duration {
        self.settings.mysql.statement_timeout
    }

    /// Returns the living workers of an older version, which would bury events.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub(crate) async fn older_workers(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.consumers().await?.without_events())
    }

    /// Returns whether a living worker reads the stream; None: Redis does not answer.
    pub(crate) async fn workers_live(&self) -> Option<bool> {
        self.consumers().await.map(|consumers| consumers.has_life()).ok()
    }

    async fn consumers(&self) -> anyhow::Result<Consumers> {
        Consumers::read(&self.redis).await
    }

    /// Appends a page of events, and notes for each event whether it is in the stream.
    ///
    /// # Errors
    /// If Redis refused an event, or did not answer.
    pub(crate) async fn append(&self, events: &[&Event], sent: &mut [SentEvent]) -> anyhow::Result<()> {
        // If the caller cancels this future at once, it is unknown whether the events are in the stream.
        sent.iter_mut().for_each(|sent| sent.fate = SentEventOutcome::Unknown);
        let events: Vec<NewEvent> = events.iter().map(|event| Event::clone(event).into()).collect();
        let mut first_error = None;
        for (sent, appended) in sent.iter_mut().zip(self.redis.events().append(&events).await) {
            match appended {
                Ok(entry) => (sent.fate, sent.entry) = (SentEventOutcome::NotRecorded, Some(entry)),
                Err(error) => {
                    if matches!(error, ScriptError::Refused(_)) {
                        sent.fate = SentEventOutcome::NotAppended;
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            None => Ok(()),
            Some(error) => {
                let stream = &self.redis.inspector().names().stream;
                Err(error).with_context(|| format!("Failed to append to {stream}"))
            }
        }
    }

    /// Reads MySQL until at most `open` of the appended events are unrecorded, the time is over, or the job is stopped.
    /// It reads at least once.
    ///
    /// # Errors
    /// If the time is over and MySQL does not answer.
    pub(crate) async fn wait(
        &self,
        sent: &mut [SentEvent],
        open: usize,
        patience: Duration,
        job: &Job,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut waits = poll_waits();
        loop {
            // While MySQL is unavailable, workers wait as well; it may be available again in time.
            let looked = self.look(sent, job).await;
            if not_recorded(sent).count() <= open || job.is_stopped() {
                return Ok(());
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return looked.context(
                    "Failed to read in MySQL whether the events were recorded; the events are in the stream",
                );
            }
            job.stop.run_until_cancelled(sleep(waits.next_wait().min(left))).await;
        }
    }

    /// Returns the records of orders in MySQL.
    pub(crate) fn records(&self) -> Records<'_> {
        Records::new(&self.mysql, self.settings.partition())
    }

    /// Reads MySQL once for all events that are not recorded.
    async fn look(&self, sent: &mut [SentEvent], job: &Job) -> anyhow::Result<()> {
        let ids: Vec<OrderId> = not_recorded(sent).map(|sent| sent.order).collect();
        let rows =
            timeout(self.settings.mysql.statement_timeout, self.records().events().by_orders(&ids)).await??;
        let mut histories: HashMap<OrderId, History> = HashMap::new();
        for row in &rows {
            histories.entry(row.order).or_default().events.push(row.past_event());
        }
        let row_of = |row: &EventRow| Some(((row.order, row.entry.parse().ok()?), row.clone()));
        let rows: HashMap<(OrderId, EntryId), EventRow> = rows.iter().filter_map(row_of).collect();
        for sent in sent.iter_mut().filter(|sent| sent.fate == SentEventOutcome::NotRecorded) {
            let row = sent.entry.and_then(|entry| rows.get(&(sent.order, entry)));
            if let Some((row, history)) = row.zip(histories.get(&sent.order)) {
                sent.record(row, history);
                job.progress.add(1);
            }
        }
        Ok(())
    }
}

fn not_recorded(sent: &[SentEvent]) -> impl Iterator<Item = &SentEvent> {
    sent.iter().filter(|sent| sent.fate == SentEventOutcome::NotRecorded)
}

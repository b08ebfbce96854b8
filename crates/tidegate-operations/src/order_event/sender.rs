//! Appends events, and looks what workers recorded of them.

use std::{collections::HashMap, time::Duration};

use anyhow::Context;
use futures_util::future::join_all;
use sqlx::MySqlPool;
use tidegate_compare::Job;
use tidegate_orders::{
    OrderId, Records, RedisStore,
    event::{Event, History},
    records::EventRow,
    wire::event_fields,
};
use tidegate_stream::{EntryId, RedisErrorKind, Stream, StreamError};
use tokio::time::{Instant, sleep, timeout};

use super::{EventFate, SentEvent};
use crate::{Stores, connect, consumers::Consumers, handover::poll_waits, settings::SystemSettings};

/// Events that are appended at once.
pub(crate) const PAGE: usize = 100;

/// Appends events and waits for them.
#[derive(Debug)]
pub(crate) struct EventSender<'a> {
    settings: &'a SystemSettings,
    redis: RedisStore,
    mysql: MySqlPool,
    stream: Stream,
}

impl<'a> EventSender<'a> {
    /// With these stores, both of which are needed.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub(crate) async fn connect(stores: &'a Stores) -> anyhow::Result<Self> {
        // Events of one order are to stand in the stream as they were named.
        let settings = stores.settings();
        let (redis, mysql) = tokio::try_join!(connect::redis_in_order(settings), stores.mysql())?;
        let mysql = mysql.clone();
        let stream = Stream::new(redis.pool().clone(), redis.inspector().names().clone());
        Ok(Self { settings, redis, mysql, stream })
    }

    /// How long a statement may take.
    pub(crate) fn statement_timeout(&self) -> Duration {
        self.settings.mysql.statement_timeout
    }

    /// Workers that live and would bury events, because they are of an older version.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn older_workers(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.consumers().await?.without_events())
    }

    /// Whether a living worker reads the stream; None: Redis does not say.
    pub(crate) async fn workers_live(&self) -> Option<bool> {
        self.consumers().await.map(|consumers| consumers.has_life()).ok()
    }

    async fn consumers(&self) -> anyhow::Result<Consumers> {
        Consumers::read(&self.redis).await
    }

    /// Appends a page of events, and notes of each whether it is in the stream.
    ///
    /// # Errors
    /// When Redis did not take one of them, or did not answer.
    pub(crate) async fn append(&self, events: &[&Event], sent: &mut [SentEvent]) -> anyhow::Result<()> {
        // Whoever ends this at once knows no more of them.
        sent.iter_mut().for_each(|sent| sent.fate = EventFate::Unknown);
        let appended = events.iter().map(async |event| self.stream.append(&event_fields(event)).await);
        let mut first_error = None;
        for (sent, appended) in sent.iter_mut().zip(join_all(appended).await) {
            match appended {
                Ok(entry) => (sent.fate, sent.entry) = (EventFate::NotRecorded, Some(entry)),
                Err(error) => {
                    if is_refused(&error) {
                        sent.fate = EventFate::NotAppended;
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            None => Ok(()),
            Some(error) => {
                Err(error).with_context(|| format!("Failed to append to {}", self.stream.names().stream))
            }
        }
    }

    /// Looks until no more than `open` of those in the stream are not recorded, the time is over, or the job is stopped; at
    /// least once.
    ///
    /// # Errors
    /// When the time is over and MySQL does not answer.
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
            // While MySQL is away workers wait, too: it may come back in time.
            let looked = self.look(sent, job).await;
            if not_recorded(sent).count() <= open || job.is_stopped() {
                return Ok(());
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return looked
                    .context("Failed to look in MySQL what came of the events, which are in the stream");
            }
            job.stop.run_until_cancelled(sleep(waits.next_wait().min(left))).await;
        }
    }

    /// What MySQL holds of orders.
    pub(crate) fn records(&self) -> Records<'_> {
        Records::new(&self.mysql, self.settings.partition())
    }

    /// Looks once.
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
        for sent in sent.iter_mut().filter(|sent| sent.fate == EventFate::NotRecorded) {
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
    sent.iter().filter(|sent| sent.fate == EventFate::NotRecorded)
}

/// Redis answered, and did not take it.
fn is_refused(error: &StreamError) -> bool {
    matches!(error, StreamError::Redis(error) if error.kind() == RedisErrorKind::Other)
}

//! Appends the events page by page, then waits for all of them together.

use std::collections::HashMap;

use anyhow::Context;
use futures_util::future::join_all;
use tidegate_orders::{Keys, OrderId, event::Event, wire::event_fields};
use tidegate_stream::{EntryId, RedisErrorKind, StreamError};
use tokio::time::{Instant, sleep, timeout};

use super::{EventFate, OrderEventPlan, OrderEventReport, OrderEvents, SentEvent};
use crate::{
    change::{End, Job},
    consumers::Consumers,
    handover::poll_waits,
    order_show::{EventRow, find_events},
};

/// Events that are appended at once.
const PAGE: usize = 100;

impl OrderEvents<'_> {
    /// Appends the events that were planned, waits until they are recorded, and notes in `report` what became of each as soon
    /// as it is known.
    ///
    /// # Errors
    /// When a store does not answer. The report says what is in the stream by then.
    pub async fn run(
        &self,
        plan: &OrderEventPlan,
        report: &mut OrderEventReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let events: Vec<&Event> =
            plan.orders.iter().filter_map(|planned| planned.to_append.as_ref()).collect();
        job.progress.expect(events.len() as u64, "events recorded");
        for (events, sent) in events.chunks(PAGE).zip(report.orders.chunks_mut(PAGE)) {
            if job.is_stopped() {
                break;
            }
            self.append(events, sent).await?;
        }
        self.wait(report, job).await?;
        let is_left = report.orders.iter().any(|sent| sent.fate.is_open());
        if is_left && !job.is_stopped() {
            let keys = Keys::new(self.settings.keys.clone());
            let consumers = Consumers::read(&self.redis, &keys, self.stream.names()).await;
            report.workers_live = consumers.map(|consumers| consumers.has_life()).ok();
        }
        Ok(if is_left && job.is_stopped() { End::Stopped } else { End::Whole })
    }

    async fn append(&self, events: &[&Event], sent: &mut [SentEvent]) -> anyhow::Result<()> {
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

    /// Looks until all that is in the stream is recorded, the time is over, or the job is stopped; at least once.
    async fn wait(&self, report: &mut OrderEventReport, job: &Job) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut waits = poll_waits();
        loop {
            // While MySQL is away workers wait, too: it may come back in time.
            let looked = self.look(report, job).await;
            if report.count(EventFate::NotRecorded) == 0 || job.is_stopped() {
                return Ok(());
            }
            let left = report.request.wait.saturating_sub(began.elapsed());
            if left.is_zero() {
                return looked
                    .context("Failed to look in MySQL what came of the events, which are in the stream");
            }
            job.stop.run_until_cancelled(sleep(waits.next_wait().min(left))).await;
        }
    }

    /// Looks once.
    async fn look(&self, report: &mut OrderEventReport, job: &Job) -> anyhow::Result<()> {
        let ids: Vec<OrderId> = report.with_fate(EventFate::NotRecorded).map(|sent| sent.order).collect();
        let rows = timeout(self.settings.mysql.statement_timeout, find_events(&self.mysql, &ids)).await??;
        let row_of = |row: &EventRow| Some(((row.order, row.entry.parse().ok()?), row.clone()));
        let rows: HashMap<(OrderId, EntryId), EventRow> = rows.iter().filter_map(row_of).collect();
        for sent in report.orders.iter_mut().filter(|sent| sent.fate == EventFate::NotRecorded) {
            let row = sent.entry.and_then(|entry| rows.get(&(sent.order, entry)));
            if let Some(row) = row {
                sent.record(row);
                job.progress.add(1);
            }
        }
        Ok(())
    }
}

/// Redis answered, and did not take it.
fn is_refused(error: &StreamError) -> bool {
    matches!(error, StreamError::Redis(error) if error.kind() == RedisErrorKind::Other)
}

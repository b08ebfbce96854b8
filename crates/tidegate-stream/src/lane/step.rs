//! The step of a lane: one batch from the handler to its outcomes.

use std::{pin::Pin, time::Instant};

use futures_util::future::OptionFuture;
use tracing::Instrument;

use super::{Lane, LaneError, ahead::Ahead, burials::Burials, state::ReadAhead};
use crate::{
    counters::BatchReport,
    entry::{Delivery, Entry, EntryId, FIELD_BYTES},
    handler::{Cause, DeadLetterReason, Handled, Handler, Outage, Outcome},
    observer::{Origin, ProcessedBatch},
    stream::StreamError,
};

/// The cause of dead entries that cannot be buried.
pub(super) const DEAD_STREAM: Cause = Cause::new("dead_stream", 0);

impl<H: Handler> Lane<H> {
    /// Handles one delivery and settles it. Entries that are not settled are still pending.
    ///
    /// # Errors
    /// An outage of any store; then the whole delivery counts as pending.
    pub(super) async fn step(
        &self,
        in_progress: InProgress<'_>,
        ahead: Option<Ahead<'_>>,
    ) -> Result<Step, Outage> {
        let mut step = Step::default();
        let delivery = in_progress.delivery;
        if delivery.is_empty() {
            return Ok(step);
        }
        let span = tracing::info_span!("batch", consumer = self.reader.consumer(), size = delivery.len());
        self.lane_status.handle(delivery.len());
        let settled = self.process_batch(in_progress, ahead, &mut step).instrument(span).await;
        let report = step.report;
        // Counted also if only a part was settled: that part does not come again.
        if report != BatchReport::default() {
            self.counters.batch(report);
        }
        if let Err(outage) = settled {
            // No process has them in progress until they are retried. If Redis itself is unavailable, this cannot be
            // noted, so they count as in progress.
            self.out_of_hand(delivery, "a store is unavailable").await;
            if let Some(ahead) = step.take_ahead() {
                self.out_of_hand(&ahead.delivery, "a store is unavailable").await;
            }
            return Err(outage);
        }
        tracing::debug!(
            done = report.done,
            buried = report.buried,
            gone = report.gone,
            left = report.left,
            "batch settled"
        );
        Ok(step)
    }

    /// Notes in Redis that no process has these entries in progress until they are found again.
    pub(super) async fn out_of_hand(&self, delivery: &Delivery, why: &str) {
        let ids: Vec<EntryId> = delivery.entries.iter().map(|entry| entry.id).collect();
        let noted = self.stream.set_aside(self.reader.consumer(), &ids).await;
        tracing::debug!(?noted, size = ids.len(), "entries are not in progress any more, because {why}");
    }

    async fn process_batch(
        &self,
        InProgress { delivery, origin, came }: InProgress<'_>,
        ahead: Option<Ahead<'_>>,
        step: &mut Step,
    ) -> Result<(), Outage> {
        self.acknowledge_gone(&delivery.gone, &mut step.report).await?;
        self.bury_large(&delivery.large, step).await?;
        let entries = delivery.entries.as_slice();
        if !self.await_replicas(entries).await? {
            return self.let_go(entries).await;
        }
        let mut handled = self.handle(entries).await;
        let settling = match &mut handled {
            Ok(handled) => {
                let rest = OptionFuture::from(handled.rest.take());
                // Entries that are set aside count only afterwards, and the next read may have to wait because of them.
                let are_done = handled.outcomes.iter().all(|outcome| *outcome == Outcome::Done);
                let ahead = OptionFuture::from(ahead.filter(|_| are_done));
                let settle = self.settle(delivery, &handled.outcomes, step);
                let (_, settling, read) = tokio::join!(rest, settle, ahead);
                step.ahead = read.flatten();
                Some(settling)
            }
            Err(_) => None,
        };
        let outcomes = handled.map(|handled| handled.outcomes);
        if let Some(observer) = self.observer.as_ref().filter(|_| !entries.is_empty()) {
            observer.batch_processed(&ProcessedBatch {
                consumer: self.reader.consumer(),
                origin,
                came,
                entries,
                outcomes: outcomes.as_deref(),
                settling: settling.as_ref(),
            });
        }
        outcomes?;
        settling.and_then(|settling| settling.outage).map_or(Ok(()), Err)
    }

    /// Drops a batch whose entries other consumers hold by now, or that were deleted. That is no outage. If some
    /// entries are still pending for this consumer, the next scan of its own pending list finds them.
    async fn let_go(&self, entries: &[Entry]) -> Result<(), Outage> {
        let ids: Vec<EntryId> = entries.iter().map(|entry| entry.id).collect();
        self.stream.set_aside(self.reader.consumer(), &ids).await?;
        tracing::info!(
            size = ids.len(),
            "a batch was dropped: other consumers claimed its entries, or the entries were deleted"
        );
        Ok(())
    }

    /// Acknowledges entries without payload. It comes first, so that they are logged once, however often the other
    /// entries have to be handled.
    async fn acknowledge_gone(&self, gone: &[EntryId], report: &mut BatchReport) -> Result<(), Outage> {
        if gone.is_empty() {
            return Ok(());
        }
        self.stream.settle_of(self.run_of_server(), gone).await?;
        report.gone = gone.len();
        log_gone(gone);
        Ok(())
    }

    /// Buries entries that are too large: Redis copies them from stream to stream.
    async fn bury_large(&self, large: &[EntryId], step: &mut Step) -> Result<(), Outage> {
        let mut burials = Burials::default();
        for id in large {
            let most = self.settings.entry_max_bytes;
            let error = format!(
                "the entry is larger than {most} bytes: its names and values, plus {FIELD_BYTES} bytes for each field"
            );
            let why = DeadLetterReason { reason: "too_large", error };
            self.handler.before_burial(*id, &why).await?;
            match self.bury_unread(*id, &why, &mut burials).await {
                Ok(buried) => step.report.buried += usize::from(buried),
                Err(StreamError::Redis(error)) if error.is_refusal() => {
                    self.log_unburied(&error);
                    step.set_aside(*id, DEAD_STREAM);
                }
                Err(error) => return Err(error.into()),
            }
        }
        burials.log_rest();
        Ok(())
    }

    pub(super) async fn bury_unread(
        &self,
        id: EntryId,
        why: &DeadLetterReason,
        burials: &mut Burials,
    ) -> Result<bool, StreamError> {
        let is_buried = self.stream.bury_unread(self.run_of_server(), id, why).await?;
        if is_buried {
            burials.log(id, why);
            self.counters.buried(why.reason);
        }
        Ok(is_buried)
    }

    async fn handle(&self, entries: &[Entry]) -> Result<Handled, Outage> {
        if entries.is_empty() {
            return Ok(Vec::new().into());
        }
        let handled = self.begin_to_handle(entries).await?;
        // A guess which outcome is missing might acknowledge an entry that was not handled.
        assert_eq!(handled.outcomes.len(), entries.len(), "a handler must return one outcome for each entry");
        Ok(handled)
    }

    /// Boxes the work of a handler: it is large, and otherwise every frame between the lane and the handler would have
    /// a copy of it. The box is made in a frame of its own, which is gone before the work begins.
    fn begin_to_handle(
        &self,
        entries: &[Entry],
    ) -> Pin<Box<impl Future<Output = Result<Handled, Outage>> + Send>> {
        Box::pin(self.handler.handle(entries))
    }
}

/// A batch that was just read, or is retried.
#[derive(Clone, Copy, Debug)]
pub(super) struct InProgress<'a> {
    pub(super) delivery: &'a Delivery,
    pub(super) origin: Origin,
    pub(super) came: Instant,
}

/// The result of a step on one batch.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) report: BatchReport,
    pub(super) set_aside: Vec<(EntryId, Cause)>,
    /// The batch that was read in the meantime.
    pub(super) ahead: Option<Result<ReadAhead, LaneError>>,
}

impl Step {
    pub(super) fn set_aside(&mut self, id: EntryId, cause: Cause) {
        self.report.left += 1;
        self.set_aside.push((id, cause));
    }

    fn take_ahead(&mut self) -> Option<ReadAhead> {
        self.ahead.take()?.ok()
    }
}

pub(super) fn log_gone(gone: &[EntryId]) {
    let Some(first) = gone.first() else { return };
    tracing::error!(
        count = gone.len(),
        %first,
        "pending entries without payload (deleted or trimmed) were acknowledged"
    );
}

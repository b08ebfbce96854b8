//! One consumer with one batch in hand. The loop decides when, the step decides what.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fred::{clients::Client, interfaces::ClientInterface};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    breaker::Breaker,
    counters::Counters,
    entry::{Delivery, Entry},
    handler::{Death, Handler, Outage, Outcome},
    schedule::{Schedule, Source},
    stream::{GroupState, Reader, Stream, StreamError},
};

/// How a lane works.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// Entries in hand at most, pending ones that wait for another try included.
    pub batch: usize,
    /// How long a read waits for new entries; a stop signal is noticed this late at worst.
    pub block: Duration,
    /// How soon entries that could not be done are tried again, at first.
    pub retry: Duration,
    /// Entries that nobody has touched for this long are claimed: longer than any batch may take.
    pub claim_idle: Duration,
    /// How often the pending list of the whole group is scanned for such entries.
    pub claim_every: Duration,
    /// Wait after an error, at first.
    pub backoff_min: Duration,
    /// Wait after an error, at most.
    pub backoff_max: Duration,
}

/// One consumer of the group. It reads only when its hands are empty: its batch is its own pending list, and
/// after any failure it reads that list again from the start, then goes on with new entries.
#[derive(Debug)]
pub struct Lane<H> {
    reader: Reader,
    stream: Stream,
    handler: Arc<H>,
    breaker: Arc<Breaker>,
    counters: Arc<Counters>,
    settings: LaneSettings,
}

/// What a step did with a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchReport {
    /// Entries acknowledged as done.
    pub done: usize,
    /// Entries copied to the dead stream.
    pub buried: usize,
    /// Entries acknowledged because their payload is gone.
    pub gone: usize,
    /// Entries that stay pending.
    pub left: usize,
}

impl<H: Handler> Lane<H> {
    /// A lane that reads with `reader` and hands its batches to `handler`.
    pub fn new(
        reader: Reader,
        stream: Stream,
        handler: Arc<H>,
        breaker: Arc<Breaker>,
        counters: Arc<Counters>,
        settings: LaneSettings,
    ) -> Self {
        Self { reader, stream, handler, breaker, counters, settings }
    }

    /// Runs until `stop`; then the batch in hand is finished and settled first. No error ends it.
    pub async fn run(mut self, stop: CancellationToken) {
        let unblock = tokio::spawn(unblock_on(stop.clone(), self.reader.client()));
        let mut schedule = Schedule::new(&self.settings, Instant::now());
        let mut backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        loop {
            if stop.run_until_cancelled(self.breaker.closed()).await.is_none() || stop.is_cancelled() {
                break;
            }
            if self.reader.has_reconnected() {
                schedule.start_over();
            }
            match self.turn(&mut schedule, &stop).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    // Whatever failed, entries may be pending that we do not know of.
                    schedule.start_over();
                    self.report(error).await;
                    stop.run_until_cancelled(tokio::time::sleep(backoff.next_wait())).await;
                }
            }
        }
        unblock.abort();
    }

    /// Reads once, from wherever it is due, and runs the step on what came.
    async fn turn(&self, schedule: &mut Schedule, stop: &CancellationToken) -> Result<(), LaneError> {
        let source = schedule.next(Instant::now());
        let delivery = match source {
            Source::Wait { time } => {
                stop.run_until_cancelled(tokio::time::sleep(time)).await;
                return Ok(());
            }
            Source::Pending { after } => self.reader.read_pending(self.settings.batch, after).await?,
            Source::Claim { cursor, count } => {
                let (idle, consumer) = (self.settings.claim_idle, self.reader.consumer());
                let (cursor, delivery) = self.stream.claim(consumer, idle, cursor, count).await?;
                schedule.scanned(cursor, Instant::now());
                self.counters.claimed(delivery.len());
                delivery
            }
            Source::New { count, block } => self.reader.read_new(count, block).await?,
        };
        let (read, last_id) = (delivery.len(), delivery.last_id());
        let report = self.run_batch(delivery).await?;
        schedule.handled(source, read, last_id, report, Instant::now());
        Ok(())
    }

    /// The step: handles one delivery and settles it. Whatever is not settled is still pending.
    ///
    /// # Errors
    /// An outage, of whichever store; the whole delivery counts as pending then.
    pub async fn run_batch(&self, delivery: Delivery) -> Result<BatchReport, Outage> {
        if delivery.is_empty() {
            return Ok(BatchReport::default());
        }
        let outcomes = self.handle(&delivery.entries).await?;
        let report = self.settle(&delivery, &outcomes).await?;
        self.counters.batch(report);
        tracing::debug!(
            consumer = self.reader.consumer(),
            size = delivery.len(),
            done = report.done,
            buried = report.buried,
            gone = report.gone,
            left = report.left,
            "batch settled"
        );
        Ok(report)
    }

    /// Hands the entries to the handler, and keeps them from being claimed while it works.
    async fn handle(&self, entries: &[Entry]) -> Result<Vec<Outcome>, Outage> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(Vec::new()) };
        let keep_for_ever = async {
            loop {
                tokio::time::sleep(self.settings.claim_idle / 3).await;
                let kept = self.stream.keep(self.reader.consumer(), (first.id, last.id), entries.len()).await;
                tracing::debug!(?kept, size = entries.len(), "batch takes long: kept from being claimed");
            }
        };
        let outcomes = tokio::select! {
            outcomes = self.handler.handle(entries) => outcomes?,
            () = keep_for_ever => unreachable!("keeps for ever"),
        };
        assert_eq!(outcomes.len(), entries.len(), "a handler answers for every entry");
        Ok(outcomes)
    }

    /// Acknowledges what is done, then buries what is dead: a letter that cannot be buried holds up nobody.
    async fn settle(&self, delivery: &Delivery, outcomes: &[Outcome]) -> Result<BatchReport, Outage> {
        if let Some(first) = delivery.gone.first() {
            tracing::error!(
                count = delivery.gone.len(),
                %first,
                "pending entries without payload (deleted or trimmed): acknowledged; `tidegate audit` tells which \
                 orders are missing"
            );
        }
        let of = |wanted: &Outcome| {
            let entries = delivery.entries.iter().zip(outcomes);
            entries
                .filter(move |(_, outcome)| *outcome == wanted)
                .map(|(entry, _)| entry.id)
                .collect::<Vec<_>>()
        };
        let done = of(&Outcome::Done);
        let mut report = BatchReport {
            done: done.len(),
            gone: delivery.gone.len(),
            left: of(&Outcome::Retry).len(),
            buried: 0,
        };
        let settled = [done, delivery.gone.clone()].concat();
        if !settled.is_empty() {
            self.stream.settle(&settled).await?;
        }
        for (entry, outcome) in delivery.entries.iter().zip(outcomes) {
            if let Outcome::Dead(death) = outcome {
                self.bury(entry, death, &mut report).await?;
            }
        }
        Ok(report)
    }

    async fn bury(&self, entry: &Entry, death: &Death, report: &mut BatchReport) -> Result<(), Outage> {
        match self.stream.bury(entry, death).await {
            Ok(true) => {
                tracing::warn!(entry = %entry.id, reason = death.reason, error = death.error, "entry buried");
                report.buried += 1;
            }
            // Another worker has settled it meanwhile.
            Ok(false) => {}
            Err(StreamError::Redis(error)) if error.details().contains("WRONGTYPE") => {
                let dead = &self.stream.names().dead;
                tracing::error!(entry = %entry.id, %dead, "cannot bury: the key of the dead letters is no stream");
                report.left += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The one place where a lane's errors are told.
    async fn report(&self, error: LaneError) {
        match error {
            LaneError::Outage(outage) => self.breaker.trip(outage),
            LaneError::NoGroup(why) => match self.stream.ensure_group().await {
                Ok(GroupState::Created) => tracing::error!(
                    %why,
                    "the consumer group was gone and has been made again from the first entry of the stream: if \
                     Redis lost data, orders may be missing; run `tidegate audit`"
                ),
                Ok(GroupState::Existed) => {}
                Err(error) => self.breaker.trip(error.into()),
            },
        }
    }
}

enum LaneError {
    NoGroup(String),
    Outage(Outage),
}

impl From<StreamError> for LaneError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NoGroup(why) => Self::NoGroup(why),
            other => Self::Outage(other.into()),
        }
    }
}

impl From<Outage> for LaneError {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

/// Ends a blocked read when the stop signal comes. Whatever the read brings nevertheless is handled.
async fn unblock_on(stop: CancellationToken, client: Client) {
    stop.cancelled().await;
    let _ = client.unblock_self(None).await;
}

//! One consumer with one batch in hand. The loop decides when, the step decides what.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fred::error::{Error, ErrorKind};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    backoff::Backoff,
    brake::Brake,
    breaker::Breaker,
    burials::Burials,
    counters::Counters,
    entry::{Delivery, Entry, EntryId},
    handler::{Death, Handler, Outage, Outcome},
    observer::{Observer, Origin, Settling, Stage, WorkedOff},
    pulse::{Activity, Pulse},
    redis::is_refusal,
    schedule::{Schedule, Source},
    stream::{Reader, Stream, StreamError},
};

/// On a stop signal or a pause, how often a blocked read is told to end: it may be on its way to Redis still.
const UNBLOCK_EVERY: Duration = Duration::from_millis(50);

/// On a stop signal, how long a read may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// How a lane works.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// Entries in hand at most, pending ones that wait for another try included.
    pub batch: usize,
    /// How long a read waits for new entries. A stop signal ends the wait.
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
    brake: Arc<Brake>,
    counters: Arc<Counters>,
    pulse: Arc<Pulse>,
    observer: Option<Arc<dyn Observer>>,
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
        // A batch of none would turn for ever without reading.
        let settings = LaneSettings { batch: settings.batch.max(1), ..settings };
        let pulse = Arc::new(Pulse::new(reader.consumer()));
        let brake = Arc::default();
        Self { reader, stream, handler, breaker, brake, counters, pulse, observer: None, settings }
    }

    /// The same lane, which reads nothing while `brake` is on.
    #[must_use]
    pub fn with_brake(self, brake: Arc<Brake>) -> Self {
        Self { brake, ..self }
    }

    /// Lets `observer` look on.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// What it does now, for others to look at while it runs.
    #[must_use]
    pub fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// Runs until `stop`; then the batch in hand is finished and settled first. No error ends it.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut schedule = Schedule::new(&self.settings, Instant::now());
        let mut backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        loop {
            self.pulse.turn();
            if stop.run_until_cancelled(self.may_read()).await.is_none() || stop.is_cancelled() {
                break;
            }
            let closings = self.breaker.closings();
            if self.reader.has_reconnected() {
                self.counters.reconnected();
                schedule.start_over();
            }
            match self.turn(&mut schedule, &stop).await {
                // Only this tells that all is well: the own pending list may be read without trouble while
                // new entries are not.
                Ok(Source::New { .. }) => backoff.reset(),
                Ok(_) => {}
                Err(error) => {
                    // Whatever failed, entries may be pending that we do not know of.
                    schedule.start_over();
                    if matches!(error, LaneError::TooLate(_)) {
                        schedule.narrow();
                    }
                    self.pulse.enter(Activity::BackingOff);
                    self.report(error, closings).await;
                    stop.run_until_cancelled(tokio::time::sleep(backoff.next_wait())).await;
                }
            }
        }
        self.pulse.enter(Activity::Stopped);
    }

    /// Waits until no store is away and nobody has paused it.
    async fn may_read(&self) {
        loop {
            if self.breaker.is_open() {
                self.pulse.enter(Activity::WaitingForStores);
                self.breaker.closed().await;
            } else if self.brake.is_on() {
                self.pulse.enter(Activity::Paused);
                self.brake.off().await;
            } else {
                return;
            }
        }
    }

    /// Reads once, from wherever it is due, and runs the step on what came.
    async fn turn(&self, schedule: &mut Schedule, stop: &CancellationToken) -> Result<Source, LaneError> {
        let source = schedule.next(Instant::now());
        if let Source::Wait { time } = source {
            self.pulse.enter(Activity::BackingOff);
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = stop.cancelled() => {}
                () = self.brake.on() => {}
            }
            return Ok(source);
        }
        self.pulse.enter(Activity::Reading);
        let begun = Instant::now();
        let delivery = tokio::select! {
            biased;
            delivery = self.read(source, schedule) => delivery?,
            // A read is work and is never cancelled, but for this: the lane ends, and Redis does not answer.
            // What was handed over all the same stays pending, for the next one with this name, or to be claimed.
            () = self.end_wait_on(stop) => return Ok(source),
        };
        let (read, last_id) = (delivery.len(), delivery.last_id());
        if read > 0 {
            self.counters.read(read, begun.elapsed());
        }
        let span = tracing::info_span!("batch", consumer = self.reader.consumer(), size = read);
        let report = self.run_batch(delivery, source.origin()).instrument(span).await?;
        schedule.handled(source, read, last_id, report, Instant::now());
        Ok(source)
    }

    async fn read(&self, source: Source, schedule: &mut Schedule) -> Result<Delivery, StreamError> {
        match source {
            Source::Wait { .. } => Ok(Delivery::default()),
            Source::Pending { after, count } => self.reader.read_pending(count, after).await,
            Source::New { count, block } => self.reader.read_new(count, block).await,
            Source::Claim { cursor, count } => {
                let (idle, consumer) = (self.settings.claim_idle, self.reader.consumer());
                let (cursor, delivery) = self.stream.claim(consumer, idle, cursor, count).await?;
                schedule.scanned(cursor, Instant::now());
                self.counters.claimed(delivery.len());
                Ok(delivery)
            }
        }
    }

    /// When nothing is to be read any more, ends the wait of a blocked read. Whatever that read brings nevertheless is
    /// handled. Returns when it has not ended for too long after the stop signal. After a pause the lane lives on, and
    /// waits for its read as long as that may take.
    async fn end_wait_on(&self, stop: &CancellationToken) {
        let unblock_for_ever = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.brake.on() => {}
            }
            loop {
                if let Err(error) = self.stream.unblock(&self.reader).await {
                    tracing::debug!(%error, consumer = self.reader.consumer(), "cannot end a blocked read");
                }
                tokio::time::sleep(UNBLOCK_EVERY).await;
            }
        };
        let patience_ends = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        tokio::select! {
            () = unblock_for_ever => unreachable!("unblocks for ever"),
            () = patience_ends => {}
        }
    }

    /// The step: handles one delivery and settles it. Whatever is not settled is still pending.
    ///
    /// # Errors
    /// An outage, of whichever store; the whole delivery counts as pending then.
    pub async fn run_batch(&self, delivery: Delivery, origin: Origin) -> Result<BatchReport, Outage> {
        if delivery.is_empty() {
            return Ok(BatchReport::default());
        }
        self.pulse.handle(delivery.len());
        let mut report = BatchReport::default();
        let settled = self.work_off(&delivery, origin, &mut report).await;
        // Also when only a part could be settled: that part is never seen again.
        if report != BatchReport::default() {
            self.counters.batch(report);
        }
        settled?;
        tracing::debug!(
            done = report.done,
            buried = report.buried,
            gone = report.gone,
            left = report.left,
            "batch settled"
        );
        Ok(report)
    }

    async fn work_off(
        &self,
        delivery: &Delivery,
        origin: Origin,
        report: &mut BatchReport,
    ) -> Result<(), Outage> {
        let came = Instant::now();
        self.acknowledge_gone(&delivery.gone, report).await?;
        let entries = delivery.entries.as_slice();
        let outcomes = self.handle(entries).await;
        let settling = match &outcomes {
            Ok(outcomes) => Some(self.settle(entries, outcomes, report).await),
            Err(_) => None,
        };
        if let Some(observer) = self.observer.as_ref().filter(|_| !entries.is_empty()) {
            observer.worked_off(&WorkedOff {
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

    /// Comes first, so that it is told once, however often the rest has to be handled.
    async fn acknowledge_gone(&self, gone: &[EntryId], report: &mut BatchReport) -> Result<(), Outage> {
        let Some(first) = gone.first() else { return Ok(()) };
        self.stream.settle(gone).await?;
        report.gone = gone.len();
        tracing::error!(
            count = gone.len(),
            %first,
            "pending entries without payload (deleted or trimmed): acknowledged; `tidegate audit` tells which \
             orders are missing"
        );
        Ok(())
    }

    /// Hands the entries to the handler, and keeps them from being claimed while it works.
    async fn handle(&self, entries: &[Entry]) -> Result<Vec<Outcome>, Outage> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(Vec::new()) };
        let keep_for_ever = async {
            loop {
                tokio::time::sleep(self.settings.claim_idle / 3).await;
                // Others of our own may stand between these, and wait for another try.
                let count = self.settings.batch.max(entries.len());
                let kept = self.stream.keep(self.reader.consumer(), (first.id, last.id), count).await;
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

    async fn settle(&self, entries: &[Entry], outcomes: &[Outcome], report: &mut BatchReport) -> Settling {
        self.pulse.enter(Activity::Settling);
        let (began, mut unburied) = (Instant::now(), Vec::new());
        let settled = self.settle_each(entries, outcomes, report, &mut unburied).await;
        let stage = Stage::since(began);
        if settled.is_ok() {
            self.counters.settled(stage.time());
        }
        Settling { stage, unburied, outage: settled.err() }
    }

    /// Acknowledges what is done, then buries what is dead: a letter that cannot be buried holds up nobody.
    async fn settle_each(
        &self,
        entries: &[Entry],
        outcomes: &[Outcome],
        report: &mut BatchReport,
        unburied: &mut Vec<EntryId>,
    ) -> Result<(), Outage> {
        let outcomes = || entries.iter().zip(outcomes);
        let done = outcomes().filter(|(_, outcome)| **outcome == Outcome::Done);
        let done: Vec<EntryId> = done.map(|(entry, _)| entry.id).collect();
        if !done.is_empty() {
            self.stream.settle(&done).await?;
        }
        report.done = done.len();
        report.left = outcomes().filter(|(_, outcome)| matches!(outcome, Outcome::SetAside(_))).count();
        let dead = outcomes().filter_map(|(entry, outcome)| match outcome {
            Outcome::Dead(death) => Some((entry, death)),
            Outcome::Done | Outcome::SetAside(_) => None,
        });
        self.bury(dead, report, unburied).await
    }

    async fn bury<'a>(
        &self,
        dead: impl Iterator<Item = (&'a Entry, &'a Death)>,
        report: &mut BatchReport,
        unburied: &mut Vec<EntryId>,
    ) -> Result<(), Outage> {
        let mut burials = Burials::default();
        let buried = self.bury_each(dead, report, unburied, &mut burials).await;
        burials.tell_rest();
        if let Some(error) = buried? {
            let dead = &self.stream.names().dead;
            tracing::error!(%error, %dead, "cannot bury: dead entries stay pending and are tried again");
        }
        Ok(())
    }

    /// Answers with what Redis said of one that it did not let be buried.
    async fn bury_each<'a>(
        &self,
        dead: impl Iterator<Item = (&'a Entry, &'a Death)>,
        report: &mut BatchReport,
        unburied: &mut Vec<EntryId>,
        burials: &mut Burials,
    ) -> Result<Option<Error>, Outage> {
        let mut refusal = None;
        for (entry, death) in dead {
            match self.stream.bury(entry, death).await {
                Ok(true) => {
                    burials.tell(entry, death);
                    report.buried += 1;
                    self.counters.buried(death.reason);
                }
                // Another worker has settled it meanwhile.
                Ok(false) => {}
                Err(StreamError::Redis(error)) if is_refusal(&error) => {
                    report.left += 1;
                    unburied.push(entry.id);
                    refusal = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(refusal)
    }

    /// The one place where a lane's errors are told.
    async fn report(&self, error: LaneError, closings: u64) {
        match error {
            LaneError::Outage(outage) | LaneError::TooLate(outage) => self.breaker.trip(outage, closings),
            LaneError::NoGroup => {
                if let Err(error) = self.stream.restore_group().await {
                    self.breaker.trip(error.into(), closings);
                }
            }
        }
    }
}

enum LaneError {
    NoGroup,
    Outage(Outage),
    /// Of a read: nothing came within the time it has.
    TooLate(Outage),
}

impl From<StreamError> for LaneError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NoGroup(_) => Self::NoGroup,
            StreamError::Redis(error) if *error.kind() == ErrorKind::Timeout => Self::TooLate(error.into()),
            other => Self::Outage(other.into()),
        }
    }
}

impl From<Outage> for LaneError {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

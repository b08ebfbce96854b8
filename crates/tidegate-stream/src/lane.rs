//! One consumer with one batch in hand. The loop decides when, the step decides what.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fred::error::{Error, ErrorKind};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    alone::{Alone, Together},
    backoff::Backoff,
    brake::Brake,
    breaker::Breaker,
    burials::Burials,
    counters::Counters,
    desk::Desk,
    entry::{Delivery, Entry, EntryId, FIELD_BYTES, Fetched},
    handler::{Cause, Death, Handler, Outage, Outcome},
    intake::Intake,
    observer::{Observer, Origin, Settling, Stage, WorkedOff},
    pulse::{Activity, Pulse},
    redis::is_refusal,
    schedule::Source,
    set_aside::{Due, KILLED_WORKER},
    stream::{Fetch, Reader, Stream, StreamError},
};

/// On a stop signal or a pause, how often a blocked read is told to end: it may be on its way to Redis still.
const UNBLOCK_EVERY: Duration = Duration::from_millis(50);

/// On a stop signal, how long a read may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// From so many deaths on, an entry is handled alone: it has had two neighbourhoods to be innocent in.
const DEATHS_TOGETHER: u32 = 2;

/// From so many deaths on, an entry is buried: three times it was alone.
const DEATHS: u32 = DEATHS_TOGETHER + 3;

/// Entries that cannot be buried wait for this.
const DEAD_STREAM: Cause = Cause { kind: "dead_stream", key: 0 };

/// How a lane works.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// Entries in hand at most.
    pub batch: usize,
    /// Bytes of names and values, and 64 for each field, in hand, about: a batch is over where they are reached.
    pub batch_bytes: usize,
    /// Bytes of the largest entry that is handled, counted so; a larger one is buried, within Redis.
    pub entry_max_bytes: usize,
    /// Entries that all lanes of the process have set aside, at most, but for what they have in hand: from there on
    /// nothing new is read.
    pub set_aside_max: usize,
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

/// One consumer of the group. It reads only when its hands are empty. What it has in hand, and what it has set aside, is
/// its own pending list: after any failure it looks at that list again from the start, then goes on with new entries.
#[derive(Debug)]
pub struct Lane<H> {
    reader: Reader,
    stream: Stream,
    handler: Arc<H>,
    breaker: Arc<Breaker>,
    brake: Arc<Brake>,
    alone: Arc<Alone>,
    /// From the start: until all lanes have looked at what they had in hand, nobody is alone.
    together: Option<Together>,
    intake: Arc<Intake>,
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
    /// Entries that were set aside.
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
        let intake = Arc::new(Intake::new(1, settings.batch_bytes));
        let pulse = Arc::new(Pulse::new(reader.consumer()));
        let lane = Self {
            reader,
            stream,
            handler,
            breaker,
            brake: Arc::default(),
            alone: Arc::default(),
            together: None,
            intake,
            counters,
            pulse,
            observer: None,
            settings,
        };
        lane.with_alone(Arc::default())
    }

    /// The same lane, in a process whose other lanes share `alone`.
    #[must_use]
    pub fn with_alone(self, alone: Arc<Alone>) -> Self {
        let together = alone.try_together();
        Self { alone, together, ..self }
    }

    /// The same lane, in a process whose other lanes share `intake`.
    #[must_use]
    pub fn with_intake(self, intake: Arc<Intake>) -> Self {
        Self { intake, ..self }
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
        let (stream, pulse) = (self.stream.clone(), Arc::clone(&self.pulse));
        let consumer = self.reader.consumer().to_owned();
        let every = self.settings.claim_idle / 3;
        tokio::select! {
            () = self.work(&stop) => {}
            () = keep(&stream, &consumer, every, &pulse) => unreachable!("keeps for ever"),
        }
        self.pulse.enter(Activity::Stopped);
    }

    async fn work(&mut self, stop: &CancellationToken) {
        let mut desk = Desk::new(&self.settings, Arc::clone(self.counters.set_aside()), self.together.take());
        let mut backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        loop {
            self.pulse.turn();
            if stop.run_until_cancelled(self.may_read()).await.is_none() || stop.is_cancelled() {
                return;
            }
            if desk.together.is_none() {
                let Some(together) = stop.run_until_cancelled(self.be_together()).await else { return };
                desk.together = Some(together);
            }
            let closings = self.breaker.closings();
            if self.reader.has_reconnected() {
                self.counters.reconnected();
                desk.start_over();
            }
            match self.turn(&mut desk, stop).await {
                // Only this tells that all is well: the own pending list may be read without trouble while
                // new entries are not.
                Ok(Source::New { .. }) => backoff.reset(),
                Ok(_) => {}
                Err(error) => {
                    // Whatever failed, entries may be pending that we do not know of.
                    desk.start_over();
                    if matches!(error, LaneError::TooLate(_)) {
                        desk.schedule.narrow();
                    }
                    self.pulse.enter(Activity::BackingOff);
                    self.report(error, closings).await;
                    stop.run_until_cancelled(tokio::time::sleep(backoff.next_wait())).await;
                }
            }
            desk.empty_hands();
        }
    }

    /// Waits until no other lane is alone.
    async fn be_together(&self) -> Together {
        if let Some(together) = self.alone.try_together() {
            return together;
        }
        self.pulse.enter(Activity::Yielding);
        self.alone.together().await
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
    async fn turn(&self, desk: &mut Desk, stop: &CancellationToken) -> Result<Source, LaneError> {
        let begun = Instant::now();
        let is_full = self.counters.set_aside().is_full(self.settings.set_aside_max);
        let source = desk.next(begun, is_full);
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
        let due = if source == Source::SetAside { Some(desk.set_aside.take_due(begun)) } else { None };
        if let Some(due) = due.as_ref().filter(|due| due.alone) {
            self.try_alone(desk, due, stop).await?;
            return Ok(source);
        }
        let (delivery, untried) = tokio::select! {
            biased;
            delivery = self.read(source, due.as_ref(), desk) => delivery?,
            // A read is work and is never cancelled, but for this: the lane ends, and Redis does not answer.
            // What was handed over all the same stays pending, for the next one with this name, or to be claimed.
            () = self.end_wait_on(stop) => return Ok(source),
        };
        // What is tried again came with a read before.
        if !delivery.is_empty() && source != Source::SetAside {
            self.counters.read(delivery.len(), begun.elapsed());
        }
        let origin = match source {
            Source::New { .. } => Origin::New,
            Source::SetAside => Origin::Pending,
            _ => desk.origin(),
        };
        for (id, cause) in self.step(&delivery, origin).await?.set_aside {
            desk.set_aside.put(id, cause, Instant::now());
        }
        if due.is_some() {
            desk.set_aside.end_try(&untried, begun.elapsed(), Instant::now());
        }
        desk.schedule.widen();
        Ok(source)
    }

    /// Answers with what came, and with those ids of `due` that there was no room for.
    async fn read(
        &self,
        source: Source,
        due: Option<&Due>,
        desk: &mut Desk,
    ) -> Result<(Delivery, Vec<EntryId>), StreamError> {
        let consumer = self.reader.consumer();
        let mut delivery = Delivery::default();
        // Of what was claimed last, and before it is handed over: from then on it is in the hands of this process.
        self.stream.count_deaths(consumer, desk.deaths_to_count()).await?;
        desk.claimed_deaths_counted();
        match source {
            Source::Wait { .. } => {}
            Source::Own { after, count } => {
                if after == EntryId::MIN {
                    self.stream.enlist(consumer).await?;
                }
                let page = self.stream.own(consumer, after, count).await?;
                if desk.counts_deaths() {
                    let in_hand = page.iter().filter(|own| own.deliveries > 0);
                    let in_hand: Vec<EntryId> = in_hand.map(|own| own.id).collect();
                    self.stream.count_deaths(consumer, &in_hand).await?;
                    desk.deaths_counted(page.last().map(|own| own.id));
                } else {
                    desk.listed(&page.iter().map(|own| own.id).collect::<Vec<_>>());
                }
            }
            Source::OwnCount => desk.counted(self.stream.count_own(consumer).await?),
            Source::Claim { cursor, count } => {
                let claimed = self.stream.claim(consumer, self.settings.claim_idle, cursor, count).await?;
                // The claim has taken these from the pending list: nobody else will hear of them.
                let gone = claimed.gone.len();
                if gone > 0 {
                    self.counters.batch(BatchReport { gone, ..BatchReport::default() });
                    tell_gone(&claimed.gone);
                }
                self.counters.claimed(gone + desk.claimed(claimed, Instant::now()));
            }
            Source::New { count, block } => delivery = self.read_new(desk, count, block).await?,
            Source::Found { count } => {
                let ids = desk.found(count);
                let fetched = self.fetch(desk, &ids, DEATHS_TOGETHER).await?;
                desk.handled(fetched.looked);
                // After a start, so that what the process before died of does not come as a surprise again.
                self.intake.learn(&fetched.delivery.entries);
                delivery = self.judge(desk, fetched).await?;
            }
            Source::SetAside => {
                let ids = due.map_or(&[][..], |due| &due.ids);
                let fetched = self.fetch(desk, ids, DEATHS_TOGETHER).await?;
                let untried = ids[fetched.looked.min(ids.len())..].to_vec();
                return Ok((self.judge(desk, fetched).await?, untried));
            }
        }
        Ok((delivery, Vec::new()))
    }

    /// Reads new entries in pieces, until the batch is full or weighs enough: the read itself knows no bytes.
    async fn read_new(
        &self,
        desk: &mut Desk,
        count: usize,
        block: Duration,
    ) -> Result<Delivery, StreamError> {
        let room = desk.schedule.share_of(self.settings.batch_bytes);
        let mut batch = Batch::default();
        let waits = !block.is_zero();
        // After a full batch there is more, mostly. Otherwise the read that waits is the first one, and mostly the only one.
        if !waits || desk.has_more || self.read_piece(&mut batch, room, count, block).await? {
            let _turn = self.take_turn().await;
            // Who had the turn before may have met an outage, and has waited for its end: not one lane after the other.
            if self.breaker.is_open() {
                return Ok(batch.delivery);
            }
            while self.read_piece(&mut batch, room, count, Duration::ZERO).await? {}
        }
        let is_full = batch.delivery.len() >= count || batch.bytes >= room;
        if waits && desk.has_more && batch.delivery.is_empty() {
            self.read_piece(&mut batch, room, count, block).await?;
        }
        desk.has_more = is_full;
        Ok(batch.delivery)
    }

    /// Waits until no other lane reads without waiting. For long, where reads are slow and lanes are many.
    async fn take_turn(&self) -> MutexGuard<'_, ()> {
        if let Some(turn) = self.intake.try_turn() {
            return turn;
        }
        self.pulse.enter(Activity::Yielding);
        let turn = self.intake.turn().await;
        self.pulse.enter(Activity::Reading);
        turn
    }

    /// Answers whether there may be more, and room for it.
    async fn read_piece(
        &self,
        batch: &mut Batch,
        room: usize,
        count: usize,
        block: Duration,
    ) -> Result<bool, StreamError> {
        let piece = self.intake.piece(room - batch.bytes, !block.is_zero());
        let piece = piece.min(count - batch.delivery.len());
        let mut delivery = match self.intake.client().filter(|_| block.is_zero()) {
            Some(client) => self.reader.read_new_over(client, piece).await?,
            None => self.reader.read_new(piece, block).await?,
        };
        let (read, bytes) = (delivery.len(), delivery.bytes());
        self.intake.learn(&delivery.entries);
        delivery.drop_large(self.settings.entry_max_bytes);
        batch.delivery.append(delivery);
        batch.bytes += bytes;
        Ok(read == piece && batch.delivery.len() < count && batch.bytes < room)
    }

    async fn fetch(&self, desk: &Desk, ids: &[EntryId], limit: u32) -> Result<Fetched, StreamError> {
        if ids.is_empty() {
            return Ok(Fetched::default());
        }
        let fetch = Fetch {
            bytes: desk.schedule.share_of(self.settings.batch_bytes),
            largest: self.settings.entry_max_bytes,
            limit,
        };
        self.stream.fetch(self.reader.consumer(), ids, fetch).await
    }

    /// Buries what too many processes died of, and keeps for itself what might be the next.
    async fn judge(&self, desk: &mut Desk, fetched: Fetched) -> Result<Delivery, StreamError> {
        for (id, deaths) in fetched.withheld {
            if deaths < DEATHS {
                tracing::warn!(
                    entry = %id, deaths,
                    "an entry was in hand each time that a worker process died: it is handled alone from now on"
                );
                desk.set_aside.put_alone(id, Instant::now());
                continue;
            }
            let error = format!(
                "it was in hand when {deaths} worker processes died, and alone in hand when the last {} of them did",
                DEATHS - DEATHS_TOGETHER
            );
            let mut burials = Burials::default();
            match self.bury_unread(id, &Death { reason: KILLED_WORKER, error }, &mut burials).await {
                Ok(_) => self.stream.forget_deaths(&[id]).await?,
                Err(StreamError::Redis(error)) if is_refusal(&error) => {
                    self.tell_unburied(&error);
                    desk.set_aside.put_alone(id, Instant::now());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(fetched.delivery)
    }

    /// Handles entries that processes died of, each alone: with nothing else in hand in the whole process.
    async fn try_alone(&self, desk: &mut Desk, due: &Due, stop: &CancellationToken) -> Result<(), LaneError> {
        desk.together = None;
        self.pulse.enter(Activity::Yielding);
        let Some(_alone) = stop.run_until_cancelled(self.alone.alone()).await else { return Ok(()) };
        // Another lane was alone before this one, in vain.
        if desk.set_aside.nobody_may_be_alone(Instant::now()) {
            desk.set_aside.end_try(&due.ids, Duration::ZERO, Instant::now());
            return Ok(());
        }
        let (mut tried, mut in_vain) = (0, Duration::ZERO);
        for id in &due.ids {
            if stop.is_cancelled() || self.brake.is_on() {
                break;
            }
            let (begun, before) = (Instant::now(), desk.set_aside.len());
            self.pulse.enter(Activity::Reading);
            let fetched = self.fetch(desk, &[*id], DEATHS).await?;
            let delivery = self.judge(desk, fetched).await?;
            if !self.step(&delivery, Origin::Pending).await?.set_aside.is_empty() {
                desk.set_aside.put_alone(*id, Instant::now());
            }
            tried += 1;
            // It came back. Only such a try has to be paid for with a rest, and no wait for others.
            if desk.set_aside.len() > before {
                in_vain += begun.elapsed();
            }
        }
        desk.set_aside.end_try(&due.ids[tried..], in_vain, Instant::now());
        Ok(())
    }

    /// When nothing is to be read any more, ends the wait of a blocked read. Whatever that read brings nevertheless is
    /// handled. Returns when it has not ended for too long after the stop signal. After a pause the lane lives on, and
    /// waits for its read as long as that may take.
    async fn end_wait_on(&self, stop: &CancellationToken) {
        let unblock_for_ever = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.brake.on() => {}
                () = self.alone.wanted() => {}
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
    async fn step(&self, delivery: &Delivery, origin: Origin) -> Result<Step, Outage> {
        let mut step = Step::default();
        if delivery.is_empty() {
            return Ok(step);
        }
        let span = tracing::info_span!("batch", consumer = self.reader.consumer(), size = delivery.len());
        self.pulse.handle(delivery.len());
        let settled = self.work_off(delivery, origin, &mut step).instrument(span).await;
        let report = step.report;
        // Also when only a part could be settled: that part is never seen again.
        if report != BatchReport::default() {
            self.counters.batch(report);
        }
        if let Err(outage) = settled {
            // Nobody has them in hand until they are tried again. If Redis itself is away, they count as in hand.
            let ids: Vec<EntryId> = delivery.entries.iter().map(|entry| entry.id).collect();
            let noted = self.stream.set_aside(self.reader.consumer(), &ids).await;
            tracing::debug!(?noted, size = ids.len(), "out of hand, because a store is away");
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

    async fn work_off(&self, delivery: &Delivery, origin: Origin, step: &mut Step) -> Result<(), Outage> {
        let came = Instant::now();
        self.acknowledge_gone(&delivery.gone, &mut step.report).await?;
        self.bury_large(&delivery.large, step).await?;
        let entries = delivery.entries.as_slice();
        let outcomes = self.handle(entries).await;
        let settling = match &outcomes {
            Ok(outcomes) => Some(self.settle(entries, outcomes, step).await),
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
        settling.and_then(|settling| settling.outage).map_or(Ok(()), Err)?;
        let is_settled = |id: &&EntryId| step.set_aside.iter().all(|(left, _)| left != *id);
        let survivors: Vec<EntryId> = delivery.survivors.iter().filter(is_settled).copied().collect();
        Ok(self.stream.forget_deaths(&survivors).await?)
    }

    /// Comes first, so that it is told once, however often the rest has to be handled.
    async fn acknowledge_gone(&self, gone: &[EntryId], report: &mut BatchReport) -> Result<(), Outage> {
        if gone.is_empty() {
            return Ok(());
        }
        self.stream.settle(gone).await?;
        report.gone = gone.len();
        tell_gone(gone);
        Ok(())
    }

    /// Entries that are too large go from stream to stream within Redis.
    async fn bury_large(&self, large: &[EntryId], step: &mut Step) -> Result<(), Outage> {
        let mut burials = Burials::default();
        for id in large {
            let most = self.settings.entry_max_bytes;
            let error = format!(
                "its names and values, and {FIELD_BYTES} bytes for each field, are more than worker.entry_max_bytes \
                 ({most} bytes)"
            );
            match self.bury_unread(*id, &Death { reason: "too_large", error }, &mut burials).await {
                Ok(buried) => step.report.buried += usize::from(buried),
                Err(StreamError::Redis(error)) if is_refusal(&error) => {
                    self.tell_unburied(&error);
                    step.leave(*id, DEAD_STREAM);
                }
                Err(error) => return Err(error.into()),
            }
        }
        burials.tell_rest();
        Ok(())
    }

    async fn bury_unread(
        &self,
        id: EntryId,
        death: &Death,
        burials: &mut Burials,
    ) -> Result<bool, StreamError> {
        let is_buried = self.stream.bury_unread(id, death).await?;
        if is_buried {
            burials.tell(id, death);
            self.counters.buried(death.reason);
        }
        Ok(is_buried)
    }

    async fn handle(&self, entries: &[Entry]) -> Result<Vec<Outcome>, Outage> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let outcomes = self.handler.handle(entries).await?;
        assert_eq!(outcomes.len(), entries.len(), "a handler answers for every entry");
        Ok(outcomes)
    }

    async fn settle(&self, entries: &[Entry], outcomes: &[Outcome], step: &mut Step) -> Settling {
        self.pulse.enter(Activity::Settling);
        let (began, mut unburied) = (Instant::now(), Vec::new());
        let settled = self.settle_each(entries, outcomes, step, &mut unburied).await;
        let stage = Stage::since(began);
        if settled.is_ok() {
            self.counters.settled(stage.time());
        }
        Settling { stage, unburied, outage: settled.err() }
    }

    /// Acknowledges what is done, then buries what is dead: a letter that cannot be buried holds up nobody. What is left
    /// is in hand no more.
    async fn settle_each(
        &self,
        entries: &[Entry],
        outcomes: &[Outcome],
        step: &mut Step,
        unburied: &mut Vec<EntryId>,
    ) -> Result<(), Outage> {
        let outcomes = || entries.iter().zip(outcomes);
        let done = outcomes().filter(|(_, outcome)| **outcome == Outcome::Done);
        let done: Vec<EntryId> = done.map(|(entry, _)| entry.id).collect();
        if !done.is_empty() {
            self.stream.settle(&done).await?;
        }
        step.report.done = done.len();
        for (entry, outcome) in outcomes() {
            if let Outcome::SetAside(cause) = outcome {
                step.leave(entry.id, *cause);
            }
        }
        let dead = outcomes().filter_map(|(entry, outcome)| match outcome {
            Outcome::Dead(death) => Some((entry, death)),
            Outcome::Done | Outcome::SetAside(_) => None,
        });
        self.bury(dead, step, unburied).await?;
        let left: Vec<EntryId> = step.set_aside.iter().map(|(id, _)| *id).collect();
        Ok(self.stream.set_aside(self.reader.consumer(), &left).await?)
    }

    async fn bury<'a>(
        &self,
        dead: impl Iterator<Item = (&'a Entry, &'a Death)>,
        step: &mut Step,
        unburied: &mut Vec<EntryId>,
    ) -> Result<(), Outage> {
        let mut burials = Burials::default();
        let buried = self.bury_each(dead, step, unburied, &mut burials).await;
        burials.tell_rest();
        if let Some(error) = buried? {
            self.tell_unburied(&error);
        }
        Ok(())
    }

    fn tell_unburied(&self, error: &Error) {
        let dead = &self.stream.names().dead;
        tracing::error!(%error, %dead, "cannot bury: dead entries stay pending and are tried again");
    }

    /// Answers with what Redis said of one that it did not let be buried.
    async fn bury_each<'a>(
        &self,
        dead: impl Iterator<Item = (&'a Entry, &'a Death)>,
        step: &mut Step,
        unburied: &mut Vec<EntryId>,
        burials: &mut Burials,
    ) -> Result<Option<Error>, Outage> {
        let mut refusal = None;
        for (entry, death) in dead {
            match self.stream.bury(entry, death).await {
                Ok(true) => {
                    burials.tell(entry.id, death);
                    step.report.buried += 1;
                    self.counters.buried(death.reason);
                }
                // Another worker has settled it meanwhile.
                Ok(false) => {}
                Err(StreamError::Redis(error)) if is_refusal(&error) => {
                    step.leave(entry.id, DEAD_STREAM);
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

fn tell_gone(gone: &[EntryId]) {
    let Some(first) = gone.first() else { return };
    tracing::error!(
        count = gone.len(),
        %first,
        "pending entries without payload (deleted or trimmed): acknowledged; `tidegate audit` tells which orders \
         are missing"
    );
}

/// New entries as they come, piece by piece.
#[derive(Default)]
struct Batch {
    delivery: Delivery,
    /// What came, also of what was too large to be kept.
    bytes: usize,
}

/// What a step did with a batch, and what it left.
#[derive(Debug, Default)]
struct Step {
    report: BatchReport,
    set_aside: Vec<(EntryId, Cause)>,
}

impl Step {
    fn leave(&mut self, id: EntryId, cause: Cause) {
        self.report.left += 1;
        self.set_aside.push((id, cause));
    }
}

/// Keeps all that a consumer has in hand or has set aside from being claimed, for as long as its lane does its work: while
/// that waits for stores, or is paused, others may do it.
async fn keep(stream: &Stream, consumer: &str, every: Duration, pulse: &Pulse) {
    loop {
        tokio::time::sleep(every).await;
        if matches!(pulse.state().activity, Activity::WaitingForStores | Activity::Paused) {
            continue;
        }
        let mut after = EntryId::MIN;
        loop {
            match stream.keep(consumer, after).await {
                Ok(Some(last)) => {
                    tracing::debug!(consumer, %last, "entries in hand or set aside: kept from being claimed");
                    after = last;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, consumer, "could not keep entries from being claimed");
                    break;
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

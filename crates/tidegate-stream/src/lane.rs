//! One consumer, which handles one batch at a time. The loop decides when to read, `schedule` decides where, and the step
//! (`step.rs`) decides what becomes of a batch.

mod ahead;
mod burials;
mod crashes;
mod keepalive;
mod reading;
pub(crate) mod schedule;
pub(crate) mod set_aside;
mod settings;
mod settling;
mod state;
mod step;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use self::settings::{Failover, LaneSettings};
use self::{
    keepalive::keepalive,
    schedule::Source,
    state::{LaneState, Unhandled},
};
use crate::{
    backoff::Backoff,
    breaker::Breaker,
    counters::Counters,
    entry::Entry,
    exclusive::{Exclusive, SharedGuard},
    handler::{Handler, Outage},
    lane_status::{Activity, LaneStatus},
    observer::Observer,
    pause_switch::PauseSwitch,
    redis::RedisErrorKind,
    shared_reader::SharedReader,
    stream::{Reader, ServerRun, Stream, StreamError},
};

/// One consumer of the group, with one batch at a time: while that is settled, it may read the next one, but begins it afterwards.
/// Entries that could not be done are set aside, and do not keep it from reading.
///
/// What it has in progress, and what it has set aside, is its pending list in Redis. After any failure it walks through that
/// list from the start, then goes on with new entries.
#[derive(Debug)]
pub struct Lane<H> {
    reader: Reader,
    stream: Stream,
    handler: Arc<H>,
    breaker: Arc<Breaker>,
    pause_switch: Arc<PauseSwitch>,
    turns: Turns,
    shared_reader: Arc<SharedReader>,
    counters: Arc<Counters>,
    lane_status: Arc<LaneStatus>,
    observer: Option<Arc<dyn Observer>>,
    /// Whom the entries in progress came from; None: it has to be asked.
    run: Option<ServerRun>,
    settings: LaneSettings,
}

/// The part of a lane in [`Exclusive`]: whether it may have entries in progress beside the other lanes of its process.
#[derive(Debug)]
struct Turns {
    exclusive: Arc<Exclusive>,
    /// From the start: until all lanes have looked at what they had in progress, none has an entry for itself alone.
    shared: Option<SharedGuard>,
}

impl Turns {
    fn of(exclusive: Arc<Exclusive>) -> Self {
        let shared = exclusive.try_shared();
        Self { exclusive, shared }
    }
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
        let shared_reader = Arc::new(SharedReader::new(settings.batch_bytes));
        let lane_status = Arc::new(LaneStatus::new(reader.consumer()));
        Self {
            reader,
            stream,
            handler,
            breaker,
            pause_switch: Arc::default(),
            turns: Turns::of(Arc::default()),
            shared_reader,
            counters,
            lane_status,
            observer: None,
            run: None,
            settings,
        }
    }

    /// The same lane, in a process whose other lanes share `exclusive`.
    #[must_use]
    pub fn with_exclusive(self, exclusive: Arc<Exclusive>) -> Self {
        Self { turns: Turns::of(exclusive), ..self }
    }

    /// The same lane, in a process whose other lanes share `shared_reader`.
    #[must_use]
    pub fn with_shared_reader(self, shared_reader: Arc<SharedReader>) -> Self {
        Self { shared_reader, ..self }
    }

    /// The same lane, which reads nothing while `pause_switch` is paused.
    #[must_use]
    pub fn with_pause_switch(self, pause_switch: Arc<PauseSwitch>) -> Self {
        Self { pause_switch, ..self }
    }

    /// Lets `observer` look on.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// What it does now, for others to look at while it runs.
    #[must_use]
    pub fn lane_status(&self) -> Arc<LaneStatus> {
        Arc::clone(&self.lane_status)
    }

    /// Runs until `stop`. Then it first finishes the batch in progress and the one that it has read ahead and, unless a store is away, what its
    /// reads brought beyond them. No error ends it.
    ///
    /// # Panics
    /// When the handler does, or answers with another number of outcomes than it was given entries: see [`Handler`].
    pub async fn run(mut self, stop: CancellationToken) {
        let (stream, lane_status) = (self.stream.clone(), Arc::clone(&self.lane_status));
        let consumer = self.reader.consumer().to_owned();
        let every = self.settings.claim_idle / 3;
        tokio::select! {
            () = self.work(&stop) => {}
            () = keepalive(&stream, &consumer, every, &lane_status) => unreachable!("goes on for ever"),
        }
        self.lane_status.enter(Activity::Stopped);
    }

    async fn work(&mut self, stop: &CancellationToken) {
        let causes = Arc::clone(self.counters.set_aside());
        let mut state = LaneState::new(&self.settings, causes, self.turns.shared.take());
        let mut backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        loop {
            let unhandled = state.unhandled();
            self.lane_status.begin_turn(unhandled.read_since());
            if !self.may_go_on(unhandled, stop).await {
                return;
            }
            if state.shared.is_none() {
                let Some(guard) = stop.run_until_cancelled(self.share()).await else { return };
                state.shared = Some(guard);
            }
            let closings = self.breaker.closings();
            if self.reader.has_reconnected() {
                self.counters.reconnected();
                self.run = None;
                if let Some(ahead) = state.take_ahead() {
                    self.out_of_hand(&ahead.delivery, "the connection was made anew").await;
                }
                state.start_over();
            }
            match self.turn(&mut state, stop).await {
                // Only this tells that all is well: the own pending list may be read without trouble while
                // new entries are not.
                Ok(Source::New { .. }) => backoff.reset(),
                Ok(_) => {}
                Err(error) => {
                    // Whatever failed, entries may be pending that we do not know of.
                    state.start_over();
                    self.run = None;
                    if matches!(error, LaneError::TooLate(_)) {
                        state.schedule.narrow();
                    }
                    self.lane_status.enter(Activity::BackingOff);
                    self.handle_error(error, closings).await;
                    stop.run_until_cancelled(tokio::time::sleep(backoff.next_wait())).await;
                }
            }
            state.end_turn();
        }
    }

    /// One turn, by the run of the server that the reader is connected to.
    async fn turn(&mut self, state: &mut LaneState, stop: &CancellationToken) -> Result<Source, LaneError> {
        if self.run.is_none() {
            self.run = Some(match self.settings.failover {
                Failover::Never => ServerRun::Any,
                Failover::Possible => self.reader.server_run().await?,
            });
        }
        self.read_and_process(state, stop).await
    }

    /// Whom the entries in progress came from.
    fn run_of_server(&self) -> &ServerRun {
        self.run.as_ref().unwrap_or(&ServerRun::Any)
    }

    /// What was just read came from the server that was asked for its run.
    fn is_same_server(&self) -> Result<(), StreamError> {
        if self.settings.failover == Failover::Never || !self.reader.has_reconnected() {
            return Ok(());
        }
        Err(self.made_anew())
    }

    fn made_anew(&self) -> StreamError {
        self.counters.reconnected();
        StreamError::OtherServer("the connection was made anew while it was read".to_owned())
    }

    /// Waits until replicas have what was read, where that is asked for. False: nothing of it is ours any more.
    async fn await_replicas(&self, entries: &[Entry]) -> Result<bool, Outage> {
        let Some(wanted) = self.settings.replicas.as_ref().filter(|_| !entries.is_empty()) else {
            return Ok(true);
        };
        let is_ours = self.stream.await_replicas(&self.reader, entries, wanted).await?;
        // A new connection has written nothing, and WAIT is answered at once.
        if self.reader.has_reconnected() {
            return Err(self.made_anew().into());
        }
        Ok(is_ours)
    }

    /// Waits until no other lane handles an entry alone.
    async fn share(&self) -> SharedGuard {
        if let Some(guard) = self.turns.exclusive.try_shared() {
            return guard;
        }
        self.lane_status.enter(Activity::Yielding);
        self.turns.exclusive.shared().await
    }

    /// Waits until no store is away and nobody has paused it. False: it is to stop. What was read comes before a stop or a pause: otherwise
    /// it lies in nobody's hands. What is in progress does not wait for a store either: a try says whether that is the one that it needs.
    async fn may_go_on(&self, unhandled: Unhandled, stop: &CancellationToken) -> bool {
        if matches!(unhandled, Unhandled::InProgress { .. }) {
            return true;
        }
        loop {
            if self.breaker.is_open() {
                self.lane_status.enter(Activity::WaitingForStores);
                if stop.run_until_cancelled(self.breaker.closed()).await.is_none() {
                    return false;
                }
            } else if unhandled == Unhandled::OutOfHand {
                return true;
            } else if stop.is_cancelled() {
                return false;
            } else if self.pause_switch.is_paused() {
                self.lane_status.enter(Activity::Paused);
                stop.run_until_cancelled(self.pause_switch.resumed()).await;
            } else {
                return true;
            }
        }
    }

    /// The one place where a lane's errors are handled and logged.
    async fn handle_error(&self, error: LaneError, closings: u64) {
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

#[derive(Debug)]
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
            StreamError::Redis(error) if error.kind() == RedisErrorKind::Timeout => {
                Self::TooLate(error.into())
            }
            other => Self::Outage(other.into()),
        }
    }
}

impl From<Outage> for LaneError {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

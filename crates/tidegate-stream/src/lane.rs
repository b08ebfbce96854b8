//! A lane: one consumer, which handles one batch at a time. The loop decides when to read, `schedule` decides where,
//! and the step (`step.rs`) decides the outcome of a batch.

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

pub use self::settings::{Failover, LaneSettings, RetryWait};
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

/// A consumer of the group. A lane handles one batch at a time. While the lane acknowledges a batch, it may already
/// read the next batch. Entries that cannot be done now stay pending for a later retry, so that the lane can continue
/// with other entries.
///
/// The pending list of the consumer in Redis holds what the lane has in progress and what it has set aside. After any
/// failure, the lane reads that list from the start, then continues with new entries.
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
    /// The run of the server that the entries in progress came from; None: the lane has to query it.
    run: Option<ServerRun>,
    settings: LaneSettings,
}

/// The share of a lane in [`Exclusive`], which allows it to have entries in progress at the same time as other lanes of
/// its process.
#[derive(Debug)]
struct Turns {
    exclusive: Arc<Exclusive>,
    /// Taken when the lane is created: no lane handles an entry alone until all lanes have checked what they had in
    /// progress.
    shared: Option<SharedGuard>,
}

impl Turns {
    fn of(exclusive: Arc<Exclusive>) -> Self {
        let shared = exclusive.try_shared();
        Self { exclusive, shared }
    }
}

impl<H: Handler> Lane<H> {
    /// Creates a lane, a consumer that reads entries with `reader` and passes each batch to `handler`.
    pub fn new(
        reader: Reader,
        stream: Stream,
        handler: Arc<H>,
        breaker: Arc<Breaker>,
        counters: Arc<Counters>,
        settings: LaneSettings,
    ) -> Self {
        // With batches of 0 entries, the loop would turn for ever without reading.
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

    /// Returns this lane (consumer) with the lock `exclusive`, which all lanes of the process share.
    #[must_use]
    pub fn with_exclusive(self, exclusive: Arc<Exclusive>) -> Self {
        Self { turns: Turns::of(exclusive), ..self }
    }

    /// Returns this lane (consumer) with the reader `shared_reader`, which all lanes of the process share.
    #[must_use]
    pub fn with_shared_reader(self, shared_reader: Arc<SharedReader>) -> Self {
        Self { shared_reader, ..self }
    }

    /// Returns this lane (consumer) with a switch: the lane reads nothing while `pause_switch` is on.
    #[must_use]
    pub fn with_pause_switch(self, pause_switch: Arc<PauseSwitch>) -> Self {
        Self { pause_switch, ..self }
    }

    /// Returns this lane (consumer) with an observer, to which it reports each processed batch.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Returns the status of the lane (consumer), which other tasks can read while the lane runs.
    #[must_use]
    pub fn lane_status(&self) -> Arc<LaneStatus> {
        Arc::clone(&self.lane_status)
    }

    /// Runs the lane, a consumer of the group, until `stop` is cancelled. Before the lane ends, it handles all entries
    /// that it has already read, unless a store is unavailable. No error ends the lane.
    ///
    /// # Panics
    /// When the handler panics, or when the number of outcomes differs from the number of entries: see [`Handler`].
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
                    self.out_of_hand(&ahead.delivery, "the lane has reconnected").await;
                }
                state.start_over();
            }
            match self.turn(&mut state, stop).await {
                // Only a read of new entries shows that everything works: the own pending list may be readable while
                // new entries are not.
                Ok(Source::New { .. }) => backoff.reset(),
                Ok(_) => {}
                Err(error) => {
                    // After any failure, entries may be pending that this lane does not know.
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

    /// Runs one turn, in the run of the server that the reader is connected to.
    async fn turn(&mut self, state: &mut LaneState, stop: &CancellationToken) -> Result<Source, LaneError> {
        if self.run.is_none() {
            self.run = Some(match self.settings.failover {
                Failover::Never => ServerRun::Any,
                Failover::Possible => self.reader.server_run().await?,
            });
        }
        self.read_and_process(state, stop).await
    }

    /// Returns the run of the server that the entries in progress came from.
    fn run_of_server(&self) -> &ServerRun {
        self.run.as_ref().unwrap_or(&ServerRun::Any)
    }

    /// Checks that the last read came from the server whose run is known.
    fn is_same_server(&self) -> Result<(), StreamError> {
        if self.settings.failover == Failover::Never || !self.reader.has_reconnected() {
            return Ok(());
        }
        Err(self.made_anew())
    }

    fn made_anew(&self) -> StreamError {
        self.counters.reconnected();
        StreamError::OtherServer("the connection to Redis was replaced during a read".to_owned())
    }

    /// Waits until replicas have the entries that were read, if the settings require that. Returns false if the
    /// consumer holds none of them any more.
    async fn await_replicas(&self, entries: &[Entry]) -> Result<bool, Outage> {
        let Some(wanted) = self.settings.replicas.as_ref().filter(|_| !entries.is_empty()) else {
            return Ok(true);
        };
        let is_ours = self.stream.await_replicas(&self.reader, entries, wanted).await?;
        // A new connection has written nothing, so Redis answers WAIT at once.
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

    /// Waits until no store is unavailable and the lane is not paused. Returns false if the lane must stop. Entries
    /// that were read are handled before a stop or a pause, because otherwise no lane would work on them. A batch that
    /// was read ahead does not wait for a store either: handling it shows whether it needs that store.
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

    /// Handles and logs all errors of a lane.
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
    /// A read whose reply did not come within its timeout.
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

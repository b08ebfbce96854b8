//! The state of a worker, readable from outside from its start to its end.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    OrderCounters, RedisStore, Sessions, ledger::Contentions, order_counters::OrderCounts,
    publisher::ResultCounters,
};
use tidegate_stream::{
    ActivePause, Activity, Breaker, Counters, Counts, LaneSnapshot, LaneStatus, PauseSwitch, SetAsideNote,
    breaker::State,
};
use tokio_util::sync::CancellationToken;

use crate::settings::ProcessSettings;

/// A running worker's connections, lane (consumer) states and counters, for other tasks to read.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The connections of the worker for Redis commands.
    pub redis: RedisStore,
    /// The MySQL connections for queries about the worker. Writing orders does not use these connections.
    pub mysql: MySqlPool,
    /// All MySQL sessions of the worker, including the sessions that write orders.
    pub sessions: Sessions,
    /// The state of each lane (consumer) of the worker.
    pub lane_statuses: Vec<Arc<LaneStatus>>,
    /// The circuit breaker, which stops the reading of entries while Redis or MySQL is unavailable.
    pub breaker: Arc<Breaker>,
    /// The counters of entries and batches that the worker has processed.
    pub counters: Arc<Counters>,
    /// The counters of the worker's orders, one for each outcome.
    pub order_counters: Arc<OrderCounters>,
    /// The counter of MySQL transactions that failed because of a conflict with another transaction.
    pub contentions: Arc<Contentions>,
    /// The number of `expired` events that the worker has appended.
    pub expirations: Arc<AtomicU64>,
    /// Whether this worker's busy marks make sales refuse orders now. Buyers then get the reply 11 (busy).
    pub busy: Arc<AtomicBool>,
    /// The number of vouchers that should be on sale and have no stock in Redis, if this worker loads vouchers.
    pub not_loaded: Arc<AtomicU64>,
    /// The counters of order results that the worker has published.
    pub result_counters: Arc<ResultCounters>,
}

impl Parts {
    /// The present state of each lane (consumer) of the worker.
    pub fn lanes(&self) -> Vec<LaneSnapshot> {
        self.lane_statuses.iter().map(|lane_status| lane_status.state()).collect()
    }

    /// The number of MySQL connections that the worker has opened since its start, including closed ones.
    pub fn mysql_connections(&self) -> u64 {
        self.sessions.opened()
    }
}

/// The access of other tasks, such as the admin server, to the state of a worker.
#[derive(Debug)]
pub struct View {
    settings: ProcessSettings,
    began: Instant,
    stop: CancellationToken,
    pause_switch: Arc<PauseSwitch>,
    parts: OnceLock<Parts>,
}

/// The phase of a worker: starting, running or stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The worker waits for Redis, the consumer group or its name.
    Starting,
    /// The lanes of the worker work.
    Running,
    /// The worker finishes the work in progress.
    Stopping,
}

/// The report of a worker about itself, for JSON output.
#[derive(Debug, Serialize)]
pub struct WorkerView {
    name: String,
    version: &'static str,
    pid: u32,
    phase: Phase,
    uptime_s: f64,
    breaker: Option<OutageView>,
    paused: Vec<PauseView>,
    lanes: Vec<LaneView>,
    entries: Counts,
    set_aside: SetAsideNote,
    orders: OrderCounts,
}

/// An outage of a store, during which the worker reads nothing.
#[derive(Debug, Serialize)]
struct OutageView {
    store: &'static str,
    error: String,
    lasting_s: f64,
}

/// A pause, during which the worker reads nothing.
#[derive(Debug, Serialize)]
struct PauseView {
    reason: &'static str,
    lasting_s: f64,
}

/// The JSON of a lane's state.
#[derive(Debug, Serialize)]
struct LaneView {
    consumer: String,
    activity: Activity,
    lasting_s: f64,
    in_progress: usize,
    turns: u64,
    is_stuck: bool,
}

impl View {
    /// Creates the view of a worker that has not started yet. Cancelling `stop` ends the worker, and `pause_switch`
    /// stops its reading of entries.
    pub fn new(settings: &ProcessSettings, stop: CancellationToken, pause_switch: Arc<PauseSwitch>) -> Self {
        Self { settings: settings.clone(), began: Instant::now(), stop, pause_switch, parts: OnceLock::new() }
    }

    /// Lets other tasks read the connections, lane (consumer) states and counters of this worker. The worker has
    /// already started.
    pub fn open(&self, parts: Parts) {
        self.parts.get_or_init(|| parts);
    }

    /// The settings of this worker and its partition.
    pub fn settings(&self) -> &ProcessSettings {
        &self.settings
    }

    /// The tag of the worker's partition. None: the system has no partitions.
    pub fn tag(&self) -> Option<&str> {
        self.settings.system.partition().tag()
    }

    /// The pause switch, which can stop the worker from reading entries.
    pub fn pause_switch(&self) -> &Arc<PauseSwitch> {
        &self.pause_switch
    }

    /// The connections, lane (consumer) states and counters of the worker. None: the worker has not started yet.
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.get()
    }

    /// The token that is cancelled when the worker has to stop.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The present phase of the worker: starting, running or stopping.
    pub fn phase(&self) -> Phase {
        match self.parts() {
            _ if self.stop.is_cancelled() => Phase::Stopping,
            None => Phase::Starting,
            Some(_) => Phase::Running,
        }
    }

    /// Whether a lane (a consumer within the worker) is stuck: it has stayed in one activity for too long.
    pub fn is_stuck(&self, lane: &LaneSnapshot) -> bool {
        !lane.activity.may_last() && lane.lasting > self.settings.worker.stuck_after
    }

    /// One sentence for each stuck lane (consumer) of the worker, and for a stuck circuit breaker.
    pub fn stuck(&self) -> Vec<String> {
        let Some(parts) = self.parts() else { return Vec::new() };
        let lanes = parts.lanes();
        let mut stuck: Vec<String> =
            lanes.iter().filter(|lane| self.is_stuck(lane)).map(stuck_lane).collect();
        // Lanes may wait for a store for ever, but only while the breaker still probes it.
        let bound = self.settings.worker.stuck_after + self.settings.worker.lane.backoff_max;
        if let Some(silent) = parts.breaker.silent_for().filter(|silent| *silent > bound) {
            stuck.push(format!(
                "Redis or MySQL is unavailable, and the worker has not checked this store for {:.1} s",
                silent.as_secs_f64()
            ));
        }
        stuck
    }

    /// Whether the worker is ready for orders: all its consumers have started, and both stores are available. A paused
    /// worker is also ready.
    pub fn takes_orders(&self) -> bool {
        self.phase() == Phase::Running
            && self.parts().is_some_and(|parts| {
                !parts.breaker.is_open()
                    && parts.lanes().iter().all(|lane| lane.activity != Activity::Starting)
            })
    }

    /// Logs the pauses of the worker and the state of every lane (consumer).
    pub fn tell_lanes(&self) {
        for held in self.pause_switch.active() {
            tracing::info!(reason = held.reason, lasting_ms = millis(held.lasting()), "the worker is paused");
        }
        let Some(parts) = self.parts() else {
            tracing::info!("the worker is starting, and has no lanes (consumers) yet");
            return;
        };
        for lane in parts.lanes() {
            tracing::info!(
                consumer = lane.consumer,
                activity = lane.activity.word(),
                lasting_ms = millis(lane.lasting),
                in_progress = lane.in_progress,
                turns = lane.turns,
                "state of a lane"
            );
        }
    }

    /// Creates the report of the worker about itself.
    pub fn worker(&self) -> WorkerView {
        let parts = self.parts();
        let lanes = parts.map(Parts::lanes).unwrap_or_default();
        WorkerView {
            name: self.settings.worker.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            phase: self.phase(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            breaker: parts.and_then(|parts| outage(&parts.breaker)),
            paused: self.pause_switch.active().iter().map(pause).collect(),
            lanes: lanes.iter().map(|lane| self.lane(lane)).collect(),
            entries: parts.map(|parts| parts.counters.counts()).unwrap_or_default(),
            set_aside: parts.map(|parts| SetAsideNote::of(parts.counters.set_aside())).unwrap_or_default(),
            orders: parts.map(|parts| parts.order_counters.counts()).unwrap_or_default(),
        }
    }

    fn lane(&self, lane: &LaneSnapshot) -> LaneView {
        LaneView {
            consumer: lane.consumer.clone(),
            activity: lane.activity,
            lasting_s: lane.lasting.as_secs_f64(),
            in_progress: lane.in_progress,
            turns: lane.turns,
            is_stuck: self.is_stuck(lane),
        }
    }
}

fn outage(breaker: &Breaker) -> Option<OutageView> {
    let State::Open { since, outage } = breaker.state() else { return None };
    Some(OutageView { store: outage.store, error: outage.error, lasting_s: since.elapsed().as_secs_f64() })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn pause(held: &ActivePause) -> PauseView {
    PauseView { reason: held.reason, lasting_s: held.lasting().as_secs_f64() }
}

fn stuck_lane(lane: &LaneSnapshot) -> String {
    format!(
        "lane {} has had the activity {} for {:.1} s, with {} entries in progress",
        lane.consumer,
        lane.activity.word(),
        lane.lasting.as_secs_f64(),
        lane.in_progress
    )
}

//! What there is to see of a worker, from its start to its end.

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
    OrderCounters, RedisStore, Sessions, publisher::ResultCounters, ledger::Contentions,
    order_counters::OrderCounts,
};
use tidegate_stream::{
    ActivePause, Activity, Breaker, Counters, Counts, LaneSnapshot, LaneStatus, PauseSwitch, SetAsideNote,
    breaker::State,
};
use tokio_util::sync::CancellationToken;

use crate::settings::ProcessSettings;

/// The parts of a worker that can be looked at while it works.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Its connections for commands.
    pub redis: RedisStore,
    /// Connections to MySQL that no lane ever waits for.
    pub mysql: MySqlPool,
    /// All sessions with MySQL, these and those of the lanes.
    pub sessions: Sessions,
    /// What each lane does.
    pub lane_statuses: Vec<Arc<LaneStatus>>,
    /// Whether a store is away.
    pub breaker: Arc<Breaker>,
    /// What the lanes have done.
    pub counters: Arc<Counters>,
    /// What became of the orders.
    pub order_counters: Arc<OrderCounters>,
    /// How often others were in the way of its transactions.
    pub contentions: Arc<Contentions>,
    /// Events `expired` that it has appended.
    pub expirations: Arc<AtomicU64>,
    /// Whether this worker marks sales as busy.
    pub busy: Arc<AtomicBool>,
    /// What was published.
    pub result_counters: Arc<ResultCounters>,
}

impl Parts {
    /// What each lane does now.
    pub fn lanes(&self) -> Vec<LaneSnapshot> {
        self.lane_statuses.iter().map(|lane_status| lane_status.state()).collect()
    }

    /// How many connections to MySQL were opened.
    pub fn mysql_connections(&self) -> u64 {
        self.sessions.opened()
    }
}

/// A worker, seen from outside.
#[derive(Debug)]
pub struct View {
    settings: ProcessSettings,
    began: Instant,
    stop: CancellationToken,
    pause_switch: Arc<PauseSwitch>,
    parts: OnceLock<Parts>,
}

/// How far a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It waits for Redis, the group or its name.
    Starting,
    /// Its lanes work.
    Running,
    /// It finishes what is in progress.
    Stopping,
}

/// What a worker tells of itself.
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

/// Why nothing is read.
#[derive(Debug, Serialize)]
struct OutageView {
    store: &'static str,
    error: String,
    lasting_s: f64,
}

/// Who wants nothing to be read.
#[derive(Debug, Serialize)]
struct PauseView {
    reason: &'static str,
    lasting_s: f64,
}

/// What a lane does.
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
    /// A worker that has not begun to work; `stop` tells it to end, `pause_switch` to read nothing.
    pub fn new(settings: &ProcessSettings, stop: CancellationToken, pause_switch: Arc<PauseSwitch>) -> Self {
        Self { settings: settings.clone(), began: Instant::now(), stop, pause_switch, parts: OnceLock::new() }
    }

    /// It has begun to work.
    pub fn open(&self, parts: Parts) {
        self.parts.get_or_init(|| parts);
    }

    /// How it is configured.
    pub fn settings(&self) -> &ProcessSettings {
        &self.settings
    }

    /// The tag of the partition that it works on; None in a system without partitions.
    pub fn tag(&self) -> Option<&str> {
        self.settings.system.partition().tag()
    }

    /// What keeps it from reading.
    pub fn pause_switch(&self) -> &Arc<PauseSwitch> {
        &self.pause_switch
    }

    /// Its parts, once it works.
    pub fn parts(&self) -> Option<&Parts> {
        self.parts.get()
    }

    /// Is cancelled when it is told to end.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match self.parts() {
            _ if self.stop.is_cancelled() => Phase::Stopping,
            None => Phase::Starting,
            Some(_) => Phase::Running,
        }
    }

    /// Whether a lane does one thing for too long.
    pub fn is_stuck(&self, lane: &LaneSnapshot) -> bool {
        !lane.activity.may_last() && lane.lasting > self.settings.worker.stuck_after
    }

    /// What stands still although it should turn, in sentences.
    pub fn stuck(&self) -> Vec<String> {
        let Some(parts) = self.parts() else { return Vec::new() };
        let lanes = parts.lanes();
        let mut stuck: Vec<String> =
            lanes.iter().filter(|lane| self.is_stuck(lane)).map(stuck_lane).collect();
        // Lanes may wait for the stores for ever, but only for as long as somebody knocks.
        let bound = self.settings.worker.stuck_after + self.settings.worker.lane.backoff_max;
        if let Some(silent) = parts.breaker.silent_for().filter(|silent| *silent > bound) {
            stuck.push(format!("the breaker is open and has not knocked for {:.1} s", silent.as_secs_f64()));
        }
        stuck
    }

    /// Whether orders are taken: all lanes have begun, and no store is away. A pause is somebody's will, and does not
    /// count.
    pub fn takes_orders(&self) -> bool {
        self.phase() == Phase::Running
            && self.parts().is_some_and(|parts| {
                !parts.breaker.is_open()
                    && parts.lanes().iter().all(|lane| lane.activity != Activity::Starting)
            })
    }

    /// Writes the state of every lane to the log, and why they do not read.
    pub fn tell_lanes(&self) {
        for held in self.pause_switch.active() {
            tracing::info!(reason = held.reason, lasting_ms = millis(held.lasting()), "the worker is paused");
        }
        let Some(parts) = self.parts() else {
            tracing::info!("no lanes yet: the worker is starting");
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

    /// What it tells of itself.
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
        "lane {} has been {} for {:.1} s, with {} entries in progress",
        lane.consumer,
        lane.activity.word(),
        lane.lasting.as_secs_f64(),
        lane.in_progress
    )
}

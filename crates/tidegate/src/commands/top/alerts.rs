//! The alerts of the live view, the worst first.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tidegate_compare::{
    reconciled::Reconciled,
    text::{counted, printable},
};
use tidegate_operations::{
    finding::Level,
    fleet_pause::{FLEET, FleetPause},
    status::{
        StreamView,
        no_worker::{self, OpenSale},
    },
    watch::RedisOverview,
};

use super::{
    format::{age, lasting, time_of_day},
    grid::{Cell, Severity},
    observations::{Observations, SourceOutage},
    worker_page::WorkerPage,
};

/// The delay, beyond the polling interval, after which the status of a worker is reported as old.
const LATE: Duration = Duration::from_secs(3);

/// The warnings and errors that follow from the last readings. `worker` is the status page of a worker that reads the
/// same stream.
pub fn alerts(
    observations: &Observations,
    worker: Option<&WorkerPage>,
    now: Instant,
    clock: Timestamp,
) -> Vec<Cell> {
    let mut alerts = Vec::new();
    let is_away = |source: &str, outage: &SourceOutage| {
        let silent = now.saturating_duration_since(outage.since);
        let (since, why) = (time_of_day(clock, silent), printable(&outage.error));
        format!("{source} is away since {since} ({}): {why}", lasting(silent))
    };
    let stores = [("Redis", observations.redis.outage()), ("MySQL", observations.mysql.outage())];
    let stores = stores.into_iter().filter_map(|(store, outage)| Some(is_away(store, outage?)));
    alerts.extend(stores.map(|text| Cell::new(text, Severity::Bad)));
    alerts.extend(worker.map(worker_alerts).unwrap_or_default());
    if let Some(redis) = observations.redis.current() {
        alerts.extend(redis.pause.as_ref().map(pause_alert));
        alerts.extend(no_worker_alert(observations, redis, clock));
        alerts.extend(stream_alerts(&redis.stream));
        let differ = redis.reconciled.as_ref().and_then(Reconciled::sentence);
        alerts.extend(differ.map(|text| Cell::new(text, Severity::Warn)));
    }
    if let Some(late) = worker.and_then(|page| worker_late(observations, page, now)) {
        alerts.push(late);
    }
    // A worker that never answered is on another machine.
    if let (Some(page), Some(outage)) = (observations.worker.last(), observations.worker.outage()) {
        let worker = format!("worker {}", printable(&page.worker.name));
        alerts.push(Cell::new(is_away(&worker, outage), Severity::Warn));
    }
    alerts
}

/// The alert that a worker answers late. The worker queries the stores before it answers.
fn worker_late(observations: &Observations, page: &WorkerPage, now: Instant) -> Option<Cell> {
    let age = observations.worker.age(now).filter(|age| *age > observations.every + LATE)?;
    let text = format!("the status of worker {} is {} old", printable(&page.worker.name), lasting(age));
    Some(Cell::new(text, Severity::Warn))
}

fn worker_alerts(page: &WorkerPage) -> Vec<Cell> {
    let worker = &page.worker;
    let name = printable(&worker.name);
    let outage = worker.breaker.as_ref().map(|outage| {
        let silent = age(outage.lasting_s);
        let text = format!("worker {name} has read nothing for {silent}: {}: {}", outage.store, outage.error);
        Cell::new(printable(&text), Severity::Bad)
    });
    let stuck = worker.lanes.iter().filter(|lane| lane.is_stuck).map(|lane| {
        let text = format!("lane {} is stuck: {} for {}", lane.consumer, lane.doing(), age(lane.lasting_s));
        Cell::new(printable(&text), Severity::Bad)
    });
    // The pause of all workers has its own alert, with the name of the operator.
    let pauses = worker.paused.iter().filter(|pause| pause.reason != FLEET).map(|pause| {
        let text = format!("worker {name} has been paused for {}: {}", age(pause.lasting_s), pause.reason);
        Cell::new(printable(&text), Severity::Warn)
    });
    let phase = (worker.phase != "running").then(|| format!("worker {name} is {}", worker.phase));
    let phase = phase.map(|text| Cell::new(printable(&text), Severity::Warn));
    outage.into_iter().chain(stuck).chain(pauses).chain(phase).collect()
}

fn pause_alert(pause: &FleetPause) -> Cell {
    Cell::new(format!("the workers are paused {}: {}", pause.origin(), pause.end()), Severity::Warn)
}

/// The alert that no worker is alive, in the words of `tidegate doctor` and `tidegate status`.
fn no_worker_alert(observations: &Observations, redis: &RedisOverview, clock: Timestamp) -> Option<Cell> {
    if redis.has_worker != Some(false) {
        return None;
    }
    let open = observations.mysql.current().map_or(OpenSale::Unknown, |rows| {
        let sales = rows.iter().map(|row| (row, redis.sales.get(&row.voucher).copied()));
        OpenSale::among(sales, clock.as_millisecond())
    });
    let found = no_worker::judge(&redis.stream, &open);
    let severity = if found.level == Level::Error { Severity::Bad } else { Severity::Warn };
    Some(Cell::new(format!("{}: start one with tidegate worker", found.what), severity))
}

fn stream_alerts(stream: &StreamView) -> Vec<Cell> {
    let mut alerts = Vec::new();
    if !["stream", "none"].contains(&stream.kind.as_str()) {
        alerts
            .push(Cell::new(format!("{} is not a stream but a {}", stream.name, stream.kind), Severity::Bad));
    } else if !stream.group_exists {
        alerts.push(Cell::new(
            format!("there is no consumer group {} yet: the first worker creates it", stream.group),
            Severity::Warn,
        ));
    }
    let gone = stream.consumers.iter().filter(|consumer| !consumer.alive && consumer.pending > 0);
    let (gone, held) = gone.fold((0_u64, 0), |(gone, held), consumer| (gone + 1, held + consumer.pending));
    if gone > 0 {
        let (held, gone) = (counted(held, "entry"), counted(gone, "consumer"));
        let text = format!("{held} pending with {gone} whose process is gone");
        alerts.push(Cell::new(text, Severity::Warn));
    }
    alerts
}

//! The content of the live view, computed from the readings, without access to a store or a terminal.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tidegate_compare::text::printable;
use tidegate_orders::records::vouchers::VoucherRow;
use tidegate_stream::SetAsideNote;

use super::{
    alerts::alerts,
    format::{UNKNOWN, age, count, lasting, or_unknown, rate, time_of_day},
    grid::{Cell, Grid, Kind, Severity},
    observations::{Observations, Observed},
    worker_page::{ReportedLane, WorkerPage},
};
use tidegate_operations::{
    consumers::Consumer,
    status::{SaleInRedis, SaleState, StreamView, units_to_deduct},
    watch::NewestLetters,
};

/// The age of a waiting order, in seconds, from which on it is shown as a warning.
const WARN_AGE_S: f64 = 10.0;
/// The age of a waiting order, in seconds, from which on it is shown as a problem, as in the runbook's alert.
const BAD_AGE_S: f64 = 60.0;
/// The column layout for counts. Its fixed width keeps the table still when a sale begins.
pub(super) const COUNT: Kind = Kind::Number(9);
pub(super) const AGE: Kind = Kind::Number(6);
pub(super) const RATE: Kind = Kind::Number(7);

/// The content of a page of the live view.
#[derive(Clone, Debug)]
pub struct TopView {
    /// The title of the page.
    pub subject: String,
    /// The line which says whether each store answers, and the time of day.
    pub state: Vec<Cell>,
    /// The alerts of the page, the worst first.
    pub alerts: Vec<Cell>,
    /// The table of the stream's numbers: counts, ages and rates.
    pub stream: Grid,
    /// The table of consumers. For consumers on this machine, the table also shows what they are doing.
    pub consumers: Grid,
    /// The table of vouchers with their stocks in both stores.
    pub vouchers: Grid,
}

impl TopView {
    /// Creates a page of the live view from the last readings, for the time `now`.
    pub fn new(observations: &Observations, now: Instant, clock: Timestamp) -> Self {
        let worker = observations.worker.current().filter(|page| reads_this(observations, page));
        let time = Cell::plain(time_of_day(clock, Duration::ZERO));
        Self {
            subject: format!(
                "tidegate top  {} / {}",
                printable(&observations.stream),
                printable(&observations.group)
            ),
            state: vec![
                store_state("Redis", &observations.redis),
                store_state("MySQL", &observations.mysql),
                time,
            ],
            alerts: alerts(observations, worker, now, clock),
            stream: stream(observations, worker),
            consumers: consumers(observations, worker),
            vouchers: vouchers(observations, clock),
        }
    }
}

/// Whether the worker of the page reads the stream of these observations.
pub(super) fn reads_this(observations: &Observations, page: &WorkerPage) -> bool {
    page.stream
        .as_ref()
        .is_none_or(|names| names.name == observations.stream && names.group == observations.group)
}

pub(super) fn store_state<T>(store: &str, observed: &Observed<T>) -> Cell {
    match (observed.outage(), observed.last()) {
        (Some(_), _) => Cell::new(format!("{store} away"), Severity::Bad),
        (None, Some(_)) => Cell::new(format!("{store} ok"), Severity::Good),
        (None, None) => Cell::new(format!("{store} ?"), Severity::Warn),
    }
}

fn stream(observations: &Observations, worker: Option<&WorkerPage>) -> Grid {
    let is_old = observations.redis.outage().is_some();
    let redis = observations.redis.last();
    let stream = redis.map(|redis| &redis.stream);
    let number = |of: fn(&StreamView) -> Option<u64>| or_unknown(stream.and_then(of).map(count));
    let aged = |of: fn(&StreamView) -> Option<f64>| {
        let seconds = stream.and_then(of);
        Cell::new(seconds.map(age).unwrap_or_default(), age_tone(seconds))
    };
    let speed = |of: fn(&StreamView) -> Option<u64>| {
        let per_second = observations.redis.rate(|redis| of(&redis.stream));
        Cell::plain(or_unknown(per_second.map(rate)))
    };
    let at_least = if stream.is_some_and(|stream| stream.backlog.undelivered_is_at_least) { "+" } else { "" };
    let dead = Cell::new(number(|stream| Some(stream.dead_letters)), dead_tone(stream));
    let [added, settled]: [fn(&StreamView) -> Option<u64>; 2] =
        [|stream| stream.entries_added, |stream| stream.backlog.entries_settled];
    let undelivered = number(|stream| Some(stream.backlog.undelivered)) + at_least;
    let pending = number(|stream| Some(stream.backlog.pending));
    let none = || Cell::plain("");
    let row = |name, entries, oldest, per_s, note: Option<String>| {
        [Cell::plain(name), entries, oldest, per_s, Cell::plain(note.unwrap_or_default())]
    };
    let in_stream = stream.map(|stream| format!("{} in the stream", count(stream.length)));
    let oldest_undelivered = aged(|stream| stream.backlog.oldest_undelivered_s);
    let oldest_pending = aged(|stream| stream.backlog.oldest_pending_s);
    let set_aside = stream.map(|stream| waiting(&stream.set_aside));
    let written = worker.map(|page| writes(observations, page));
    let letters = redis.map(|redis| newest(&redis.letters));
    let rows = [
        row("added", Cell::plain(number(added)), none(), speed(added), in_stream),
        row("undelivered", Cell::plain(undelivered), oldest_undelivered, none(), None),
        row("pending", Cell::plain(pending), oldest_pending, none(), set_aside),
        row("settled", Cell::plain(number(settled)), none(), speed(settled), written),
        row("dead letters", dead, none(), none(), letters),
    ];
    let rows = rows.map(|row| row.into_iter().map(|cell| cell.old_if(is_old)).collect::<Vec<_>>());
    Grid {
        columns: vec![
            ("stream", Kind::Name),
            ("entries", COUNT),
            ("oldest", AGE),
            ("per s", RATE),
            ("", Kind::Note),
        ],
        rows: rows.into(),
        has_more: false,
        empty: "",
    }
}

fn writes(observations: &Observations, page: &WorkerPage) -> String {
    let rate_of_worker = observations.worker.rate(|page| Some(page.worker.orders.created));
    format!(
        "worker {} writes {} orders per s",
        printable(&page.worker.name),
        or_unknown(rate_of_worker.map(rate))
    )
}

/// The reasons of the newest dead letters, the most frequent first.
fn newest(letters: &NewestLetters) -> String {
    let Some(newest_s) = letters.newest_s else { return String::new() };
    let mut reasons: Vec<_> = letters.reasons.iter().collect();
    reasons.sort_by_key(|(_, number)| Reverse(**number));
    let reasons: Vec<_> =
        reasons.iter().map(|(reason, number)| format!("{number} {}", printable(reason))).collect();
    format!("last {} ago: {}", lasting(Duration::from_secs_f64(newest_s)), reasons.join(", "))
}

pub(super) fn age_tone(seconds: Option<f64>) -> Severity {
    match seconds {
        Some(BAD_AGE_S..) => Severity::Bad,
        Some(WARN_AGE_S..) => Severity::Warn,
        _ => Severity::Plain,
    }
}

pub(super) fn dead_tone(stream: Option<&StreamView>) -> Severity {
    if stream.is_some_and(|stream| stream.dead_letters > 0) { Severity::Warn } else { Severity::Plain }
}

fn consumers(observations: &Observations, worker: Option<&WorkerPage>) -> Grid {
    let is_old = observations.redis.outage().is_some();
    let known = observations.redis.last().map_or(&[][..], |redis| &redis.stream.consumers);
    let known: BTreeMap<&str, &Consumer> =
        known.iter().map(|consumer| (consumer.name.as_str(), consumer)).collect();
    let lanes = worker.map_or(&[][..], |page| &page.worker.lanes);
    let lanes: BTreeMap<&str, &ReportedLane> =
        lanes.iter().map(|lane| (lane.consumer.as_str(), lane)).collect();
    let names: BTreeSet<&str> = known.keys().chain(lanes.keys()).copied().collect();
    let rows: Vec<(Rank, Vec<Cell>)> = names
        .into_iter()
        .map(|name| {
            let (consumer, lane) = (known.get(name).copied(), lanes.get(name).copied());
            let mut row = vec![Cell::plain(printable(name))];
            row.extend(consumer_cells(consumer).map(|cell| cell.old_if(is_old)));
            if !lanes.is_empty() {
                row.extend(lane_cells(lane));
            }
            (Rank::of(consumer, lane), row)
        })
        .collect();
    let mut columns =
        vec![("consumer", Kind::Name), ("pending", Kind::Number(7)), ("idle", AGE), ("process", Kind::Word)];
    if !lanes.is_empty() {
        columns.extend([("lane", Kind::Word), ("for", AGE), ("in progress", Kind::Number(7))]);
    }
    let empty = if observations.redis.last().is_some() { "no worker has read yet" } else { "not known yet" };
    Grid { columns, rows: in_turns(rows), has_more: false, empty }
}

/// The priority of a consumer in the list, for the case that not all consumers fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// The consumer holds entries and its process is gone, or its lane is stuck.
    Wrong,
    /// The process of the consumer is alive.
    Alive,
    /// The process of the consumer is gone, and the consumer holds no entries.
    Gone,
}

impl Rank {
    fn of(consumer: Option<&Consumer>, lane: Option<&ReportedLane>) -> Self {
        let is_stuck = lane.is_some_and(|lane| lane.is_stuck);
        match consumer {
            _ if is_stuck => Self::Wrong,
            Some(Consumer { alive: false, pending, .. }) if *pending > 0 => Self::Wrong,
            Some(Consumer { alive: false, .. }) => Self::Gone,
            Some(_) | None => Self::Alive,
        }
    }
}

/// Sorts rows of consumers: rows of rank `Wrong` and `Alive` alternate, so that both ranks are seen if few rows fit.
/// Rows of rank `Gone` come last.
fn in_turns(rows: Vec<(Rank, Vec<Cell>)>) -> Vec<Vec<Cell>> {
    let of = |rank| rows.iter().filter(move |row| row.0 == rank).map(|(_, row)| row.clone());
    let (mut wrong, mut alive) = (of(Rank::Wrong), of(Rank::Alive));
    let mut ordered = Vec::with_capacity(rows.len());
    loop {
        let pair = [wrong.next(), alive.next()];
        if pair.iter().all(Option::is_none) {
            break;
        }
        ordered.extend(pair.into_iter().flatten());
    }
    ordered.extend(of(Rank::Gone));
    ordered
}

fn consumer_cells(consumer: Option<&Consumer>) -> [Cell; 3] {
    let Some(Consumer { pending, idle_s, alive, .. }) = consumer else {
        return [Cell::plain("0"), Cell::plain(UNKNOWN), Cell::plain(UNKNOWN)];
    };
    let process = match (alive, pending) {
        (true, _) => Cell::plain("alive"),
        (false, 0) => Cell::new("gone", Severity::Warn),
        (false, _) => Cell::new("gone", Severity::Bad),
    };
    [Cell::plain(count(*pending)), Cell::plain(age(*idle_s)), process]
}

fn lane_cells(lane: Option<&ReportedLane>) -> [Cell; 3] {
    let Some(lane) = lane else { return [(); 3].map(|()| Cell::plain("")) };
    let severity = if lane.is_stuck { Severity::Bad } else { Severity::Plain };
    [
        Cell::new(lane.doing(), severity),
        Cell::new(age(lane.lasting_s), severity),
        Cell::plain(count(lane.in_progress)),
    ]
}

fn vouchers(observations: &Observations, clock: Timestamp) -> Grid {
    let (redis_away, mysql_away) =
        (observations.redis.outage().is_some(), observations.mysql.outage().is_some());
    let rows = observations.mysql.last().map_or(&[][..], |rows| rows);
    let sales = observations.redis.last().map(|redis| &redis.sales);
    let row = |row: &VoucherRow| {
        let sale = sales.and_then(|sales| sales.get(&row.voucher)).copied();
        voucher_cells(row, sale, clock, (redis_away, mysql_away))
    };
    let empty = if observations.mysql.last().is_some() { "no vouchers" } else { "not known yet" };
    Grid {
        columns: vec![
            ("stock of voucher", Kind::Name),
            ("in Redis", COUNT),
            ("in MySQL", COUNT),
            ("to deduct", COUNT),
            ("sale", Kind::Word),
        ],
        rows: rows.iter().map(row).collect(),
        has_more: rows.len() >= super::polling::VOUCHERS as usize,
        empty,
    }
}

fn voucher_cells(
    row: &VoucherRow,
    sale: Option<SaleInRedis>,
    clock: Timestamp,
    (redis_away, mysql_away): (bool, bool),
) -> Vec<Cell> {
    let stock = sale.and_then(|sale| sale.stock);
    let redis = or_unknown(stock.map(count));
    let to_deduct = or_unknown(stock.map(|stock| count(units_to_deduct(row.stock, stock))));
    let state = SaleState::of(row, sale, clock.as_millisecond());
    let severity = if state == SaleState::On { Severity::Plain } else { Severity::Warn };
    vec![
        Cell::plain(row.voucher.to_string()),
        Cell::plain(redis).old_if(redis_away),
        Cell::plain(count(row.stock)).old_if(mysql_away),
        Cell::plain(to_deduct).old_if(redis_away || mysql_away),
        Cell::new(state.words(), severity).old_if(redis_away),
    ]
}

/// The text about set-aside entries: their number, and their most frequent causes.
fn waiting(set_aside: &SetAsideNote) -> String {
    if set_aside.entries == 0 {
        return String::new();
    }
    let named = set_aside.causes.iter().map(|cause| match cause.key {
        0 => format!("{} {}", count(cause.entries as u64), printable(&cause.kind)),
        key => format!("{} {} {key}", count(cause.entries as u64), printable(&cause.kind)),
    });
    format!("{} set aside: {}", count(set_aside.entries as u64), named.collect::<Vec<_>>().join(", "))
}

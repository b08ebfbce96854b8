//! The first page of a system with partitions: the totals, and a row for each partition.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tidegate_compare::text::printable;
use tidegate_operations::status::StreamView;

use super::{
    alerts::alerts,
    format::{UNKNOWN, age, count, or_unknown, rate, time_of_day},
    grid::{Cell, Grid, Kind, Severity},
    observations::Observations,
    view::{AGE, COUNT, RATE, TopView, age_tone, dead_tone, reads_this, store_state},
};

/// Creates the first page of the live view, which shows all partitions with their last readings.
pub fn overview(partitions: &[(String, Observations)], now: Instant, clock: Timestamp) -> TopView {
    let rows = partitions.iter().map(|(tag, own)| {
        let is_old = own.redis.outage().is_some();
        let name = Cell::plain(format!("{{{}}}", printable(tag)));
        let mut row: Vec<Cell> = numbers(&[own]).into_iter().map(|cell| cell.old_if(is_old)).collect();
        row.insert(0, name);
        row.extend([store_state("", &own.redis), store_state("", &own.mysql)].map(without_space));
        row
    });
    let all: Vec<&Observations> = partitions.iter().map(|(_, own)| own).collect();
    let mut sum = numbers(&all);
    sum.insert(0, Cell::plain("all together"));
    let columns = vec![
        ("stream", Kind::Name),
        ("unread", COUNT),
        ("oldest", AGE),
        ("pending", COUNT),
        ("oldest", AGE),
        ("dead", Kind::Number(5)),
        ("settled/s", RATE),
    ];
    let with_stores = [columns.clone(), vec![("Redis", Kind::Word), ("MySQL", Kind::Word)]].concat();
    let of_partition = |(tag, own): &(String, Observations)| {
        let worker = own.worker.current().filter(|page| reads_this(own, page));
        let alerts = alerts(own, worker, now, clock).into_iter();
        alerts
            .map(|alert| Cell::new(format!("{{{}}} {}", printable(tag), alert.text), alert.severity))
            .collect::<Vec<_>>()
    };
    let mut alerts: Vec<Cell> = partitions.iter().flat_map(of_partition).collect();
    alerts.sort_by_key(|alert| alert.severity != Severity::Bad);
    TopView {
        subject: format!("tidegate top  {} partitions", partitions.len()),
        state: vec![Cell::plain(time_of_day(clock, Duration::ZERO))],
        alerts,
        stream: Grid { columns, rows: vec![sum], has_more: false, empty: "" },
        consumers: Grid {
            columns: with_stores
                .into_iter()
                .map(|(title, kind)| (if title == "stream" { "partition" } else { title }, kind))
                .collect(),
            rows: rows.collect(),
            has_more: false,
            empty: "",
        },
        vouchers: Grid::nothing(),
    }
}

/// The cells of a row: unread and pending entries, each with the oldest age, dead letters, and settled entries per
/// second. A cell has the sum or the highest age of the known values.
fn numbers(partitions: &[&Observations]) -> Vec<Cell> {
    let streams: Vec<&StreamView> =
        partitions.iter().filter_map(|own| Some(&own.redis.last()?.stream)).collect();
    let is_known = !streams.is_empty();
    let sum = |of: fn(&StreamView) -> u64| streams.iter().map(|stream| of(stream)).sum::<u64>();
    let number = |of: fn(&StreamView) -> u64| or_unknown(is_known.then(|| count(sum(of))));
    let oldest = |of: fn(&StreamView) -> Option<f64>| {
        let seconds = streams.iter().filter_map(|stream| of(stream)).reduce(f64::max);
        Cell::new(seconds.map(age).unwrap_or_default(), age_tone(seconds))
    };
    let settled =
        partitions.iter().filter_map(|own| own.redis.rate(|redis| redis.stream.backlog.entries_settled));
    let settled = settled.reduce(|one, other| one + other);
    let at_least = if streams.iter().any(|stream| stream.backlog.undelivered_is_at_least) { "+" } else { "" };
    let worst = streams.iter().copied().find(|stream| stream.dead_letters > 0);
    vec![
        Cell::plain(number(|stream| stream.backlog.undelivered) + at_least),
        oldest(|stream| stream.backlog.oldest_undelivered_s),
        Cell::plain(number(|stream| stream.backlog.pending)),
        oldest(|stream| stream.backlog.oldest_pending_s),
        Cell::new(number(|stream| stream.dead_letters), dead_tone(worst)),
        Cell::plain(settled.map_or_else(|| UNKNOWN.to_owned(), rate)),
    ]
}

fn without_space(cell: Cell) -> Cell {
    Cell { text: cell.text.trim().to_owned(), ..cell }
}

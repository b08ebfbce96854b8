//! Tests of the live view, drawn on a terminal in memory.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use ratatui::{Terminal, backend::TestBackend};
use tidegate_compare::reconciled::Reconciled;
use tidegate_orders::records::vouchers::VoucherRow;
use tidegate_stream::{NamedCause, SetAsideNote};

use super::{
    draw, format,
    observations::{Observations, Observed, Poll},
    view::TopView,
    worker_page::{
        OrderNumbers, ReadingPause, ReportedLane, StoreOutage, StreamKey, WorkerPage, WorkerState,
    },
};
use tidegate_operations::{
    consumers::Consumer,
    status::{BacklogView, SaleInRedis, StreamView},
    watch::{NewestLetters, Reading, RedisOverview},
};

/// The time 2026-11-20T10:00:00Z.
const CLOCK: i64 = 1_795_168_800;

/// Observations, and the time at which they are drawn.
struct Scene {
    observations: Observations,
    began: Instant,
    at_s: u64,
}

impl Scene {
    /// A scene without any reading.
    fn empty() -> Self {
        let (stream, group) = ("stream.orders".to_owned(), "g1".to_owned());
        let (redis, mysql, worker) = (Observed::default(), Observed::default(), Observed::default());
        Self {
            observations: Observations { stream, group, every: Duration::from_secs(1), redis, mysql, worker },
            began: Instant::now(),
            at_s: 0,
        }
    }

    /// A running sale: two readings, two seconds apart.
    fn busy() -> Self {
        let mut scene = Self::empty();
        for (at_s, done) in [(1, 100_000), (3, 102_469)] {
            scene.at_s = at_s;
            scene.redis(Ok(redis(done + 1_234, done)));
            scene.mysql(Ok(vec![voucher(12, 500), voucher(7, 1_000)]));
            scene.worker(Ok(page(done / 2)));
        }
        scene
    }

    fn poll<T>(&self, result: Result<T, &str>) -> Poll<T> {
        let moment = self.began + Duration::from_secs(self.at_s);
        let result = result.map(|value| Reading { at: moment, value });
        Poll { began: moment, result: result.map_err(str::to_owned) }
    }

    fn redis(&mut self, result: Result<RedisOverview, &str>) {
        self.observations.redis.record(self.poll(result));
    }

    fn mysql(&mut self, result: Result<Vec<VoucherRow>, &str>) {
        self.observations.mysql.record(self.poll(result));
    }

    fn worker(&mut self, result: Result<WorkerPage, &str>) {
        self.observations.worker.record(self.poll(result));
    }

    /// The drawn view, line by line.
    fn drawn(&self, rows: u16, columns: u16) -> Vec<String> {
        let now = self.began + Duration::from_secs(self.at_s);
        let view = TopView::new(&self.observations, now, Timestamp::from_second(CLOCK).unwrap());
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw::draw(frame, &view, draw::Paging::One)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |row| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..rows).map(|row| line(row).trim_end().to_owned()).collect()
    }

    /// The one line of the view that begins with this text.
    #[track_caller]
    fn line(&self, (rows, columns): (u16, u16), beginning: &str) -> String {
        let drawn = self.drawn(rows, columns);
        let found: Vec<_> = drawn.iter().filter(|line| line.starts_with(beginning)).collect();
        assert_eq!(found.len(), 1, "{beginning}: {drawn:#?}");
        found[0].clone()
    }
}

fn redis(added: u64, settled: u64) -> RedisOverview {
    let stream = StreamView {
        name: "stream.orders".to_owned(),
        group: "g1".to_owned(),
        kind: "stream".to_owned(),
        group_exists: true,
        length: 50_000,
        entries_added: Some(added),
        backlog: BacklogView {
            undelivered: 1_034,
            undelivered_is_at_least: false,
            oldest_undelivered_s: Some(0.44),
            pending: 200,
            oldest_pending_s: Some(75.0),
            entries_settled: Some(settled),
        },
        dead_letters: 3,
        set_aside: SetAsideNote {
            entries: 120,
            kinds: [("voucher_row".to_owned(), 120)].into(),
            causes: vec![NamedCause { kind: "voucher_row".to_owned(), key: 7, entries: 120, lasting_s: 3.0 }],
        },
        set_aside_error: None,
        wrong_keys: Vec::new(),
        consumers: vec![
            consumer("shop-1-0", 100, true),
            consumer("shop-1-1", 0, true),
            consumer("shop-2-0", 100, false),
            consumer("shop-3-0", 0, false),
        ],
    };
    let reasons = [("bad_value".to_owned(), 1), ("unknown_voucher".to_owned(), 2)].into();
    let sales = [(7.try_into().unwrap(), SaleInRedis { stock: Some(900), is_paused: Some(true) })].into();
    let letters = NewestLetters { newest_s: Some(12.04), reasons };
    RedisOverview { stream, pause: None, letters, reconciled: None, sales, has_worker: Some(true) }
}

fn consumer(name: &str, pending: u64, alive: bool) -> Consumer {
    Consumer { name: name.to_owned(), pending, idle_s: 0.1, alive, process: None }
}

fn voucher(id: i64, stock: i64) -> VoucherRow {
    let voucher = id.try_into().unwrap();
    VoucherRow {
        voucher,
        stock,
        initial_stock: None,
        begin_ms: None,
        end_ms: None,
        pay_within_s: None,
        delisted_ms: None,
    }
}

fn page(created: u64) -> WorkerPage {
    let lane = |at, activity: &str, in_progress, is_stuck| ReportedLane {
        consumer: format!("shop-1-{at}"),
        activity: activity.to_owned(),
        lasting_s: 0.25,
        in_progress,
        is_stuck,
    };
    let worker = WorkerState {
        name: "shop-1".to_owned(),
        phase: "running".to_owned(),
        breaker: None,
        paused: Vec::new(),
        lanes: vec![lane(0, "handling", 100, false), lane(1, "reading", 0, false)],
        orders: OrderNumbers { created },
    };
    let names = StreamKey { name: "stream.orders".to_owned(), group: "g1".to_owned() };
    WorkerPage { worker, stream: Some(names) }
}

#[test]
fn twenty_rows_of_eighty_columns_show_everything() {
    assert_eq!(
        Scene::busy().drawn(20, 80),
        [
            "tidegate top  stream.orders / g1                Redis ok  MySQL ok  10:00:00 UTC",
            "100 entries pending with 1 consumer whose process is gone",
            "stream          entries  oldest    per s",
            "added           103,703            1,235  50,000 in the stream",
            "undelivered       1,034   0.4 s",
            "pending             200   1 min           120 set aside: 120 voucher_row 7",
            "settled         102,469            1,235  worker shop-1 writes 617 orders per s",
            "dead letters          3                   last 12 s ago: 2 unknown_voucher, 1 ~",
            "consumer  pending    idle  process  lane         for  in progress",
            "shop-2-0      100   0.1 s  gone",
            "shop-1-0      100   0.1 s  alive    handling   0.2 s          100",
            "shop-1-1        0   0.1 s  alive    reading    0.2 s            0",
            "shop-3-0        0   0.1 s  gone",
            "stock of voucher   in Redis   in MySQL  to deduct  sale",
            "12                        -        500          -  -",
            "7                       900      1,000        100  paused",
            "",
            "",
            "",
            "q quits",
        ]
    );
}

#[test]
fn what_the_last_comparison_found_is_said_until_the_next_one() {
    let mut scene = Scene::busy();
    let counts = [("lost_order".to_owned(), 2)].into();
    let found = Reconciled { counts, ..Reconciled::default() };
    scene.redis(Ok(RedisOverview { reconciled: Some(found), ..redis(103_703, 102_469) }));
    let line = scene.line((40, 120), "Redis and MySQL differ (lost_order: 2)");
    assert!(line.contains("for details, type tidegate reconcile"), "{line}");
    scene.redis(Ok(redis(103_703, 102_469)));
    assert!(!scene.drawn(40, 120).join("\n").contains("differ"));
}

#[test]
fn ten_rows_of_forty_columns_show_the_numbers_of_the_stream_whole() {
    assert_eq!(
        Scene::busy().drawn(10, 40),
        [
            "tidega  Redis ok  MySQL ok  10:00:00 UTC",
            "100 entries pending with 1 consumer",
            "whose process is gone",
            "stream          entries  oldest    per s",
            "added           103,703            1,235",
            "undelivered       1,034   0.4 s",
            "pending             200   1 min",
            "settled         102,469            1,235",
            "dead letters          3",
            "q quits",
        ]
    );
}

#[test]
fn a_large_terminal_sets_the_sections_apart_and_cuts_nothing() {
    let drawn = Scene::busy().drawn(60, 200);
    assert!(
        drawn.iter().any(|line| line.ends_with("last 12 s ago: 2 unknown_voucher, 1 bad_value")),
        "{drawn:#?}"
    );
    assert_eq!(drawn.iter().filter(|line| line.is_empty()).count(), 60 - 1 - 1 - 6 - 5 - 3 - 1, "{drawn:#?}");
    assert!(drawn[2].is_empty() && drawn[9].is_empty() && drawn[15].is_empty(), "{drawn:#?}");
}

#[test]
fn no_size_is_too_small_or_too_odd() {
    let mut outage = Scene::busy();
    outage.redis(Err("Failed to reach Redis: Connection refused"));
    outage.mysql(Err("gone"));
    for scene in [Scene::empty(), Scene::busy(), outage] {
        for rows in (1..12).chain([20, 24, 25, 100]) {
            for columns in (1..45).chain([80, 300]) {
                scene.drawn(rows, columns);
            }
        }
    }
}

#[test]
fn what_is_not_known_is_a_dash() {
    let scene = Scene::empty();
    assert_eq!(scene.line((20, 80), "added"), "added                 -                -");
    assert_eq!(scene.line((20, 80), "undelivered"), "undelivered           -");
    assert!(scene.drawn(20, 80)[0].contains("Redis ?  MySQL ?"));
    let mut scene = Scene::empty();
    scene.redis(Ok(redis(200, 100)));
    assert!(scene.line((20, 80), "settled").ends_with("100                -"), "one look tells no rate");
}

#[test]
fn a_rate_is_never_made_up() {
    let mut scene = Scene::busy();
    scene.at_s = 5;
    scene.redis(Ok(redis(10, 5)));
    assert!(scene.line((20, 70), "added").contains("10                -  50,000"), "the counter fell");
    scene.at_s = 6;
    scene.redis(Ok(redis(10, 5)));
    assert!(scene.line((20, 70), "settled").contains("0.0"), "nothing happened");
    scene.at_s = 7;
    let mut silent = redis(20, 5);
    silent.stream.entries_added = None;
    scene.redis(Ok(silent));
    assert!(scene.line((20, 70), "added").contains("-                -"), "an old Redis counts nothing");
}

#[test]
fn an_outage_is_named_with_its_beginning_and_what_is_seen_is_from_before_it() {
    let mut scene = Scene::busy();
    for at_s in [5, 8] {
        scene.at_s = at_s;
        scene.redis(Err("Connection refused"));
    }
    scene.at_s = 17;
    let drawn = scene.drawn(20, 80);
    assert!(drawn[0].contains("Redis away  MySQL ok"), "{drawn:#?}");
    assert_eq!(drawn[1], "Redis is away since 09:59:48 UTC (12 s): Connection refused");
    assert!(scene.line((20, 80), "added").contains("103,703                -"), "no rate: {drawn:#?}");
    assert!(scene.line((20, 80), "shop-1-0").contains("handling"), "the worker still tells: {drawn:#?}");

    scene.redis(Ok(redis(200_000, 200_000)));
    let drawn = scene.drawn(20, 80);
    assert!(drawn[0].contains("Redis ok") && !drawn.concat().contains("is away"), "{drawn:#?}");
    assert!(
        scene.line((20, 80), "added").contains("200,000                -"),
        "no rate across it: {drawn:#?}"
    );
}

#[test]
fn a_long_error_is_wrapped_and_takes_a_quarter_of_the_rows_at_most() {
    let mut scene = Scene::busy();
    scene.mysql(Err(&"a long story ".repeat(60)));
    let drawn = scene.drawn(20, 80);
    assert!(drawn[1].starts_with("MySQL is away since 10:00:00 UTC (0 s): a long story"), "{drawn:#?}");
    assert!(drawn[6].starts_with("stream"), "{drawn:#?}");
}

#[test]
fn a_worker_in_trouble_is_told_of_and_another_stream_s_is_not() {
    let mut scene = Scene::busy();
    let mut ill = page(60_000);
    ill.worker.breaker =
        Some(StoreOutage { store: "MySQL".to_owned(), error: "gone away".to_owned(), lasting_s: 4.0 });
    ill.worker.lanes[1].is_stuck = true;
    ill.worker.paused = [("fleet", 9.0), ("signal", 5.0)]
        .map(|(reason, lasting_s)| ReadingPause { reason: reason.to_owned(), lasting_s })
        .into();
    ill.worker.phase = "stopping".to_owned();
    scene.worker(Ok(ill));
    let drawn = scene.drawn(24, 80);
    assert_eq!(drawn[1], "worker shop-1 has read nothing for 4.0 s: MySQL: gone away");
    assert_eq!(drawn[2], "lane shop-1-1 is stuck: reading for 0.2 s");
    assert_eq!(drawn[3], "worker shop-1 has been paused for 5.0 s: signal");
    assert_eq!(drawn[4], "worker shop-1 is stopping");

    let mut other = page(60_000);
    other.stream = Some(StreamKey { name: "other".to_owned(), group: "g1".to_owned() });
    scene.worker(Ok(other));
    let drawn = scene.drawn(24, 80);
    assert!(!drawn.concat().contains("handling") && !drawn.concat().contains("in progress"), "{drawn:#?}");
    scene.worker(Ok(page(60_000)));
    scene.at_s += 5;
    assert!(scene.drawn(24, 80).contains(&"the status of worker shop-1 is 5 s old".to_owned()));
    scene.worker(Err("no worker answers"));
    assert!(scene.drawn(24, 80).concat().contains("worker shop-1 is away since 10:00:00 UTC"));
}

#[test]
fn what_does_not_fit_is_counted_and_what_is_wrong_comes_first() {
    let mut scene = Scene::empty();
    let mut many = redis(1, 1);
    many.stream.consumers = (0..30).map(|at| consumer(&format!("w-{at:02}"), 1, at != 29)).collect();
    scene.redis(Ok(many));
    scene.mysql(Ok((1..=30).rev().map(|id| voucher(id, 1)).collect()));
    let drawn = scene.drawn(20, 80);
    assert!(drawn[9].starts_with("w-29") && drawn[9].contains("gone"), "{drawn:#?}");
    assert_eq!(drawn[13], "and 26 more");
    assert_eq!(drawn[18], "and 27 or more");
    let drawn = scene.drawn(80, 80);
    assert!(drawn.contains(&"and more".to_owned()), "30 are asked for: {drawn:#?}");
}

#[test]
fn what_others_wrote_is_no_command_for_the_terminal_and_long_names_keep_their_end() {
    let mut scene = Scene::empty();
    let mut foreign = redis(1, 1);
    foreign.stream.consumers =
        vec![consumer("\u{1b}[2Jevil", 0, true), consumer(&format!("{}-7", "x".repeat(200)), 0, true)];
    foreign.letters.reasons = [("\u{7}beep".to_owned(), 1)].into();
    scene.redis(Ok(foreign));
    let drawn = scene.drawn(20, 80);
    assert!(drawn.iter().any(|line| line.starts_with(" [2Jevil ")), "{drawn:#?}");
    assert!(drawn.iter().any(|line| line.contains("1  beep")), "{drawn:#?}");
    assert!(drawn.iter().any(|line| line.starts_with("~xx") && line.contains("xx-7  ")), "{drawn:#?}");
    assert!(drawn.concat().is_ascii(), "{drawn:#?}");
}

#[test]
fn a_note_that_is_too_long_is_cut_between_words() {
    let scene = Scene::busy();
    assert!(scene.line((20, 79), "settled").ends_with("  worker shop-1 writes 617 orders per s"));
    assert!(scene.line((20, 78), "settled").ends_with("  worker shop-1 writes 617 orders ~"));
    assert!(scene.line((20, 64), "settled").ends_with("  worker shop-1 writes ~"), "no 61 orders");
}

#[test]
fn numbers_are_short_and_true() {
    let counts = [0_i64, 999, 1_000, 999_999_999, 1_000_000_000, 12_345_678_901, -1_234].map(format::count);
    assert_eq!(counts, ["0", "999", "1,000", "999,999,999", "1.00G", "12.35G", "-1,234"]);
    assert_eq!(
        [0.0, 9.94, 9.96, 1_234.6, 2_500_000.0].map(format::rate),
        ["0.0", "9.9", "10", "1,235", "2.50M"]
    );
    let ages = [0.04, 59.94, 59.96, 3_599.0, 3_600.0, 180_000.0].map(format::age);
    assert_eq!(ages, ["0.0 s", "59.9 s", "59.9 s", "59 min", "1.0 h", "2 d"]);
}

#[test]
fn a_narrow_terminal_with_many_dead_consumers_shows_living_ones_too() {
    let mut scene = Scene::busy();
    let mut many = redis(103_703, 102_469);
    many.stream.consumers = (0..12).map(|at| consumer(&format!("dead-{at:02}"), 1, false)).collect();
    many.stream.consumers.extend((0..3).map(|at| consumer(&format!("shop-1-{at}"), 0, true)));
    scene.redis(Ok(many));
    let drawn = scene.drawn(20, 70);
    for beginning in ["dead-00", "shop-1-0"] {
        assert!(drawn.iter().any(|line| line.starts_with(beginning)), "{beginning}: {drawn:#?}");
    }
}

#[test]
fn a_dead_fleet_is_named_with_what_needs_it_and_what_to_type() {
    let mut scene = Scene::busy();
    let dead = || RedisOverview { has_worker: Some(false), ..redis(103_703, 102_469) };
    scene.redis(Ok(dead()));
    let line = scene.line((40, 200), "no worker is alive");
    assert_eq!(
        line,
        "no worker is alive, and 1034 entries are undelivered, 200 entries are pending: start one with tidegate worker"
    );
    let mut idle = dead();
    (idle.stream.backlog.undelivered, idle.stream.backlog.pending) = (0, 0);
    scene.redis(Ok(idle));
    let line = scene.line((40, 200), "no worker is alive");
    assert!(line.contains("no sale is open"), "voucher 7 is paused, and 12 has no stock: {line}");
    let mut unknown = dead();
    unknown.has_worker = None;
    scene.redis(Ok(unknown));
    assert!(!scene.drawn(40, 200).concat().contains("no worker is alive"), "what cannot be seen is not said");
}

//! Orders and whatever happens to them, at random, beside workers that are killed: each order ends where its own events lead,
//! played one after the other in the order of the stream, and both stocks have what was given back.

use std::collections::BTreeMap;

use fred::interfaces::StreamsInterface;
use futures_util::future::join_all;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::Row as _;
use tidegate_orders::{
    Event, EventKind,
    event::{History, Row, decide},
};

use crate::site::{STREAM, Site, Worker, until};

/// How many random runs there are, side by side, unless `TIDEGATE_MODEL_RUNS` says otherwise; `just model` sets it.
const RUNS: u64 = 100;
/// Workers that are killed meanwhile.
const KILLS: usize = 5;
const STEPS: usize = 120;
const STOCK: i64 = 1_000;
/// Orders of a run have ids from a multiple of this on.
const IDS: i64 = 1_000;

/// What should be there.
struct Model {
    seed: u64,
    voucher: i64,
    first: i64,
    orders: BTreeMap<i64, History>,
    admitted_units: i64,
}

impl Model {
    fn released(&self) -> i64 {
        self.orders.values().flat_map(|history| &history.events).map(|past| past.released).sum()
    }
}

fn event(rng: &mut StdRng, order: i64, voucher: i64) -> Event {
    let kind = EventKind::ALL[rng.random_range(0..EventKind::ALL.len())];
    let mut text = |chance: u32| {
        let is_there = rng.random_range(0..100) < chance;
        is_there.then(|| ["a", "b"][rng.random_range(0..2)].parse().expect("a text"))
    };
    Event {
        kind,
        order: order.try_into().expect("an order id"),
        user: order.try_into().expect("a user id"),
        voucher: voucher.try_into().expect("a voucher id"),
        reference: text(70),
        payment: text(40).filter(|_| kind.is_refund()),
        reason: None,
    }
}

/// Appends an event, once or twice, and plays it.
async fn append(site: &Site, rng: &mut StdRng, model: &mut Model, event: &Event) {
    for _ in 0..1 + usize::from(rng.random_range(0..8) == 0) {
        let fields = tidegate_orders::wire::event_fields(event);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        let entry = site.add(&fields).await.parse().expect("an entry id");
        decide(event, entry, model.orders.entry(event.order.get()).or_default());
    }
}

/// One run on a voucher of its own, by one seed.
async fn run(site: &Site, round: i64, seed: u64) -> Model {
    let mut rng = StdRng::seed_from_u64(seed);
    let (voucher, first) = (round + 1, (round + 1) * IDS);
    site.load(voucher, STOCK).await;
    let mut model = Model { seed, voucher, first, orders: BTreeMap::new(), admitted_units: 0 };
    let mut next = first;
    for _ in 0..STEPS {
        match rng.random_range(0..100) {
            0..30 => {
                let quantity = rng.random_range(1..=3);
                site.admit(next, next, voucher, quantity).await;
                let row = Row { user: next, voucher, quantity, status: 1, has_slot: true };
                model.orders.insert(next, History { row: Some(row), ..History::default() });
                model.admitted_units += quantity;
                next += 1;
            }
            // Of an order that nobody has placed: money for nothing, or a cancellation that comes first and stays alone.
            30..33 => {
                let event = event(&mut rng, first + IDS - 1, voucher);
                append(site, &mut rng, &mut model, &event).await;
            }
            _ if next > first => {
                let order = rng.random_range(first..next);
                let event = event(&mut rng, order, voucher);
                append(site, &mut rng, &mut model, &event).await;
            }
            _ => {}
        }
    }
    model
}

/// Kills workers while orders and events come and are worked off.
async fn kill_some(site: &Site, workers: &mut Vec<Worker>) {
    for kill in 0..KILLS {
        let (before, length) =
            (written(site).await, site.client.xlen::<i64, _>(STREAM).await.unwrap_or_default());
        // Somewhere in the middle of its work, or at the end of all.
        until("there is more to do, or nothing any more", || async {
            written(site).await > before + length / 20 || site.open_entries().await == Some(0)
        })
        .await;
        workers.swap_remove(0).kill9();
        workers.push(worker(site, kill + 2));
    }
}

async fn written(site: &Site) -> i64 {
    let sql = "SELECT (SELECT COUNT(*) FROM tb_voucher_order) + (SELECT COUNT(*) FROM tidegate_event)";
    sqlx::query_scalar(sql).fetch_one(&site.pool).await.expect("MySQL answers")
}

fn worker(site: &Site, at: usize) -> Worker {
    // The name of a killed worker is waited for: each has its own.
    let plan = site.worker(&format!("w{at}")).set("WORKER_LANES", 3).set("WORKER_BATCH", 50);
    plan.set("WORKER_CLAIM_IDLE_MS", 600)
        .set("WORKER_CLAIM_EVERY_MS", 100)
        .set("WORKER_LOCK_LEASE_MS", 500)
        .start()
}

async fn check(site: &Site, model: &Model) {
    let Model { seed, voucher, first, .. } = *model;
    let seed = format!("TIDEGATE_TEST_SEED={seed}");
    let rows = "SELECT CAST(id AS SIGNED), CAST(status AS SIGNED), CAST(slot IS NOT NULL AS SIGNED) \
                FROM tb_voucher_order WHERE id >= ? AND id < ? ORDER BY id";
    let rows =
        sqlx::query(rows).bind(first).bind(first + IDS).fetch_all(&site.pool).await.expect("MySQL answers");
    let rows: Vec<(i64, i64, bool)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get::<i64, _>(2) == 1)).collect();
    let expected = model.orders.iter().filter_map(|(id, history)| Some((*id, history.row?)));
    let expected: Vec<(i64, i64, bool)> = expected.map(|(id, row)| (id, row.status, row.has_slot)).collect();
    assert_eq!(rows, expected, "{seed}: status and slot");

    let events = "SELECT order_id, CONCAT_WS(' ', step, event, outcome, released, entry_id) FROM tidegate_event \
                  WHERE order_id >= ? AND order_id < ? ORDER BY order_id, step";
    let events =
        sqlx::query(events).bind(first).bind(first + IDS).fetch_all(&site.pool).await.expect("MySQL answers");
    let events: Vec<(i64, String)> = events.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = model.orders.iter().flat_map(|(id, history)| {
        history.events.iter().map(move |past| {
            let kind = past.kind.map_or("", EventKind::word);
            let (number, outcome, released, entry) =
                (past.number, past.outcome.word(), past.released, past.entry);
            (*id, format!("{number} {kind} {outcome} {released} {entry}"))
        })
    });
    assert_eq!(events, expected.collect::<Vec<_>>(), "{seed}: what was recorded, and in which order");

    let left = STOCK - model.admitted_units + model.released();
    assert_eq!(
        (site.mysql_stock(voucher).await, site.redis_stock(voucher).await),
        (left, Some(left)),
        "stocks"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_orders_each_ends_where_its_own_events_lead() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (runs, given) = (number("TIDEGATE_MODEL_RUNS").unwrap_or(RUNS), number("TIDEGATE_TEST_SEED"));
    let site = Site::open().await;
    let mut workers: Vec<Worker> = (0..2).map(|at| worker(&site, at)).collect();
    for worker in &workers {
        worker.says("worker started").await;
    }
    let rounds = 0..i64::try_from(given.map_or(runs, |_| 1)).expect("a small number");
    let all = rounds.map(|round| run(&site, round, given.unwrap_or_else(rand::random)));
    let (models, ()) = tokio::join!(join_all(all), kill_some(&site, &mut workers));
    site.settled().await;
    for model in &models {
        check(&site, model).await;
    }
    assert_eq!(site.dead().await, [], "nothing is buried");
    assert_eq!(site.audit_failures().await, Vec::<String>::new());
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

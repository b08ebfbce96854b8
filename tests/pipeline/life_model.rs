//! Tests of random orders and events in two fleets, while workers are killed and operators work. Each order must end as
//! its own entries lead, played one after the other in the sequence of the stream. Both stocks must have the released
//! units.

mod accidents;
pub mod fleet;
pub mod sale;

use std::{
    collections::{BTreeMap, HashMap},
    slice,
    sync::atomic::Ordering::Relaxed,
};

use futures_util::future::join_all;
use rand::{SeedableRng, rngs::StdRng};
use sqlx::Row as _;
use tidegate_lab::Seeds;
use tidegate_orders::{
    EventKind,
    event::{History, Row, decide},
    wire::{FieldNames, Message},
};
use tidegate_stream::{Entry, EntryId};

use crate::fixture::{DEADLINE, Fixture, Worker, invariants::none_is, until_within};
use accidents::Open;
use fleet::Fleet;
use sale::Sale;

/// The number of parallel sales, which is also the usual total; `just model` runs several such parts.
const RUNS: u64 = 200;
/// The orders of a voucher have ids from a multiple of this number.
pub const IDS: i64 = 1_000;

/// The states of a voucher's orders if each entry of the stream is applied after the one before.
#[derive(Default)]
pub struct Played {
    orders: BTreeMap<i64, History>,
    /// The units of orders that were written.
    units: i64,
}

impl Played {
    fn released(&self) -> i64 {
        self.orders.values().flat_map(|history| &history.events).map(|past| past.released).sum()
    }
}

/// Plays the entries by voucher. `written` are the entries that wrote the rows of orders. If an event comes before its
/// order, and both are in progress at the same time, either may be applied first.
pub fn play(entries: &[Entry], written: &HashMap<i64, String>) -> BTreeMap<i64, Played> {
    let fields = FieldNames::default();
    let decoded = entries.iter().map(|entry| (entry.id, fields.decode_message(entry)));
    let decoded: Vec<(EntryId, Message)> =
        decoded.map(|(id, message)| (id, message.expect("nothing else was appended"))).collect();
    let mut played: BTreeMap<i64, Played> = BTreeMap::new();
    for (id, message) in &decoded {
        if let Message::Order(order) = message
            && written.get(&order.id.get()) == Some(&id.to_string())
        {
            let (user, voucher, quantity) = (order.user.get(), order.voucher.get(), order.quantity.get());
            let sale = played.entry(voucher).or_default();
            let row = Some(Row { user, voucher, quantity, status: 1, has_slot: true });
            sale.orders.insert(order.id.get(), History { row, ..History::default() });
            sale.units += quantity;
        }
    }
    for (id, message) in &decoded {
        match message {
            Message::Event(event) => {
                let sale = played.entry(event.voucher.get()).or_default();
                decide(event, *id, sale.orders.entry(event.order.get()).or_default());
            }
            Message::Order(order) => {
                let orders = &played.entry(order.voucher.get()).or_default().orders;
                let is_there = orders.get(&order.id.get()).is_some_and(|history| history.row.is_some());
                assert!(is_there, "order {} is not written, and was not cancelled before", order.id);
            }
        }
    }
    played
}

pub async fn check(fleet: &Fleet<'_>, sale: &Sale, played: &Played) {
    let seed = format!("seed {}", sale.seed);
    let (first, end) = (sale.voucher * IDS, (sale.voucher + 1) * IDS);
    let rows = "SELECT CAST(id AS SIGNED), CAST(status AS SIGNED), CAST(slot IS NOT NULL AS SIGNED) \
                FROM tb_voucher_order WHERE id >= ? AND id < ? ORDER BY id";
    let rows = sqlx::query(rows).bind(first).bind(end).fetch_all(&fleet.pool).await.expect("MySQL answers");
    let rows: Vec<(i64, i64, bool)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get::<i64, _>(2) == 1)).collect();
    let expected = played.orders.iter().filter_map(|(id, history)| Some((*id, history.row?)));
    let expected: Vec<(i64, i64, bool)> = expected.map(|(id, row)| (id, row.status, row.has_slot)).collect();
    assert_eq!(rows, expected, "{seed}: status and slot");

    let events = "SELECT order_id, CONCAT_WS(' ', step, event, outcome, released, entry_id) FROM tidegate_event \
                  WHERE order_id >= ? AND order_id < ? ORDER BY order_id, step";
    let events =
        sqlx::query(events).bind(first).bind(end).fetch_all(&fleet.pool).await.expect("MySQL answers");
    let mut recorded: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for row in &events {
        recorded.entry(row.get(0)).or_default().push(row.get(1));
    }
    for (id, history) in &played.orders {
        let expected = history.events.iter().map(|past| {
            let kind = past.kind.map_or("", EventKind::word);
            let (number, outcome, released, entry) =
                (past.number, past.outcome.word(), past.released, past.entry);
            format!("{number} {kind} {outcome} {released} {entry}")
        });
        let recorded = recorded.remove(id).unwrap_or_default();
        assert_eq!(recorded, expected.collect::<Vec<_>>(), "{seed}: what was recorded of order {id}");
    }
    assert_eq!(recorded, BTreeMap::new(), "{seed}: events that nobody appended");

    let (loaded, in_mysql, in_redis) = fleet.stocks(sale.voucher).await;
    let left = loaded - played.units + played.released();
    assert_eq!((in_mysql, in_redis), (left, Some(left)), "{seed}: stocks");
    assert!(fleet.has_complete_journal(sale.voucher).await, "{seed}");
}

/// Runs the sales of a fleet with these seeds, and the accidents meanwhile.
async fn live(fleet: &Fleet<'_>, seeds: &[u64]) {
    let mut workers: Vec<Worker> = (0..2).map(|at| fleet.worker(at)).collect();
    for worker in &workers {
        worker.says("worker started").await;
    }
    let open = Open::default();
    open.0.store(i64::try_from(seeds.len()).expect("a small number"), Relaxed);
    let all = seeds.iter().zip(1..).map(async |(seed, voucher)| {
        let mut sale = Sale::open(fleet, (voucher, IDS), *seed).await;
        sale.run(fleet, &mut StdRng::seed_from_u64(*seed)).await;
        open.0.fetch_sub(1, Relaxed);
        sale
    });
    let mut rng = StdRng::seed_from_u64(seeds[0]);
    let (sales, ()) = tokio::join!(join_all(all), accidents::happen(fleet, &mut workers, &open, &mut rng));
    // Entries that were in progress at two worker crashes are handled one by one.
    let is_done = || async { fleet.none_is_due().await && fleet.is_settled().await };
    until_within(4 * DEADLINE, "all is done", is_done).await;
    let played = play(&fleet.entries().await, &fleet.written().await);
    for sale in &sales {
        check(fleet, sale, played.get(&sale.voucher).unwrap_or(&Played::default())).await;
    }
    assert_eq!(fleet.dead_letters().await, 0, "nothing is buried");
    let vouchers: Vec<i64> = sales.iter().map(|sale| sale.voucher).collect();
    none_is(&fleet.stores().mismatches(&vouchers, &BTreeMap::new()).await);
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

/// Runs two fleets on one Redis, each with half of these seeds. A single seed runs in both, because it may have failed
/// in either.
async fn live_in_two_fleets(part: Seeds) {
    let seeds: Vec<u64> = part.all().collect();
    let (of_first, of_second) = match &seeds[..] {
        [single] => (slice::from_ref(single), slice::from_ref(single)),
        all => all.split_at(all.len() / 2),
    };
    let fixture = Fixture::bare().await;
    let (first, second) = (Fleet::open(&fixture, "").await, Fleet::open(&fixture, "second:").await);
    tokio::join!(live(&first, of_first), live(&second, of_second));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_orders_each_ends_where_its_own_events_lead() {
    Seeds::chosen(RUNS).run((RUNS, 1), live_in_two_fleets).await;
}

//! Tests of the cost of a batch in MySQL: it grows neither with the rows of its voucher nor with earlier refusals. The
//! server counts statements and rows at two sizes, on tables that were opened while they were empty.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, ensure};
use sqlx::{AssertSqlSafe, Executor, MySqlPool, mysql::MySqlPoolOptions, prelude::*};
use tidegate_lab::MysqlServer;
use tidegate_orders::{
    Event, EventKind, Incoming, Ledger,
    event::EventOutcome,
    ledger::{EventVerdict, IncomingEvent},
    schema,
};
use tidegate_stream::EntryId;

use crate::fixture::order;

const BATCH: i64 = 200;
const VOUCHER: i64 = 7;
/// A voucher without a row.
const UNKNOWN: i64 = 99;
/// Rows of the voucher before the batches that are measured.
const SIZES: [i64; 2] = [2_000, 20_000];
/// After this many batches of a kind, their cost no longer changes.
const SETTLED: i64 = 9;
/// The first order of the measured batches. All orders below it have rows by then.
const FIRST: i64 = 1_000_000;

/// The statements and rows that the server counted for a batch.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    statements: i64,
    rows_read: i64,
}

struct Database {
    pool: MySqlPool,
    ledger: Ledger,
    _server: Arc<MysqlServer>,
}

impl Database {
    /// Opens a database with one voucher. Its only session opens the tables while they are empty.
    async fn open(server: &Arc<MysqlServer>, stock: i64) -> Result<Self> {
        let options = MySqlPoolOptions::new().max_connections(1).after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
                connection.execute("SET SESSION innodb_lock_wait_timeout = 1").await?;
                Ok(())
            })
        });
        let pool = options.connect(&server.url()).await?;
        let ledger =
            Ledger::new(pool.clone(), Duration::from_secs(20)).committing_in_packet(Arc::new(true.into()));
        let database = Self { pool, ledger, _server: Arc::clone(server) };
        database.run("DROP VIEW IF EXISTS tidegate_voucher_units").await?;
        database
            .run(
                "DROP TABLE IF EXISTS tb_voucher_order, tb_seckill_voucher, tidegate_refusal, tidegate_event",
            )
            .await?;
        schema::migrate(&database.pool).await?;
        database
            .run(&format!("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES ({VOUCHER}, {stock})"))
            .await?;
        database.ledger.probe().await?;
        Ok(database)
    }

    async fn run(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await?;
        Ok(())
    }

    /// Rows of orders 1, 2, ... of users 1, 2, ...
    async fn fill(&self, rows: i64) -> Result<()> {
        for first in (1..=rows).step_by(1_000) {
            let rows: Vec<String> =
                (first..first + 1_000).map(|id| format!("({id},{id},{VOUCHER},'1-{id}')")).collect();
            let insert = "INSERT INTO tb_voucher_order (id, user_id, voucher_id, entry_id) VALUES";
            self.run(&format!("{insert} {}", rows.join(","))).await?;
        }
        Ok(())
    }

    async fn counters(&self) -> Result<BTreeMap<String, i64>> {
        let sql =
            "SHOW SESSION STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name LIKE 'Handler\\_read%'";
        let rows = sqlx::raw_sql(sql).fetch_all(&self.pool).await?;
        let counter = |row: &sqlx::mysql::MySqlRow| {
            let (name, value): (String, String) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
            Some((name, value.parse().ok()?))
        };
        Ok(rows.iter().filter_map(counter).collect())
    }

    async fn cost_of(&self, batch: &[Incoming]) -> Result<Cost> {
        let work = async {
            self.ledger.record(batch).await?;
            Ok(())
        };
        self.cost_of_work(work).await
    }

    async fn cost_of_work(&self, work: impl Future<Output = Result<()>>) -> Result<Cost> {
        // The counters count their own reads. The first two reads show how much that is.
        let (idle, before) = (self.counters().await?, self.counters().await?);
        work.await?;
        let after = self.counters().await?;
        let sum = |begins: &str| {
            let of = after.keys().filter(|name| name.starts_with(begins));
            of.map(|name| after[name] - before[name] - (before[name] - idle[name])).sum()
        };
        Ok(Cost { statements: sum("Com_"), rows_read: sum("Handler_read") })
    }
}

/// The `nth` batch of new orders.
fn plain(nth: i64) -> Vec<Incoming> {
    let first = FIRST + nth * BATCH;
    (first..first + BATCH).map(|id| order(id, id, VOUCHER)).collect()
}

/// Runs batches of a kind until their cost no longer changes, at each size, and compares the costs.
async fn costs_the_same(
    stock: impl Fn(i64) -> i64,
    prepare: impl AsyncFn(&Database) -> Result<()>,
    batch: impl Fn(i64) -> Vec<Incoming>,
) -> Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(MysqlServer::start).await??);
    let mut costs = Vec::new();
    for size in SIZES {
        let database = Database::open(&server, stock(size)).await?;
        database.fill(size).await?;
        prepare(&database).await?;
        for nth in 0..SETTLED {
            database.ledger.record(&batch(nth)).await?;
        }
        costs.push(database.cost_of(&batch(SETTLED)).await?);
        database.pool.close().await;
    }
    ensure!(costs[0] == costs[1], "at {SIZES:?} rows: {costs:?}");
    let most = BATCH * 8 + 200;
    ensure!(costs[1].rows_read < most, "more than a few look-ups an order: {costs:?}");
    Ok(())
}

async fn nothing(_: &Database) -> Result<()> {
    Ok(())
}

fn enough(_: i64) -> i64 {
    1_000_000
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_batch_costs_the_same_at_any_size() -> Result<()> {
    costs_the_same(enough, nothing, plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_long_ago_costs_later_batches_the_same_at_any_size() -> Result<()> {
    let refuse_one = async |database: &Database| {
        database.ledger.record(&[order(900_000, 1, VOUCHER)]).await?;
        Ok(())
    };
    costs_the_same(enough, refuse_one, plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_refusals_cost_later_batches_what_one_does() -> Result<()> {
    let refuse_many = async |database: &Database| {
        for first in (1..=10).map(|nth| nth * 100) {
            let seconds: Vec<Incoming> =
                (first..first + 100).map(|user| order(900_000 + user, user, VOUCHER)).collect();
            database.ledger.record(&seconds).await?;
        }
        Ok(())
    };
    costs_the_same(enough, refuse_many, plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_all_there_already_cost_the_same_at_any_size() -> Result<()> {
    let again = |nth| (1..=BATCH).map(|id| order(nth * BATCH + id, nth * BATCH + id, VOUCHER)).collect();
    costs_the_same(enough, nothing, again).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sold_out_batch_costs_the_same_at_any_size() -> Result<()> {
    costs_the_same(|_| 0, nothing, plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_batch_that_takes_the_last_units_costs_the_same_at_any_size() -> Result<()> {
    costs_the_same(|_| BATCH * SETTLED + BATCH / 2, nothing, plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_an_unknown_voucher_cost_their_neighbours_the_same_at_any_size() -> Result<()> {
    let one_unknown = |nth| {
        let mut batch = plain(nth);
        batch[50] = order(FIRST + nth * BATCH + 50, 50, UNKNOWN);
        batch
    };
    costs_the_same(enough, nothing, one_unknown).await
}

#[tokio::test(flavor = "multi_thread")]
async fn second_orders_of_a_user_cost_the_same_at_any_size() -> Result<()> {
    let two_seconds = |nth| {
        let mut batch = plain(nth);
        batch[50] = order(FIRST + nth * BATCH + 50, 2 * nth + 1, VOUCHER);
        batch[150] = order(FIRST + nth * BATCH + 150, 2 * nth + 2, VOUCHER);
        batch
    };
    costs_the_same(enough, nothing, two_seconds).await
}

/// More payments than a list holds. The second call repeats them.
#[tokio::test(flavor = "multi_thread")]
async fn payments_cost_the_same_at_any_size() -> Result<()> {
    const PAYMENTS: i64 = 1_200;
    let server = Arc::new(tokio::task::spawn_blocking(MysqlServer::start).await??);
    let mut costs = Vec::new();
    for size in SIZES {
        let database = Database::open(&server, 1_000_000).await?;
        database.fill(size).await?;
        let paid: Vec<IncomingEvent> = (1..=PAYMENTS).map(|id| payment(&order(id, id, VOUCHER))).collect();
        let pay = async || {
            let recorded = database.ledger.record_events(&paid, &HashSet::new()).await?;
            let is_applied = |verdict: &EventVerdict| match verdict {
                EventVerdict::Recorded { event, .. } => event.outcome == EventOutcome::Applied,
                _ => false,
            };
            ensure!(recorded.iter().all(is_applied), "{recorded:?}");
            Ok(())
        };
        costs.push([database.cost_of_work(pay()).await?, database.cost_of_work(pay()).await?]);
        database.pool.close().await;
    }
    ensure!(costs[0] == costs[1], "at {SIZES:?} rows: {costs:?}");
    ensure!(costs[1][0].rows_read < PAYMENTS * 8 + 200, "more than a few look-ups a payment: {costs:?}");
    Ok(())
}

/// The payment of an order, as an event.
fn payment(Incoming { order, entry }: &Incoming) -> IncomingEvent {
    let event = Event {
        kind: EventKind::Paid,
        order: order.id,
        user: order.user,
        voucher: order.voucher,
        reference: None,
        payment: None,
        reason: None,
    };
    IncomingEvent { event, entry: EntryId { ms: entry.ms + 1, ..*entry } }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_come_twice_in_a_batch_need_no_look_at_the_database() -> Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(MysqlServer::start).await??);
    let database = Database::open(&server, 1_000_000).await?;
    database.ledger.record(&plain(0)).await?;
    let plain_cost = database.cost_of(&plain(1)).await?;
    let mut twice = plain(2);
    twice.extend(plain(2).into_iter().take(10));
    assert_eq!(database.cost_of(&twice).await?, plain_cost);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_come_twice_in_different_batches_cost_the_same_at_any_size() -> Result<()> {
    let with_old_ones = |nth| {
        let mut batch = plain(nth);
        batch.extend((1..=10).map(|at| order(nth * 10 + at, nth * 10 + at, VOUCHER)));
        batch
    };
    costs_the_same(enough, nothing, with_old_ones).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_trouble_needed_to_know_is_not_looked_up_for_ever() -> Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(MysqlServer::start).await??);
    let database = Database::open(&server, 1_000_000).await?;
    database.fill(1_000).await?;
    database.ledger.record(&plain(0)).await?;
    let plain_cost = database.cost_of(&plain(1)).await?;
    database.ledger.record(&[order(5, 5, VOUCHER), order(6, 6, UNKNOWN)]).await?;
    let careful_cost = database.cost_of(&plain(2)).await?;
    assert!(careful_cost.rows_read > plain_cost.rows_read, "{careful_cost:?} {plain_cost:?}");
    for nth in 3..12 {
        database.ledger.record(&plain(nth)).await?;
    }
    assert_eq!(database.cost_of(&plain(12)).await?, plain_cost);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_time_limits_says_nothing_of_them() -> Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(MysqlServer::start).await??);
    let database = Database::open(&server, 100_000).await?;
    let mut costs = Vec::new();
    for (nth, pay_within) in ["NULL", "0", "900"].into_iter().enumerate() {
        database.run(&format!("UPDATE tb_seckill_voucher SET pay_within = {pay_within}")).await?;
        let first = i64::try_from(nth)? * 2;
        // The first batch notices the change.
        database.ledger.record(&plain(first)).await?;
        costs.push(database.cost_of(&plain(first + 1)).await?.statements);
    }
    // Two more statements read the clock and the rows.
    assert_eq!(costs, [costs[0], costs[0], costs[0] + 2]);
    Ok(())
}

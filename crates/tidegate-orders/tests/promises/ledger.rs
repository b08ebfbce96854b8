//! Tests of the ledger, on a real MySQL or MariaDB.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, seq::SliceRandom};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, MySqlPool, Row, mysql::MySqlPoolOptions, prelude::*};
use tidegate_lab::{MysqlServer, Proxy, Seeds};
use tidegate_orders::{
    DryRun, Incoming, Ledger, Order, Refusal, Uses, Verdict,
    ledger::{Cancellation, Contention, MissingRow},
    schema,
    scripts::UserAfter,
};

use crate::fixture::order;

const OUT_OF_STOCK: Verdict = Verdict::Refused(Refusal::OutOfStock);
const HAS_ORDER: Verdict = Verdict::Refused(Refusal::UserHasOrder);
/// The verdict of an order of voucher 1 while another session holds the voucher's row.
fn held_1() -> Verdict {
    Verdict::Contended(Contention::Voucher(1.try_into().expect("a voucher id")))
}

/// The time that a batch may take in most tests.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A migrated database with vouchers 1, 2, 3, ...
struct Database {
    pool: MySqlPool,
    ledger: Ledger,
    server: MysqlServer,
}

impl Database {
    /// Opens a database in which voucher 1 has the first of these stocks, voucher 2 the second, and so on.
    async fn open(stocks: &[i64]) -> Result<Self> {
        Self::on(tokio::task::spawn_blocking(MysqlServer::shared).await??, stocks).await
    }

    /// Opens the same database on a server that no other test uses.
    async fn alone(stocks: &[i64]) -> Result<Self> {
        Self::on(tokio::task::spawn_blocking(MysqlServer::start).await??, stocks).await
    }

    async fn on(server: MysqlServer, stocks: &[i64]) -> Result<Self> {
        let pool = pool(&server, 8, 5).await?;
        schema::migrate(&pool).await?;
        for (voucher, stock) in (1..).zip(stocks) {
            let insert =
                format!("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES ({voucher}, {stock})");
            pool.execute(AssertSqlSafe(insert)).await?;
        }
        Ok(Self { ledger: ledger(&pool, TIMEOUT), pool, server })
    }

    async fn run(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.with_context(|| sql.to_owned())?;
        Ok(())
    }

    async fn number(&self, sql: &str) -> Result<i64> {
        let sql = format!("SELECT CAST(({sql}) AS SIGNED)");
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?)
    }

    async fn stock(&self, voucher: i64) -> Result<i64> {
        self.number(&format!("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = {voucher}")).await
    }

    async fn order_ids(&self) -> Result<Vec<i64>> {
        Ok(sqlx::query_scalar("SELECT id FROM tb_voucher_order ORDER BY id").fetch_all(&self.pool).await?)
    }

    /// Everything that the ledger writes, as text.
    async fn everything(&self) -> Result<Vec<String>> {
        let mut everything = Vec::new();
        for sql in [
            "SELECT CONCAT_WS(' ', id, user_id, voucher_id, quantity, slot, entry_id, status, update_time) \
             FROM tb_voucher_order ORDER BY id",
            "SELECT CONCAT_WS(' ', order_id, user_id, voucher_id, quantity, reason, entry_id, at) \
             FROM tidegate_refusal ORDER BY order_id",
            "SELECT CONCAT_WS(' ', voucher_id, stock, refusals) FROM tb_seckill_voucher ORDER BY voucher_id",
        ] {
            for row in sqlx::query(sql).fetch_all(&self.pool).await? {
                everything.push(row.try_get(0)?);
            }
        }
        Ok(everything)
    }

    /// Another session, in the middle of a transaction that has run these statements.
    async fn rival(&self, statements: &str) -> Result<MySqlConnection> {
        let mut rival = MySqlConnection::connect(&self.server.url()).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("START TRANSACTION; {statements}"))).execute(&mut rival).await?;
        Ok(rival)
    }
}

/// A pool with the program's options.
async fn pool(server: &MysqlServer, connections: u32, lock_wait_timeout_s: u32) -> Result<MySqlPool> {
    pool_at(&server.url(), connections, lock_wait_timeout_s).await
}

async fn pool_at(url: &str, connections: u32, lock_wait_timeout_s: u32) -> Result<MySqlPool> {
    let options = MySqlPoolOptions::new().max_connections(connections).after_connect(move |connection, _| {
        Box::pin(async move {
            let wait = format!("SET SESSION innodb_lock_wait_timeout = {lock_wait_timeout_s}");
            connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
            connection.execute(AssertSqlSafe(wait)).await?;
            Ok(())
        })
    });
    Ok(options.connect(url).await?)
}

/// A ledger as the program opens it on a server without a cluster.
fn ledger(pool: &MySqlPool, timeout: Duration) -> Ledger {
    Ledger::new(pool.clone(), timeout).committing_in_packet(Arc::new(true.into()))
}

fn of_units(mut incoming: Incoming, quantity: i64) -> Incoming {
    incoming.order.quantity = quantity.try_into().expect("a quantity");
    incoming
}

fn in_slot(mut incoming: Incoming, slot: i64) -> Incoming {
    incoming.order.slot = slot.try_into().expect("a slot");
    incoming
}

fn is_rejected(verdict: &Verdict, word: &str) -> bool {
    matches!(verdict, Verdict::Rejected(error) if error.contains(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_order_of_a_batch_gets_its_own_verdict() -> Result<()> {
    let database = Database::open(&[10, 1]).await?;
    assert_eq!(database.ledger.record(&[]).await?, []);
    let first = [order(100, 1, 1), order(101, 2, 1)];
    assert_eq!(database.ledger.record(&first).await?, [Verdict::Created, Verdict::Created]);

    let batch = [
        order(200, 3, 1),              // new
        order(100, 1, 1),              // delivered before
        order(201, 2, 1),              // its user has 101
        order(101, 9, 1),              // 101 belongs to user 2
        order(101, 2, 2),              // and to voucher 1
        order(202, 4, 77),             // no such voucher
        of_units(order(203, 5, 2), 2), // more than there is
        order(204, 6, 2),              // the last one
        order(205, 7, 2),              // one too many
        in_slot(order(206, 1, 1), 2),  // a second order that is allowed
        of_units(order(207, 8, 1), 3), // more than one unit
        order(208, i64::MAX, 1),       // the largest user
        order(i64::MAX, 10, 1),        // the largest order id
    ];
    let created = Verdict::Created;
    let expected = [
        created.clone(),
        Verdict::AlreadyThere,
        HAS_ORDER,
        Verdict::IdTaken,
        Verdict::IdTaken,
        Verdict::UnknownVoucher,
        OUT_OF_STOCK,
        created.clone(),
        OUT_OF_STOCK,
        created.clone(),
        created.clone(),
        created.clone(),
        created,
    ];
    assert_eq!(database.ledger.record(&batch).await?, expected);
    assert_eq!(database.order_ids().await?, [100, 101, 200, 204, 206, 207, 208, i64::MAX]);
    assert_eq!((database.stock(1).await?, database.stock(2).await?), (10 - 2 - 1 - 1 - 3 - 2, 0));
    let refusals =
        "SELECT GROUP_CONCAT(CONCAT(order_id, ' ', reason) ORDER BY order_id) FROM tidegate_refusal";
    let refusals: String = sqlx::query_scalar(refusals).fetch_one(&database.pool).await?;
    assert_eq!(refusals, "201 user_has_order,203 out_of_stock,205 out_of_stock");
    assert_eq!(database.number("SELECT SUM(refusals) FROM tb_seckill_voucher").await?, 3);
    let entry: String = sqlx::query_scalar("SELECT entry_id FROM tb_voucher_order WHERE id = 200")
        .fetch_one(&database.pool)
        .await?;
    assert_eq!(entry, "1718000000000-200", "a row leads back to its entry");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_stock_covers_a_part_the_orders_that_stand_earlier_in_the_stream_win() -> Result<()> {
    let database = Database::open(&[5]).await?;
    // Neither ids nor users ascend: only the place in the batch counts.
    let batch = [
        of_units(order(900, 9, 1), 2),
        of_units(order(100, 8, 1), 2),
        of_units(order(500, 1, 1), 2),
        of_units(order(400, 2, 1), 1),
        of_units(order(300, 3, 1), 1),
    ];
    let verdicts = database.ledger.record(&batch).await?;
    let created = Verdict::Created;
    assert_eq!(verdicts, [created.clone(), created.clone(), OUT_OF_STOCK, created, OUT_OF_STOCK]);
    assert_eq!((database.order_ids().await?, database.stock(1).await?), (vec![100, 400, 900], 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_batch_again_changes_nothing_and_gets_the_same_answers() -> Result<()> {
    let database = Database::open(&[3, 100]).await?;
    let mut batch: Vec<Incoming> = (1..=5).map(|user| order(100 + user, user, 1)).collect();
    batch.extend((1..=5).map(|user| order(200 + user, user, 2)));
    batch.push(order(300, 1, 2)); // refused: user 1 has 201
    let first = database.ledger.record(&batch).await?;
    let before = database.everything().await?;
    assert_eq!(before.len(), 8 + 3 + 2, "{before:?}");
    let mut rng = Seeds::chosen(1).chance();
    let mut again: Vec<(Incoming, Verdict)> = batch.into_iter().zip(first).collect();
    for _ in 0..5 {
        let batch: Vec<Incoming> = again.iter().map(|(incoming, _)| incoming.clone()).collect();
        for ((incoming, first), now) in again.iter().zip(database.ledger.record(&batch).await?) {
            let expected = if *first == Verdict::Created { &Verdict::AlreadyThere } else { first };
            assert_eq!(&now, expected, "{incoming:?}");
        }
        assert_eq!(database.everything().await?, before);
        again.shuffle(&mut rng);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_stays_refused_after_a_restock_while_new_orders_are_written() -> Result<()> {
    let database = Database::open(&[1]).await?;
    let verdicts = database.ledger.record(&[order(100, 1, 1), order(101, 2, 1), order(102, 1, 1)]).await?;
    assert_eq!(verdicts, [Verdict::Created, OUT_OF_STOCK, HAS_ORDER]);
    database.run("UPDATE tb_seckill_voucher SET stock = 10").await?;
    database.run("UPDATE tb_voucher_order SET status = 4, slot = NULL").await?;

    // Each refusal alone, and together with an order that is fine, because the ledger handles these cases in different
    // ways.
    assert_eq!(database.ledger.record(&[order(101, 2, 1)]).await?, [OUT_OF_STOCK]);
    assert_eq!(database.ledger.record(&[order(102, 1, 1)]).await?, [HAS_ORDER]);
    let together = database.ledger.record(&[order(101, 2, 1), order(103, 3, 1), order(102, 1, 1)]).await?;
    assert_eq!(together, [OUT_OF_STOCK, Verdict::Created, HAS_ORDER]);
    assert_eq!(
        database.ledger.record(&[order(101, 9, 1)]).await?,
        [Verdict::IdTaken],
        "101 was another user's"
    );
    // The users of the refused orders may order again.
    let anew = database.ledger.record(&[order(201, 2, 1), order(202, 1, 1)]).await?;
    assert_eq!(anew, [Verdict::Created, Verdict::Created]);
    assert_eq!(database.stock(1).await?, 7);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_one_order_in_a_slot_until_it_is_cancelled() -> Result<()> {
    let database = Database::open(&[10]).await?;
    let slots = [order(100, 1, 1), in_slot(order(101, 1, 1), 2), in_slot(order(102, 1, 1), 2)];
    let verdicts = database.ledger.record(&slots).await?;
    assert_eq!(verdicts, [Verdict::Created, Verdict::Created, HAS_ORDER]);

    database.run("UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 100").await?;
    assert_eq!(database.ledger.record(&[order(103, 1, 1)]).await?, [Verdict::Created]);
    assert_eq!(database.ledger.record(&[order(104, 1, 1)]).await?, [HAS_ORDER]);
    // The stream delivers the cancelled order again. Its row exists, and stays cancelled.
    assert_eq!(database.ledger.record(&[order(100, 1, 1)]).await?, [Verdict::Cancelled]);
    assert_eq!(database.number("SELECT COUNT(*) FROM tb_voucher_order WHERE slot IS NULL").await?, 1);
    assert_eq!(database.stock(1).await?, 7);
    Ok(())
}

/// Records a batch, and repeats it after each outage as a lane does.
async fn record(ledger: &Ledger, batch: &[Incoming]) -> (Vec<Verdict>, usize) {
    for outages in 0..20 {
        match ledger.record(batch).await {
            Ok(verdicts) => return (verdicts, outages),
            Err(outage) => println!("{outage}"),
        }
    }
    panic!("no end of outages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_order_is_written_or_cancelled_and_never_both() -> Result<()> {
    const ORDERS: i64 = 400;
    // Voucher 3 gets its row from another session while the ledger works.
    let database = Database::open(&[1_000, 1_000]).await?;
    let orders: Vec<Incoming> = (1..=ORDERS).map(|id| order(id, id, 1 + id % 3)).collect();
    let chunks = |size: usize| orders.chunks(size).map(<[_]>::to_vec).collect::<Vec<_>>();
    let record = async {
        let mut verdicts = Vec::new();
        for (at, batch) in chunks(7).into_iter().enumerate() {
            if at == 15 {
                let row = "INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (3, 1000)";
                database.run(row).await.expect("the row");
            }
            verdicts.extend(database.ledger.record(&batch).await.expect("no outage"));
        }
        verdicts
    };
    let cancel = async {
        let mut cancellations = Vec::new();
        for batch in chunks(5).into_iter().rev() {
            let two = tokio::join!(
                database.ledger.cancel_unwritten(&batch),
                database.ledger.cancel_unwritten(&batch)
            );
            let (first, second) = (two.0.expect("no outage"), two.1.expect("no outage"));
            assert_eq!(first, second);
            cancellations.extend(batch.into_iter().zip(first).rev());
        }
        cancellations
    };
    let (verdicts, mut cancellations) = tokio::join!(record, cancel);
    cancellations.reverse();
    let freed = Cancellation::Cancelled(UserAfter::Freed);
    let mut written = Vec::new();
    for (verdict, (incoming, cancellation)) in verdicts.iter().zip(&cancellations) {
        let expected = match verdict {
            Verdict::Created => Cancellation::OrderExists,
            Verdict::Cancelled | Verdict::UnknownVoucher => freed.clone(),
            verdict => panic!("{incoming:?}: {verdict:?}"),
        };
        assert_eq!(*cancellation, expected, "{incoming:?}: {verdict:?}");
        written.extend((*verdict == Verdict::Created).then_some(incoming.order.id.get()));
    }
    let counted = "SELECT SUM(stock) + (SELECT COUNT(*) FROM tb_voucher_order WHERE slot IS NOT NULL) \
                   FROM tb_seckill_voucher";
    assert_eq!(database.number(counted).await?, 3_000);
    let live = "SELECT COUNT(*) FROM tb_voucher_order WHERE slot IS NOT NULL AND status = 1";
    assert_eq!(database.number(live).await?, i64::try_from(written.len())?);
    let cancelled =
        "SELECT COUNT(*) FROM tb_voucher_order WHERE slot IS NULL AND status = 4 AND entry_id <> ''";
    assert_eq!(database.number(cancelled).await?, ORDERS - i64::try_from(written.len())?);
    assert_eq!(database.number("SELECT COUNT(*) FROM tidegate_refusal").await?, 0);

    let before = database.everything().await?;
    let seen: Vec<Cancellation> = cancellations.into_iter().map(|(_, cancellation)| cancellation).collect();
    // By now, the users of written orders are buyers, but that decides nothing about these orders.
    assert_eq!(database.ledger.snapshot(&orders, MissingRow::Decides).await?.predict_cancel(&orders), seen);
    assert_eq!(database.ledger.cancel_unwritten(&orders).await?, seen);
    // There is stock, each voucher has a row, and the row shows nothing of the cancelled orders.
    assert_eq!(database.number("SELECT SUM(refusals) FROM tb_seckill_voucher").await?, 0);
    for batch in [&orders[..], &orders[..1], &orders[ORDERS as usize / 2..]] {
        let again = database.ledger.record(batch).await?;
        let is_there = |verdict: &Verdict| matches!(verdict, Verdict::AlreadyThere | Verdict::Cancelled);
        assert!(again.iter().all(is_there), "{again:?}");
    }
    assert_eq!(database.everything().await?, before);
    // The user of a cancelled order may order again.
    let free = seen.iter().position(|cancellation| *cancellation == freed).context("one was cancelled")?;
    let anew = Order { id: 9_999.try_into()?, ..orders[free].order.clone() };
    let anew = Incoming { order: anew, ..orders[free].clone() };
    assert_eq!(database.ledger.record(&[anew]).await?, [Verdict::Created]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_cancelled_row_is_refused_is_not_cancelled_and_its_neighbours_are() -> Result<()> {
    let database = Database::open(&[10]).await?;
    database
        .run(
            "ALTER TABLE tb_voucher_order ADD CONSTRAINT no_user_3 CHECK (user_id <> 3);
             CREATE TABLE tb_user (id BIGINT UNSIGNED PRIMARY KEY);
             INSERT INTO tb_user VALUES (1), (2), (3), (5);
             ALTER TABLE tb_voucher_order ADD FOREIGN KEY (user_id) REFERENCES tb_user (id)",
        )
        .await?;
    let orders = [1, 2, 3, 4, 5].map(|user| order(user, user, 1));
    assert_eq!(database.ledger.record(&orders[..1]).await?, [Verdict::Created]);
    for _ in 0..2 {
        let cancellations = database.ledger.cancel_unwritten(&orders).await?;
        let freed = Cancellation::Cancelled(UserAfter::Freed);
        let [
            Cancellation::OrderExists,
            second,
            Cancellation::Rejected(check),
            Cancellation::Rejected(key),
            fifth,
        ] = &cancellations[..]
        else {
            panic!("{cancellations:?}")
        };
        assert!(check.contains("no_user_3") && key.contains("foreign key"), "{cancellations:?}");
        assert_eq!((second, fifth), (&freed, &freed));
    }
    assert_eq!(database.order_ids().await?, [1, 2, 5]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ledgers_with_overlapping_batches_write_each_order_once_and_oversell_nothing() -> Result<()> {
    const ROUNDS: i64 = 30;
    const VOUCHERS: i64 = 4;
    let stocks = [60, 500, 3, 5_000];
    let database = Database::open(&stocks).await?;
    let other = Ledger::new(pool(&database.server, 2, 5).await?, TIMEOUT);
    let ledgers = [database.ledger.clone(), other.clone(), other];
    let mut rng = Seeds::chosen(1).chance();
    let mut created: BTreeMap<i64, usize> = BTreeMap::new();
    let mut standing: BTreeMap<i64, BTreeSet<bool>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let orders: Vec<Incoming> = {
            let one = |at: i64| {
                let (user, voucher) = (rng.random_range(1..=150), rng.random_range(1..=VOUCHERS));
                of_units(order(round * 1000 + at, user, voucher), rng.random_range(1..=3))
            };
            (1..=60).map(one).collect()
        };
        let workers = ledgers.iter().map(|ledger| {
            let (ledger, mut batch) = (ledger.clone(), orders.clone());
            batch.shuffle(&mut rng);
            batch.truncate(rng.random_range(20..=60));
            tokio::spawn(async move { (ledger.record(&batch).await, batch) })
        });
        for worker in workers.collect::<Vec<_>>() {
            let (verdicts, batch) = worker.await?;
            for (Incoming { order, .. }, verdict) in batch.iter().zip(verdicts?) {
                let id = order.id.get();
                *created.entry(id).or_default() += usize::from(verdict == Verdict::Created);
                let stands = matches!(verdict, Verdict::Created | Verdict::AlreadyThere);
                assert!(stands || matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
                standing.entry(id).or_default().insert(stands);
            }
        }
    }
    for (id, answers) in &standing {
        assert_eq!(answers.len(), 1, "order {id} got two different answers");
        assert_eq!(created[id], usize::from(answers.contains(&true)), "order {id}");
    }
    let stand: Vec<i64> =
        standing.into_iter().filter(|(_, answers)| answers.contains(&true)).map(|(id, _)| id).collect();
    assert_eq!(database.order_ids().await?, stand);
    for (voucher, stock) in (1..).zip(stocks) {
        let sold =
            format!("SELECT COALESCE(SUM(quantity), 0) FROM tb_voucher_order WHERE voucher_id = {voucher}");
        let left = database.stock(voucher).await?;
        assert!(left >= 0, "voucher {voucher} is oversold by {left}");
        assert_eq!(database.number(&sold).await?, stock - left, "voucher {voucher}");
    }
    let both = "SELECT COUNT(*) FROM tb_voucher_order JOIN tidegate_refusal ON id = order_id";
    assert_eq!(database.number(both).await?, 0, "an order is written or refused, never both");
    let counted = "SELECT SUM(refusals) FROM tb_seckill_voucher";
    let listed = database.number("SELECT COUNT(*) FROM tidegate_refusal").await?;
    assert_eq!(database.number(counted).await?, listed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_database_refuses_is_split_off_and_its_neighbours_are_written() -> Result<()> {
    let database = Database::open(&[1000, 1000, 1000, 1000]).await?;
    database
        .run(
            "ALTER TABLE tb_voucher_order ADD CONSTRAINT no_user_666 CHECK (user_id <> 666);
             CREATE TABLE tb_user (id BIGINT UNSIGNED PRIMARY KEY);
             INSERT INTO tb_user SELECT seq.n FROM
               (SELECT a.d + 10 * b.d + 100 * c.d AS n FROM
                 (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) a,
                 (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b,
                 (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) c) seq;
             ALTER TABLE tb_voucher_order ADD FOREIGN KEY (user_id) REFERENCES tb_user (id);
             CREATE TRIGGER blocked BEFORE INSERT ON tb_voucher_order FOR EACH ROW
               IF NEW.user_id = 777 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'user is blocked'; END IF",
        )
        .await?;
    let users = [1, 2, 666, 3, 777, 4, 5, 6, 4242, 7, 8];
    let batch: Vec<Incoming> = users.iter().map(|user| order(100 + user, *user, 1)).collect();
    let verdicts = database.ledger.record(&batch).await?;
    for (user, verdict) in users.iter().zip(&verdicts) {
        match user {
            666 => assert!(is_rejected(verdict, "no_user_666"), "{verdict:?}"),
            777 => assert!(is_rejected(verdict, "user is blocked"), "{verdict:?}"),
            4242 => assert!(is_rejected(verdict, "foreign key"), "{verdict:?}"),
            _ => assert_eq!(*verdict, Verdict::Created, "user {user}"),
        }
    }
    assert_eq!((database.order_ids().await?.len(), database.stock(1).await?), (8, 992));

    // A whole batch of 500 with one bad row, and the bad row first, last and alone.
    for (voucher, bad_at) in [(2, 250), (3, 0), (4, 499)] {
        let user = |at: i64| if at == bad_at { 666 } else { at + 1 };
        let batch: Vec<Incoming> =
            (0..500).map(|at| order(voucher * 10_000 + at, user(at), voucher)).collect();
        let verdicts = database.ledger.record(&batch).await?;
        let created = verdicts.iter().filter(|verdict| **verdict == Verdict::Created).count();
        let bad_at = usize::try_from(bad_at)?;
        assert!(created == 499 && is_rejected(&verdicts[bad_at], "no_user_666"), "{:?}", verdicts[bad_at]);
        assert_eq!(database.stock(voucher).await?, 501);
    }
    let alone = database.ledger.record(&[order(1, 666, 1)]).await?;
    assert!(is_rejected(&alone[0], "no_user_666"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unique_key_that_we_know_nothing_of_is_the_rows_fault() -> Result<()> {
    let database = Database::open(&[100, 100]).await?;
    // One order per user for all vouchers together: a unique key that the owner of the database added.
    database.run("ALTER TABLE tb_voucher_order ADD UNIQUE KEY one_each (user_id, pay_type)").await?;
    assert_eq!(database.ledger.record(&[order(100, 1, 1)]).await?, [Verdict::Created]);
    let verdicts = database.ledger.record(&[order(200, 2, 2), order(201, 1, 2), order(202, 3, 2)]).await?;
    assert!(is_rejected(&verdicts[1], "one_each"), "{verdicts:?}");
    assert_eq!((&verdicts[0], &verdicts[2]), (&Verdict::Created, &Verdict::Created));
    assert_eq!((database.stock(1).await?, database.stock(2).await?), (99, 98));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_deadlocks_ends_with_every_order_written() -> Result<()> {
    let database = Database::alone(&[1000, 1000, 1000]).await?;
    let rivals = (0..3).map(|_| {
        let url = database.server.url();
        tokio::spawn(async move {
            let mut rival = MySqlConnection::connect(&url).await?;
            for _ in 0..60 {
                // The rival locks rows in descending order, and the orders after the stocks. The ledger locks in the
                // opposite sequence.
                let storm = "START TRANSACTION; UPDATE tb_seckill_voucher SET stock = stock WHERE voucher_id = 3; \
                             DO SLEEP(0.002); UPDATE tb_seckill_voucher SET stock = stock WHERE voucher_id = 1; \
                             UPDATE tb_voucher_order SET pay_type = 2 WHERE voucher_id = 2; COMMIT";
                if sqlx::raw_sql(storm).execute(&mut rival).await.is_err() {
                    sqlx::raw_sql("ROLLBACK").execute(&mut rival).await?;
                }
            }
            anyhow::Ok(())
        })
    });
    let rivals: Vec<_> = rivals.collect();
    let lanes = (0..3_i64).map(|lane| {
        let ledger = database.ledger.clone();
        tokio::spawn(async move {
            let mut outages = 0;
            for round in 0..20 {
                let first = lane * 1000 + round * 10;
                let batch: Vec<Incoming> =
                    (1..=9).map(|at| order(first + at, first + at, at % 3 + 1)).collect();
                let (verdicts, more) = record(&ledger, &batch).await;
                assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Created), "{verdicts:?}");
                outages += more;
            }
            outages
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        assert_eq!(lane.await?, 0, "a deadlock is no outage");
    }
    for rival in rivals {
        rival.await??;
    }
    let deadlocks = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'";
    assert!(database.number(deadlocks).await? > 0, "there was no storm");
    assert_eq!(database.order_ids().await?.len(), 3 * 20 * 9);
    for voucher in 1..=3 {
        assert_eq!(database.stock(voucher).await?, 1000 - 3 * 20 * 3);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_lock_that_outlasts_the_timeout_is_an_outage_and_its_transaction_ends_whole() -> Result<()> {
    let database = Database::alone(&[10, 10]).await?;
    let only = pool(&database.server, 1, 30).await?;
    let ledger = Ledger::new(only.clone(), Duration::from_millis(300));
    let session: u64 = sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&only).await?;
    // The ledger writes the first order and waits for the stock of the second, so half a batch is written when the time
    // is over.
    let batch = [order(100, 1, 1), order(101, 2, 2)];
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 2 FOR UPDATE").await?;

    let outage = ledger.record(&batch).await.err().context("the lock is held")?;
    assert!(outage.error.contains("300 ms"), "{outage}");
    let next: u64 = sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&only).await?;
    assert_ne!(session, next, "the next batch must not inherit the open transaction");
    assert_eq!(database.order_ids().await?, [0_i64; 0]);

    rival.execute("ROLLBACK").await?;
    let open = "SELECT COUNT(*) FROM information_schema.innodb_trx";
    for _ in 0..200 {
        if database.number(open).await? == 0 {
            break;
        }
        // The server renews this table only if no session has read it for a tenth of a second.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(database.number(open).await?, 0, "the given-up transaction has ended");
    // The server had the whole batch. It may have committed once the lock was free, or noticed that the client is gone.
    let stocks = (database.stock(1).await?, database.stock(2).await?);
    let (before, expected) = match database.order_ids().await?.len() {
        0 => ((10, 10), Verdict::Created),
        _ => ((9, 9), Verdict::AlreadyThere),
    };
    assert_eq!(stocks, before, "all of it or nothing");
    let (verdicts, _) = record(&ledger, &batch).await;
    assert_eq!(verdicts, [expected.clone(), expected]);
    assert_eq!(database.order_ids().await?, [100, 101]);
    assert_eq!((database.stock(1).await?, database.stock(2).await?), (9, 9));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_ready_is_an_outage_that_says_what_to_do() -> Result<()> {
    let database = Database::open(&[10]).await?;
    database.run("RENAME TABLE tb_voucher_order TO away").await?;
    let outage = database.ledger.record(&[order(100, 1, 1)]).await.err().context("the table is away")?;
    assert!(outage.error.contains("tidegate migrate"), "{outage}");
    database.run("RENAME TABLE away TO tb_voucher_order").await?;
    assert_eq!(database.ledger.record(&[order(100, 1, 1)]).await?, [Verdict::Created]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_lock_that_does_not_end_makes_orders_wait_and_is_no_outage() -> Result<()> {
    let database = Database::open(&[10, 10]).await?;
    let ledger = Ledger::new(pool(&database.server, 2, 1).await?, TIMEOUT);
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE").await?;
    assert_eq!(ledger.record(&[order(100, 1, 1)]).await?, [held_1()]);
    let mixed = [order(101, 1, 2), order(100, 1, 1), order(102, 2, 2)];
    let expected = [Verdict::Created, held_1(), Verdict::Created];
    assert_eq!(ledger.record(&mixed).await?, expected, "another voucher is free");
    rival.execute("ROLLBACK").await?;
    assert_eq!(ledger.record(&[order(100, 1, 1)]).await?, [Verdict::Created]);
    assert_eq!(database.order_ids().await?, [100, 101, 102]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dry_run_says_of_many_batches_is_what_happens_and_it_changes_nothing() -> Result<()> {
    let database = Database::open(&[20, 40]).await?;
    // Few ids and few users, so that all cases occur.
    let mut rng = Seeds::chosen(1).chance();
    let mut order = || {
        let (id, user) = (rng.random_range(1..=60), rng.random_range(1..=40));
        of_units(order(id, user, id % 3 + 1), rng.random_range(1..=2))
    };
    database.ledger.record(&(0..20).map(|_| order()).collect::<Vec<_>>()).await?;
    let before = database.everything().await?;
    let batches: Vec<Vec<Incoming>> = (0..8).map(|_| (0..15).map(|_| order()).collect()).collect();
    let mut dry_run = DryRun::default();
    let mut predicted = Vec::new();
    for batch in &batches {
        predicted.push(
            database.ledger.snapshot(batch, MissingRow::Decides).await?.predict_record(batch, &mut dry_run),
        );
    }
    assert_eq!(database.everything().await?, before);

    for (batch, predicted) in batches.iter().zip(predicted) {
        let verdicts: Vec<Verdict> = predicted.iter().map(|decided| decided.verdict.clone()).collect();
        assert_eq!(database.ledger.record(batch).await?, verdicts);
        let again = database
            .ledger
            .snapshot(batch, MissingRow::Decides)
            .await?
            .predict_record(batch, &mut DryRun::default());
        assert!(again.iter().all(|decided| !decided.is_new), "{again:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_there_already_is_answered_without_waiting_for_anybodys_locks() -> Result<()> {
    let database = Database::open(&[2]).await?;
    let first = database.ledger.clone().with_look_up_first();
    let batch = [order(1, 1, 1), order(2, 2, 1), order(3, 1, 1), order(1, 9, 1), order(4, 4, 9)];
    let verdicts = [Verdict::Created, Verdict::Created, HAS_ORDER, Verdict::IdTaken, Verdict::UnknownVoucher];
    assert_eq!(first.record(&batch).await?, verdicts, "what is new is written");
    let everything = database.everything().await?;

    let rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE").await?;
    let again =
        [Verdict::AlreadyThere, Verdict::AlreadyThere, HAS_ORDER, Verdict::IdTaken, Verdict::UnknownVoucher];
    assert_eq!(first.record(&batch).await?, again);
    drop(rival);
    assert_eq!(database.everything().await?, everything);
    let with_a_new_one = [order(1, 1, 1), order(5, 5, 1)];
    assert_eq!(first.record(&with_a_new_one).await?, [Verdict::AlreadyThere, OUT_OF_STOCK]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_does_not_wait_for_a_voucher_that_is_not_in_it() -> Result<()> {
    // So few rows that a server prefers to read the whole table instead of its index.
    let database = Database::open(&[10, 10, 10]).await?;
    let ledger = Ledger::new(pool(&database.server, 2, 30).await?, Duration::from_secs(5));
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 3 FOR UPDATE").await?;
    let batch = [order(100, 1, 1), order(101, 2, 2)];
    assert_eq!(ledger.record(&batch).await?, [Verdict::Created, Verdict::Created]);
    rival.execute("ROLLBACK").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_the_turn_to_write_is_no_outage() -> Result<()> {
    let database = Database::open(&[10]).await?;
    // The last batch begins after more than 2.5 s, and its lock wait takes another second or two.
    let ledger = Ledger::new(pool(&database.server, 13, 1).await?, Duration::from_secs(3)).with_writers(1);
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE").await?;
    let batches: Vec<_> = (1..=12).map(|user| [order(100 + user, user, 1)]).collect();
    let all = batches.iter().map(|batch| ledger.record(batch));
    for verdicts in futures_util::future::join_all(all).await {
        assert_eq!(verdicts?, [held_1()]);
    }
    rival.execute("ROLLBACK").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_short_is_no_success() -> Result<()> {
    let database = Database::open(&[10]).await?;
    let limited = pool(&database.server, 1, 5).await?;
    sqlx::raw_sql("SET SESSION sql_select_limit = 0").execute(&limited).await?;
    let ledger = ledger(&limited, TIMEOUT);
    let outage = ledger.record(&[order(100, 1, 1)]).await.err().context("nothing was checked")?;
    assert!(
        outage.error.contains("5 results and 0 rows, but 5 results and 1 rows were expected"),
        "{outage}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_refused_while_its_batch_is_being_written_is_not_written() -> Result<()> {
    let database = Database::alone(&[10]).await?;
    database.ledger.record(&[of_units(order(100, 1, 1), 11)]).await?;
    // From here on, the ledger knows that the voucher has refusals, and first looks whether its orders are among them.
    assert_eq!(database.ledger.record(&[order(101, 2, 1)]).await?, [Verdict::Created]);
    for user in 10..20 {
        assert_eq!(database.ledger.record(&[in_slot(order(100 + user, 2, 1), user)]).await?.len(), 1);
    }
    database.run("UPDATE tb_seckill_voucher SET stock = 100").await?;
    // After that look, the batch waits to write the order of user 50.
    let mut rival =
        database.rival("INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (500, 50, 1)").await?;
    let ledger = database.ledger.clone();
    let batch = [order(600, 60, 1), order(601, 50, 1)];
    let recording = tokio::spawn(async move { ledger.record(&batch).await });
    let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    while database.number(waiting).await? == 0 {
        ensure!(!recording.is_finished(), "it did not wait: {:?}", recording.await);
        // If the test read more often, the server would always show the same numbers.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let refuse = "START TRANSACTION; \
        INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
            VALUES (600, 60, 1, 1, 'out_of_stock', '1-1'); \
        UPDATE tb_seckill_voucher SET refusals = refusals + 1; COMMIT";
    database.run(refuse).await?;
    rival.execute("ROLLBACK").await?;
    assert_eq!(recording.await??, [OUT_OF_STOCK, Verdict::Created]);
    assert_eq!(database.number("SELECT COUNT(*) FROM tb_voucher_order WHERE id = 600").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_batch_waits_for_a_held_voucher_until_it_is_free() -> Result<()> {
    let database = Database::open(&[10, 10]).await?;
    let ledger = ledger(&pool(&database.server, 2, 1).await?, TIMEOUT);
    let vouchers = || [1, 2].map(|voucher| voucher.try_into().expect("a voucher id"));
    let held = [vouchers()[0]].into_iter().collect::<BTreeSet<_>>();
    assert_eq!(ledger.locked_vouchers(vouchers()).await?, BTreeSet::new());
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE").await?;
    assert_eq!(ledger.record(&[order(100, 1, 1), order(101, 2, 2)]).await?, [held_1(), Verdict::Created]);
    let waits = ledger.contentions().counts().lock_waits;
    for _ in 0..50 {
        assert_eq!(ledger.locked_vouchers(vouchers()).await?, held);
    }
    assert_eq!((waits, ledger.contentions().counts().lock_waits), (1, 1), "who asks does not wait");
    rival.execute("ROLLBACK").await?;
    let began = std::time::Instant::now();
    while !ledger.locked_vouchers(vouchers()).await?.is_empty() {
        ensure!(began.elapsed() < TIMEOUT, "it is free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(ledger.record(&[order(100, 1, 1)]).await?, [Verdict::Created]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_voucher_that_others_write_without_a_pause_is_not_taken_for_held() -> Result<()> {
    const WRITERS: usize = 2;
    let database = Database::open(&[10, 1_000_000]).await?;
    let proxy = Proxy::start(database.server.port()).await?;
    let ledger = ledger(&pool_at(&proxy.url_for(&database.server), 2, 1).await?, TIMEOUT);
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE").await?;
    // Each rival locks the row of voucher 2 for a moment, so one of them always holds it.
    let written = Arc::new(AtomicUsize::new(0));
    let mut lanes = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let mut lane = MySqlConnection::connect(&database.server.url()).await?;
        let written = Arc::clone(&written);
        lanes.spawn(async move {
            loop {
                let write = "START TRANSACTION; UPDATE tb_seckill_voucher SET stock = stock - 1 \
                    WHERE voucher_id = 2; DO SLEEP(0.005); COMMIT";
                sqlx::raw_sql(write).execute(&mut lane).await.expect("it is written");
                written.fetch_add(1, Relaxed);
            }
        });
    }
    // The test holds each look at the row until the rivals have written it again, however slow a commit is. The last
    // write of each rival may have been visible to the look before.
    let look = "SKIP LOCKED";
    let mut held = proxy.hold_when(look);
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    lanes.spawn(async move {
        while held.reached().await.is_ok() {
            counted.fetch_add(1, Relaxed);
            let (before, next) = (written.load(Relaxed), proxy.hold_when(look));
            while written.load(Relaxed) <= before + WRITERS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            std::mem::replace(&mut held, next).release();
        }
    });
    for id in [100, 200, 300] {
        let verdicts = ledger.record(&[order(id, id, 1), order(id + 1, id + 1, 2)]).await?;
        assert_eq!(verdicts, [held_1(), Verdict::Created]);
    }
    let looks = looks.load(Relaxed);
    assert!(looks >= 4, "two for the first batch, and one for each of the others: {looks}");
    lanes.shutdown().await;
    rival.execute("ROLLBACK").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_rows_of_a_batch_are_held_it_ends_in_time_and_free_orders_are_written() -> Result<()> {
    let stocks = [100; 12];
    let database = Database::open(&stocks).await?;
    let ledger = ledger(&pool(&database.server, 2, 1).await?, TIMEOUT);
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id <= 8 FOR UPDATE").await?;
    // Another session is writing this user's order for voucher 12.
    sqlx::raw_sql("INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (500, 12, 12)")
        .execute(&mut rival)
        .await?;
    // Voucher 9 is left out, because MariaDB locks the row after the last one, too.
    let vouchers = (1..=12).filter(|voucher| *voucher != 9);
    let batch: Vec<Incoming> = vouchers.map(|voucher| order(100 + voucher, voucher, voucher)).collect();
    let verdicts = ledger.record(&batch).await?;
    // Half of the time of a batch, in waits of a second each, and one wait that began before its end.
    let waits = ledger.contentions().counts().lock_waits;
    assert!(waits <= TIMEOUT.as_secs() / 2 + 1, "{waits} waits");
    let (held, rest) = verdicts.split_at(8);
    assert!(
        held.iter().all(|verdict| matches!(verdict, Verdict::Contended(Contention::Voucher(_)))),
        "{held:?}"
    );
    assert_eq!(rest[..2], [Verdict::Created, Verdict::Created]);
    assert!(matches!(rest[2], Verdict::Contended(Contention::Row(_))), "{:?}", rest[2]);
    rival.execute("ROLLBACK").await?;
    let again = ledger.record(&batch).await?;
    assert!(
        again.iter().all(|verdict| matches!(verdict, Verdict::Created | Verdict::AlreadyThere)),
        "{again:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_voucher_is_held_is_not_cancelled_now_and_that_is_no_outage() -> Result<()> {
    let database = Database::open(&[10]).await?;
    let ledger = ledger(&pool(&database.server, 2, 1).await?, TIMEOUT);
    let mut rival =
        database.rival("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE").await?;
    assert_eq!(ledger.cancel_unwritten(&[order(100, 1, 1)]).await?, [Cancellation::Contended]);
    rival.execute("ROLLBACK").await?;
    assert_eq!(
        ledger.cancel_unwritten(&[order(100, 1, 1)]).await?,
        [Cancellation::Cancelled(UserAfter::Freed)]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_order_of_a_voucher_without_a_row_is_there_already() -> Result<()> {
    let database = Database::open(&[10]).await?;
    assert_eq!(
        database.ledger.cancel_unwritten(&[order(100, 1, 77)]).await?,
        [Cancellation::Cancelled(UserAfter::Freed)]
    );
    // Twice: the first time from an assumption, and the second time from a lookup.
    for _ in 0..2 {
        let verdicts = database.ledger.record(&[order(100, 1, 77), order(101, 2, 77)]).await?;
        assert_eq!(verdicts, [Verdict::Cancelled, Verdict::UnknownVoucher]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_probes_in_one_millisecond_are_two_writes() -> Result<()> {
    let database = Database::open(&[10]).await?;
    // From now on, the server's clock stands still for this session.
    let frozen = pool(&database.server, 1, 5).await?;
    sqlx::raw_sql("SET SESSION timestamp = 1800000000").execute(&frozen).await?;
    let ledger = ledger(&frozen, TIMEOUT);
    let at = async || -> Result<String> {
        let at = "SELECT CAST(at AS CHAR) FROM tidegate_probe";
        Ok(sqlx::query_scalar(at).fetch_one(&frozen).await?)
    };
    ledger.probe().await?;
    let first = at().await?;
    ledger.probe().await?;
    assert_ne!(first, at().await?, "a write that changes nothing is not flushed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_others_have_won_is_made_again_and_is_no_outage() -> Result<()> {
    let database = Database::open(&[10]).await?;
    // One session. Its counter says how often the ledger is told, as in a cluster, that another worker has probed
    // before it.
    let session = pool(&database.server, 1, 5).await?;
    let losses = async |losses: u32| -> Result<()> {
        session.execute(AssertSqlSafe(format!("SET @losses = {losses}"))).await?;
        Ok(())
    };
    for (error, sqlstate) in [(1213, "40001"), (3101, "40000")] {
        let certify = format!(
            "DROP TRIGGER IF EXISTS certify; CREATE TRIGGER certify BEFORE UPDATE ON tidegate_probe FOR EACH ROW \
             IF @losses > 0 THEN \
                 SET @losses = @losses - 1; \
                 SIGNAL SQLSTATE '{sqlstate}' SET MYSQL_ERRNO = {error}, MESSAGE_TEXT = 'somebody else has won'; \
             END IF"
        );
        database.run(&certify).await?;
        losses(9).await?;
        ledger(&session, TIMEOUT).probe().await?;
        let left: i64 = sqlx::query_scalar("SELECT CAST(@losses AS SIGNED)").fetch_one(&session).await?;
        assert_eq!(left, 0, "{error}");
    }
    losses(1_000_000).await?;
    let outage = ledger(&session, Duration::from_millis(500)).probe().await.err().context("not for ever")?;
    assert!(outage.error.contains("somebody else has won"), "{outage}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_order_used_is_written_with_its_row_and_who_came_past_the_limits_is_not_written() -> Result<()>
{
    let database = Database::open(&[9, 9]).await?;
    let uses = |mut incoming: Incoming, uses: &str| {
        incoming.order.uses = Uses::parse(uses.as_bytes());
        incoming
    };
    let first = [uses(order(1, 1, 1), "3,19700,abc c5.4,640,x"), uses(order(2, 2, 1), ""), order(3, 3, 2)];
    assert_eq!(database.ledger.record(&first).await?, [const { Verdict::Created }; 3]);
    let rows = "SELECT COALESCE(GROUP_CONCAT(CONCAT(voucher_id, ' ', order_id, ' ', CAST(uses AS CHAR)) ORDER BY order_id SEPARATOR ';'), '') \
                FROM tidegate_limit_use";
    let rows = async || Ok::<String, sqlx::Error>(sqlx::query_scalar(rows).fetch_one(&database.pool).await?);
    assert_eq!(rows().await?, "1 1 3,19700,abc c5.4,640,x;1 2 ");

    // The entries of the other orders have this millisecond.
    database.run("UPDATE tb_seckill_voucher SET limits_since = 1718000000000 WHERE voucher_id = 1").await?;
    let mut late = order(5, 5, 1);
    late.entry.ms += 1;
    let batch = [order(4, 4, 1), late.clone(), uses(order(6, 6, 1), "3,19700,b"), order(7, 7, 2)];
    let past = Verdict::PastLimits(1_718_000_000_000);
    let created = Verdict::Created;
    assert_eq!(
        database.ledger.record(&batch).await?,
        [created.clone(), past.clone(), created.clone(), created.clone()]
    );
    assert_eq!(rows().await?, "1 1 3,19700,abc c5.4,640,x;1 2 ;1 6 3,19700,b");
    // A batch of this order alone changes nothing, so no write checks the known state of its voucher, and the ledger
    // looks it up.
    assert_eq!(database.ledger.record(&[late.clone()]).await?, [past]);
    database.run("UPDATE tb_seckill_voucher SET limits_since = NULL").await?;
    assert_eq!(database.ledger.record(&[late.clone()]).await?, [created]);
    // Once the order is written, it stays written.
    database.run("UPDATE tb_seckill_voucher SET limits_since = 1718000000000").await?;
    assert_eq!(database.ledger.record(&[late]).await?, [Verdict::AlreadyThere]);
    Ok(())
}

//! Tests of events in the ledger, on a real MySQL or MariaDB.

use std::{collections::HashSet, time::Duration};

use anyhow::Result;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions, prelude::*};
use tidegate_lab::MysqlServer;
use tidegate_orders::{
    Event, EventKind, Ledger, Verdict,
    event::EventOutcome,
    ledger::{Contention, EventVerdict, IncomingEvent},
    schema,
    scripts::UserAfter,
};
use tidegate_stream::EntryId;

use crate::fixture::order;

const TIMEOUT: Duration = Duration::from_secs(20);

struct Database {
    server: MysqlServer,
    pool: MySqlPool,
    ledger: Ledger,
}

impl Database {
    /// Voucher 1 with the orders 1 to `orders`. The user of each order has its number.
    async fn with_orders(orders: i64) -> Result<Self> {
        let server = tokio::task::spawn_blocking(MysqlServer::shared).await??;
        let pool = pool(&server).await?;
        schema::migrate(&pool).await?;
        let stock = orders.max(1000);
        let insert = format!("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (1, {stock})");
        pool.execute(AssertSqlSafe(insert)).await?;
        let ledger = Ledger::new(pool.clone(), TIMEOUT);
        let orders: Vec<_> = (1..=orders).map(|id| order(id, id, 1)).collect();
        assert!(ledger.record(&orders).await?.iter().all(|verdict| *verdict == Verdict::Created));
        Ok(Self { server, pool, ledger })
    }

    async fn record(&self, events: &[IncomingEvent]) -> Result<Vec<EventVerdict>> {
        Ok(self.ledger.record_events(events, &HashSet::new()).await?)
    }

    async fn number(&self, sql: &str) -> Result<i64> {
        let sql = format!("SELECT CAST(({sql}) AS SIGNED)");
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?)
    }
}

async fn pool(server: &MysqlServer) -> Result<MySqlPool> {
    let options = MySqlPoolOptions::new().max_connections(8).after_connect(|connection, _| {
        Box::pin(async move {
            connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
            connection.execute("SET SESSION innodb_lock_wait_timeout = 1").await?;
            Ok(())
        })
    });
    Ok(options.connect(&server.url()).await?)
}

/// An event of order `id`. Its user has the same number; `at` makes the entry id.
fn event(kind: EventKind, id: i64, reference: Option<&str>, at: u64) -> IncomingEvent {
    let event = Event {
        kind,
        order: id.try_into().expect("an order id"),
        user: id.try_into().expect("a user id"),
        voucher: 1.try_into().expect("a voucher id"),
        reference: reference.map(|reference| reference.parse().expect("a text")),
        payment: None,
        reason: None,
    };
    IncomingEvent { event, entry: EntryId { ms: 1_718_000_000_000 + at, seq: id.unsigned_abs() } }
}

fn outcome(verdict: &EventVerdict) -> EventOutcome {
    let EventVerdict::Recorded { event, .. } = verdict else { panic!("{verdict:?}") };
    event.outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_to_many_orders_is_recorded_in_one_go_and_again_with_the_same_answer() -> Result<()> {
    // More events of each kind than one list holds.
    let database = Database::with_orders(1_800).await?;
    let mut events = Vec::new();
    for id in 1..=1_800 {
        match id % 3 {
            0 => events.push(event(EventKind::Cancelled, id, None, 1)),
            _ => {
                events.extend([event(EventKind::Paid, id, Some("p"), 1), event(EventKind::Used, id, None, 2)])
            }
        }
    }
    let verdicts = database.record(&events).await?;
    assert!(verdicts.iter().all(|verdict| outcome(verdict) == EventOutcome::Applied));
    assert_eq!(database.record(&events).await?, verdicts);
    assert_eq!(
        database.number("SELECT COUNT(*) FROM tb_voucher_order WHERE status = 3 AND slot = 1").await?,
        1_200
    );
    assert_eq!(
        database.number("SELECT COUNT(*) FROM tb_voucher_order WHERE status = 4 AND slot IS NULL").await?,
        600
    );
    assert_eq!(database.number("SELECT stock FROM tb_seckill_voucher").await?, 600);
    assert_eq!(database.number("SELECT SUM(released) FROM tidegate_event").await?, 600);
    assert_eq!(database.number("SELECT COUNT(*) FROM tidegate_event").await?, events.len() as i64);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_no_lock_keeps_apart_record_each_event_once() -> Result<()> {
    let database = Database::with_orders(30).await?;
    // All writers get the same events, in another order and with other entries beside them.
    let writers = (0..4).map(|writer| {
        let ledger = database.ledger.clone();
        tokio::spawn(async move {
            for round in 0..5 {
                let mut events: Vec<_> = (1..=30)
                    .flat_map(|id| {
                        [
                            event(EventKind::Paid, id, Some("p"), 1),
                            event(EventKind::Refunded, id, Some("r"), 2),
                        ]
                    })
                    .collect();
                events.rotate_left((writer * 14 + round * 6) % 60);
                events.push(event(EventKind::Used, 1 + round as i64, None, 10 + writer as u64));
                let _verdicts = ledger.record_events(&events, &HashSet::new()).await?;
            }
            anyhow::Ok(())
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await??;
    }
    let again: Vec<_> = (1..=30).map(|id| event(EventKind::Refunded, id, Some("r"), 2)).collect();
    database.record(&again).await?;
    assert_eq!(database.number("SELECT stock FROM tb_seckill_voucher").await?, 1000);
    assert_eq!(
        database.number("SELECT COUNT(*) FROM tb_voucher_order WHERE status = 6 AND slot IS NULL").await?,
        30
    );
    assert_eq!(database.number("SELECT SUM(released) FROM tidegate_event").await?, 30);
    let twice = "SELECT COUNT(*) FROM (SELECT 1 FROM tidegate_event GROUP BY order_id, entry_id, event HAVING COUNT(*) > 1) t";
    assert_eq!(database.number(twice).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_are_kept_byte_for_byte_whatever_is_in_them() -> Result<()> {
    let database = Database::with_orders(1).await?;
    let references = ["a'); DROP TABLE tb_voucher_order; --", "\\' \" `", "\u{1f4b6}\u{e9}", "P", "p", "p "];
    for (at, reference) in (1..).zip(references) {
        let events = [event(EventKind::Paid, 1, Some(reference), at)];
        let first = outcome(&database.record(&events).await?[0]);
        let expected = if at == 1 { EventOutcome::Applied } else { EventOutcome::RefundDue };
        assert_eq!(first, expected, "{reference:?} is another payment than those before");
        let again = [event(EventKind::Paid, 1, Some(reference), 100 + at)];
        assert_eq!(outcome(&database.record(&again).await?[0]), EventOutcome::Unchanged);
    }
    let sql = "SELECT ref FROM tidegate_event WHERE outcome <> 'unchanged' ORDER BY step";
    let kept: Vec<String> = sqlx::query_scalar(sql).fetch_all(&database.pool).await?;
    assert_eq!(kept, references);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_listed_as_due_until_the_refund_that_is_about_it() -> Result<()> {
    let documented = include_str!("../../../../docs/events.md");
    let from = documented.find("SELECT p.order_id").expect("the statement that lists what is due");
    let sql = documented[from..].split(';').next().unwrap_or_default().to_owned() + " ORDER BY p.step";
    let database = Database::with_orders(1).await?;
    let refunded = |payment: Option<&str>, at| {
        let IncomingEvent { event, entry } = event(EventKind::Refunded, 1, None, at);
        IncomingEvent {
            event: Event { payment: payment.map(|it| it.parse().expect("a text")), ..event },
            entry,
        }
    };
    use EventOutcome::{Applied, RefundDue};
    for (step, expected, due) in [
        (event(EventKind::Paid, 1, Some("a"), 1), Applied, &[][..]),
        // It names no payment, so it refunds the only one.
        (refunded(None, 2), Applied, &[]),
        (event(EventKind::Paid, 1, Some("b"), 3), RefundDue, &["b"]),
        (event(EventKind::Paid, 1, Some("c"), 4), RefundDue, &["b", "c"]),
        (refunded(Some("b"), 5), Applied, &["c"]),
        (refunded(Some("c"), 6), Applied, &[]),
    ] {
        assert_eq!(outcome(&database.record(&[step]).await?[0]), expected);
        let rows = sqlx::query(AssertSqlSafe(sql.clone())).fetch_all(&database.pool).await?;
        let listed =
            rows.iter().map(|row| row.try_get::<String, _>("ref")).collect::<sqlx::Result<Vec<_>>>()?;
        assert_eq!(listed, due);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_row_is_held_waits_and_the_others_do_not() -> Result<()> {
    let database = Database::with_orders(3).await?;
    let mut rival = MySqlConnection::connect(&database.server.url()).await?;
    sqlx::raw_sql("START TRANSACTION; SELECT id FROM tb_voucher_order WHERE id = 2 FOR UPDATE")
        .execute(&mut rival)
        .await?;
    let events: Vec<_> = (1..=3).map(|id| event(EventKind::Paid, id, None, 1)).collect();
    let verdicts = database.record(&events).await?;
    assert_eq!(verdicts[1], EventVerdict::Contended(Contention::Row(2.try_into()?)));
    assert!([0, 2].iter().all(|at| outcome(&verdicts[*at]) == EventOutcome::Applied));
    rival.execute("ROLLBACK").await?;
    assert_eq!(outcome(&database.record(&events).await?[1]), EventOutcome::Applied);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_another_live_order_for_the_voucher_stays_a_buyer() -> Result<()> {
    let database = Database::with_orders(2).await?;
    sqlx::raw_sql("INSERT INTO tb_voucher_order (id, user_id, voucher_id, slot) VALUES (9, 1, 1, 2)")
        .execute(&database.pool)
        .await?;
    let events = [1, 2].map(|id| event(EventKind::Cancelled, id, None, 1));
    let after = |verdict: &EventVerdict| match verdict {
        EventVerdict::Recorded { user_after, .. } => *user_after,
        other => panic!("{other:?}"),
    };
    let verdicts = database.record(&events).await?;
    assert_eq!(verdicts.iter().map(after).collect::<Vec<_>>(), [UserAfter::StaysBuyer, UserAfter::Freed]);
    Ok(())
}

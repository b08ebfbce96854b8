//! Tests of time limits for payment, on a real MySQL or MariaDB: which orders get one, from which setting, and when it
//! ends.

use std::{collections::HashSet, time::Duration};

use anyhow::Result;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions};
use tidegate_lab::{MysqlServer, RedisServer};
use tidegate_orders::{
    Event, EventKind, Incoming, KeyTemplates, Ledger, Partition, RedisStore, RestoreCounter, RestoreState,
    Verdict,
    ledger::IncomingEvent,
    schema,
    unpaid_orders::{self, Assigned},
};
use tidegate_stream::EntryId;

use crate::fixture::{connect, order};

const TIMEOUT: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
/// SQL: a table of the ten digits.
const DIGITS: &str = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 \
                      UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)";
const IN_A_DAY: &str = "(UNIX_TIMESTAMP() + 86400) * 1000";

struct Database {
    _server: MysqlServer,
    pool: MySqlPool,
    ledger: Ledger,
}

impl Database {
    /// Opens a database with the vouchers 1 (NULL), 2 (900 s) and 3 (0: never). `default` counts for vouchers without a
    /// limit of their own.
    async fn open(default: Duration) -> Result<Self> {
        let server = tokio::task::spawn_blocking(MysqlServer::shared).await??;
        let options = MySqlPoolOptions::new().max_connections(4).after_connect(|connection, _| {
            // The time zone is far from UTC, to show that it does not matter.
            Box::pin(async move {
                connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
                connection.execute("SET SESSION time_zone = '-11:00'").await?;
                Ok(())
            })
        });
        let pool = options.connect(&server.url()).await?;
        schema::migrate(&pool).await?;
        let vouchers = "INSERT INTO tb_seckill_voucher (voucher_id, stock, pay_within) \
                        VALUES (1, 1000, NULL), (2, 1000, 900), (3, 1000, 0)";
        pool.execute(vouchers).await?;
        let ledger = Ledger::new(pool.clone(), TIMEOUT).with_pay_within(default, &Partition::default());
        Ok(Self { _server: server, pool, ledger })
    }

    async fn write(&self, orders: &[Incoming]) -> Result<()> {
        let verdicts = self.ledger.record(orders).await?;
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Created), "{verdicts:?}");
        Ok(())
    }

    /// The orders with a time limit, and the seconds from their creation to its end.
    async fn limits(&self) -> Result<Vec<(i64, i64)>> {
        let sql = "SELECT u.order_id, CAST(ROUND(u.due_ms / 1000 - UNIX_TIMESTAMP(o.create_time), -1) AS SIGNED) \
                   FROM tidegate_unpaid_order u JOIN tb_voucher_order o ON o.id = u.order_id \
                   WHERE u.ask_ms = u.due_ms ORDER BY u.order_id";
        Ok(sqlx::query_as(sql).fetch_all(&self.pool).await?)
    }

    async fn run(&self, sql: &str) -> Result<()> {
        self.pool.execute(AssertSqlSafe(sql)).await?;
        Ok(())
    }

    async fn happens(&self, kind: EventKind, id: i64, at: u64) -> Result<()> {
        let event = Event {
            kind,
            order: id.try_into()?,
            user: id.try_into()?,
            voucher: 2.try_into()?,
            reference: None,
            payment: None,
            reason: None,
        };
        let entry = EntryId { ms: 1_718_000_000_000 + at, seq: id.unsigned_abs() };
        self.ledger.record_events(&[IncomingEvent { event, entry }], &HashSet::new()).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_has_a_time_limit_where_its_voucher_or_else_the_default_says_so() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    // Batches with one voucher, and with several.
    database.write(&[order(1, 1, 1), order(2, 2, 1)]).await?;
    database.write(&[order(3, 3, 2), order(4, 4, 2)]).await?;
    database.write(&[order(5, 5, 3), order(6, 6, 1), order(7, 7, 2)]).await?;
    assert_eq!(database.limits().await?, [(3, 900), (4, 900), (7, 900)]);
    let database = Database::open(MINUTE).await?;
    database.write(&[order(1, 1, 1), order(2, 2, 2), order(3, 3, 3)]).await?;
    database.write(&[order(4, 4, 3), order(5, 5, 3)]).await?;
    database.write(&[order(6, 6, 1)]).await?;
    assert_eq!(database.limits().await?, [(1, 60), (2, 900), (6, 60)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_that_somebody_changes_holds_for_the_next_batch() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    database.write(&[order(1, 1, 2)]).await?;
    for (id, pay_within) in [(2, "NULL"), (3, "300"), (4, "0"), (5, "600")] {
        database
            .run(&format!("UPDATE tb_seckill_voucher SET pay_within = {pay_within} WHERE voucher_id = 2"))
            .await?;
        database.write(&[order(id, id, 2)]).await?;
        database.run("UPDATE tb_seckill_voucher SET pay_within = 60 WHERE voucher_id = 2").await?;
        // Batches with another voucher beside it.
        database.write(&[order(id + 10, id + 10, 2), order(id + 20, id + 20, 1)]).await?;
    }
    let limits = [(1, 900), (3, 300), (5, 600), (12, 60), (13, 60), (14, 60), (15, 60)];
    assert_eq!(database.limits().await?, limits);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_ends_when_its_order_moves_on_or_has_been_moved_by_somebody() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    let orders: Vec<Incoming> = (1..=8).map(|id| order(id, id, 2)).collect();
    database.write(&orders).await?;
    database.happens(EventKind::Used, 1, 1).await?;
    assert_eq!(database.limits().await?.len(), 8, "an event that is rejected leaves it");
    database.happens(EventKind::Paid, 1, 2).await?;
    database.happens(EventKind::Cancelled, 2, 1).await?;
    database.happens(EventKind::Expired, 3, 1).await?;
    let left = |ids: [i64; 5]| ids.map(|id| (id, 900)).to_vec();
    assert_eq!(database.limits().await?, left([4, 5, 6, 7, 8]));
    database.run("UPDATE tb_voucher_order SET status = 2 WHERE id = 4").await?;
    database.run("UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 5").await?;
    database.run("UPDATE tb_voucher_order SET slot = NULL WHERE id = 6").await?;
    database.run("UPDATE tb_voucher_order SET user_id = 66 WHERE id = 7").await?;
    database.run("DELETE FROM tb_voucher_order WHERE id = 8").await?;
    for id in 4..=8 {
        database.happens(EventKind::Expired, id, 1).await?;
    }
    let count: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM tidegate_unpaid_order").fetch_one(&database.pool).await?;
    assert_eq!(count, 0, "nobody asks for them again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_found_once_and_again_after_a_pause() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    let mut session = database.pool.acquire().await?;
    assert_eq!(unpaid_orders::next_in(&mut session, &Partition::default()).await?, None);
    database.write(&[order(3, 3, 2), order(1, 1, 2), order(2, 2, 2)]).await?;
    let next_in = unpaid_orders::next_in(&mut session, &Partition::default()).await?.expect("there are some");
    assert!(next_in > Duration::from_secs(890) && next_in <= Duration::from_secs(900), "{next_in:?}");
    database
        .run("UPDATE tidegate_unpaid_order SET ask_ms = due_ms - 900000 - order_id, due_ms = ask_ms")
        .await?;
    assert_eq!(unpaid_orders::next_in(&mut session, &Partition::default()).await?, Some(Duration::ZERO));
    let due = unpaid_orders::due(&mut session, &Partition::default(), 2).await?;
    let ids: Vec<i64> = due.iter().map(|due| due.order.get()).collect();
    assert_eq!(ids, [3, 2], "who waits for longest comes first");
    let orders: Vec<_> = due.iter().map(|due| due.order).collect();
    unpaid_orders::ask_again(&mut session, &orders, MINUTE).await?;
    assert_eq!(unpaid_orders::due(&mut session, &Partition::default(), 9).await?.len(), 1);
    let summary = unpaid_orders::summary(&mut session, &Partition::default()).await?;
    assert_eq!((summary.orders, summary.overdue), (3, 3));
    assert!(summary.overdue_s > 0.0 && summary.overdue_s < 60.0, "{summary:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_order_is_seen_behind_any_number_of_orders_that_have_time() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    let (digits, in_a_day) = (DIGITS, IN_A_DAY);
    let many = format!(
        "INSERT INTO tidegate_unpaid_order (order_id, user_id, voucher_id, due_ms, ask_ms, partition_code) \
         SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d, 1, 1, {in_a_day}, {in_a_day}, 64 \
         FROM {digits} a, {digits} b, {digits} c, {digits} d, {digits} e"
    );
    database.run(&many).await?;
    database.run("INSERT INTO tidegate_unpaid_order VALUES (200000, 1, 1, 1000, 1000, 64)").await?;
    let mut session = database.pool.acquire().await?;
    let summary = unpaid_orders::summary(&mut session, &Partition::default()).await?;
    assert_eq!((summary.orders, summary.overdue), (unpaid_orders::SUMMED_UP.into(), 1));
    assert_eq!(summary.oldest_due_ms, Some(1000));
    Ok(())
}

/// The partitions of a system with this many.
fn partitions(count: usize) -> Vec<Partition> {
    Partition::all(&(0..count).map(|tag| tag.to_string()).collect::<Vec<_>>())
}

/// The rows that a session reads in `work`, by indexes or in whole tables.
async fn rows_read<T>(
    session: &mut MySqlConnection,
    work: impl AsyncFnOnce(&mut MySqlConnection) -> sqlx::Result<T>,
) -> Result<(i64, T)> {
    let counted = async |session: &mut MySqlConnection| -> Result<i64> {
        let rows: Vec<(String, String)> =
            sqlx::query_as("SHOW SESSION STATUS LIKE 'Handler_read%'").fetch_all(session).await?;
        rows.iter().map(|(_, count)| Ok(count.parse::<i64>()?)).sum()
    };
    let (first, second) = (counted(session).await?, counted(session).await?);
    let done = work(session).await?;
    let third = counted(session).await?;
    // Reading the counters costs rows, too.
    Ok((third - second - (second - first), done))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_reads_no_rows_of_other_partitions_however_many_are_due_there() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    let partitions = partitions(12);
    // All orders are due, and none expires. Voucher 12 is the first partition's.
    let code = partitions[0].code_in_sql("(1 + id % 11)");
    database
        .run(&format!(
            "INSERT INTO tidegate_unpaid_order (order_id, user_id, voucher_id, due_ms, ask_ms, partition_code) \
             SELECT id, 1, 1 + id % 11, id, id, {code} FROM \
             (SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d id \
             FROM {DIGITS} a, {DIGITS} b, {DIGITS} c, {DIGITS} d, {DIGITS} e, {DIGITS} f WHERE f.d < 3) ids"
        ))
        .await?;
    database
        .run(&format!(
            "INSERT INTO tidegate_unpaid_order VALUES (1000000, 1, 12, {IN_A_DAY}, {IN_A_DAY}, {})",
            partitions[0].code()
        ))
        .await?;
    let mut session = database.pool.acquire().await?;
    let own = &partitions[0];
    let (rows, found) = rows_read(&mut session, async |session| {
        let assigned = unpaid_orders::assign(session, own).await?;
        let next_in = unpaid_orders::next_in(session, own).await?;
        let due = unpaid_orders::due(session, own, 1_000).await?;
        unpaid_orders::ask_at_once(session, own).await?;
        let summary = unpaid_orders::summary(session, own).await?;
        Ok((assigned, next_in > Some(MINUTE), due.len(), summary.orders))
    })
    .await?;
    assert_eq!(found, (Assigned::All, true, 0, 1));
    assert!(rows <= 50, "{rows} rows were read for one");
    let (rows, due) =
        rows_read(&mut session, async |session| unpaid_orders::due(session, &partitions[5], 1_000).await)
            .await?;
    assert_eq!(due.len(), 1_000);
    assert!(rows <= 1_050, "{rows} rows were read for 1,000");
    assert!(due.iter().all(|order| partitions[5].owns(order.voucher)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_found_by_the_partition_of_its_voucher_whichever_partition_wrote_it() -> Result<()> {
    let mut database = Database::open(Duration::ZERO).await?;
    let partitions = partitions(3);
    database.ledger = database.ledger.with_pay_within(MINUTE, &partitions[2]);
    database.write(&[order(1, 1, 1), order(2, 2, 2)]).await?;
    database.write(&[order(4, 4, 1)]).await?;
    database.run("UPDATE tidegate_unpaid_order SET due_ms = order_id, ask_ms = order_id").await?;
    let mut session = database.pool.acquire().await?;
    for (partition, expected) in partitions.iter().zip([vec![], vec![1, 4], vec![2]]) {
        let due = unpaid_orders::due(&mut session, partition, 9).await?;
        assert_eq!(due.iter().map(|due| due.order.get()).collect::<Vec<_>>(), expected, "{partition}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_lacks_its_partition_is_assigned_and_one_that_is_held_stops_no_other() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    let (three, twelve) = (partitions(3), partitions(12));
    // Workers of earlier versions write and read rows like these without an error.
    let values: Vec<String> = (1..=2_500).map(|id| format!("({id},1,{},{id},{id})", 1 + id % 12)).collect();
    let (columns, values) = ("order_id,user_id,voucher_id,due_ms,ask_ms", values.join(","));
    database.run(&format!("REPLACE INTO tidegate_unpaid_order ({columns}) VALUES {values}")).await?;
    let before = "SELECT order_id FROM tidegate_unpaid_order FORCE INDEX (idx_ask) \
                  WHERE ask_ms <= 9000 AND voucher_id % 3 = 1 ORDER BY ask_ms LIMIT 2";
    let found: Vec<i64> = sqlx::query_scalar(before).fetch_all(&database.pool).await?;
    assert_eq!(found, [3, 6]);

    let mut session = database.pool.acquire().await?;
    let shown = unpaid_orders::summary(&mut session, &three[1]).await?;
    assert_eq!((shown.orders, shown.overdue), (833, 833), "before any sweeper has looked");
    let mut other = database.pool.begin().await?;
    let held = sqlx::query("SELECT order_id FROM tidegate_unpaid_order WHERE order_id = 9 FOR UPDATE");
    held.execute(&mut *other).await?;
    let mut calls = 1;
    while unpaid_orders::assign(&mut session, &three[2]).await? == Assigned::Some {
        calls += 1;
    }
    assert_eq!(calls, 3);
    let lacks = "SELECT order_id FROM tidegate_unpaid_order WHERE partition_code <> 192 + voucher_id % 3";
    assert_eq!(sqlx::query_scalar::<_, i64>(lacks).fetch_all(&database.pool).await?, [9]);
    assert_eq!(unpaid_orders::due(&mut session, &three[1], 3_000).await?.len(), 832);
    other.rollback().await?;
    assert_eq!(unpaid_orders::assign(&mut session, &three[0]).await?, Assigned::All);
    assert_eq!(sqlx::query_scalar::<_, i64>(lacks).fetch_all(&database.pool).await?, [0; 0]);

    // Other lists, with more partitions and with fewer.
    for (list, expected) in [(&twelve, 208), (&three, 833)] {
        while unpaid_orders::assign(&mut session, &list[0]).await? == Assigned::Some {}
        assert_eq!(unpaid_orders::due(&mut session, &list[1], 3_000).await?.len(), expected);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mark_shows_which_store_went_back_until_both_are_marked_anew() -> Result<()> {
    let database = Database::open(Duration::ZERO).await?;
    let redis = RedisServer::start()?;
    let pool = connect(&redis.url(), 1).await?;
    let counter = RestoreCounter::new(RedisStore::with_default_names(pool.clone(), KeyTemplates::default()));
    let mut session = database.pool.acquire().await?;
    assert_eq!(counter.read(&mut session).await?.state(), RestoreState::Whole, "before the first raise");
    for _ in 0..3 {
        assert_eq!(counter.raise(&mut session).await?, RestoreState::Whole);
    }
    let counters = counter.read(&mut session).await?;
    assert_eq!((counters.mark, counters.confirmed, counters.redis), (3, 3, 3));
    let redis_has = async |words: &str| {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let command =
            fred::types::CustomCommand::new(words[0].clone(), fred::types::ClusterHash::Random, false);
        fred::interfaces::ClientLike::custom::<fred::types::Value, _>(&pool, command, words[1..].to_vec())
            .await
    };
    let mysql_has = async |mark: i64| {
        database.run(&format!("UPDATE tidegate_fleet_mark SET mark = {mark}, confirmed = {mark}")).await
    };
    for lost in [
        "FLUSHALL",
        "SET tidegate:mark 2",
        "SET tidegate:mark rubbish",
        "SET tidegate:mark 9223372036854775807",
    ] {
        redis_has(lost).await?;
        for _ in 0..2 {
            assert_eq!(counter.raise(&mut session).await?, RestoreState::RedisWentBack, "{lost}");
        }
        let counters = counter.renew(&mut session).await?;
        assert_eq!(
            (counters.state(), counter.raise(&mut session).await?),
            (RestoreState::Whole, RestoreState::Whole)
        );
    }
    for older in [1, 0] {
        mysql_has(older).await?;
        for _ in 0..2 {
            assert_eq!(counter.raise(&mut session).await?, RestoreState::MySqlWentBack, "{older}");
        }
        assert_eq!(counter.renew(&mut session).await?.state(), RestoreState::Whole);
        assert_eq!(counter.raise(&mut session).await?, RestoreState::Whole);
    }
    // As if a process had died between two steps.
    database.run("UPDATE tidegate_fleet_mark SET mark = mark + 1").await?;
    assert_eq!(counter.raise(&mut session).await?, RestoreState::Whole);
    Ok(())
}

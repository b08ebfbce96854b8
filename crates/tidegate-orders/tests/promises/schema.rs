//! Tests of `migrate`, on a real MySQL or MariaDB.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, MySqlPool, Row, mysql::MySqlPoolOptions};
use tidegate_lab::MysqlServer;
use tidegate_orders::schema::{self, MigrateError, SchemaProblem};

/// The tutorial's two tables, with a voucher.
const TUTORIAL: &str = concat!(
    include_str!("../../../../tests/tutorial/tables.sql"),
    "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time)
      VALUES (10, 98, '2022-01-25 10:09:17', '2022-01-26 12:09:04');"
);

struct Database {
    pool: MySqlPool,
    server: Arc<MysqlServer>,
}

impl Database {
    async fn empty() -> Result<Self> {
        let server = tokio::task::spawn_blocking(MysqlServer::start).await??;
        let pool = MySqlPoolOptions::new().max_connections(8).connect(&server.url()).await?;
        Ok(Self { pool, server: Arc::new(server) })
    }

    /// Starts a server with these additional arguments.
    async fn with_args<const N: usize>(args: [&'static str; N]) -> Result<Self> {
        let start = move || MysqlServer::options().args(args).start();
        let server = tokio::task::spawn_blocking(start).await??;
        let pool = MySqlPool::connect(&server.url()).await?;
        Ok(Self { pool, server: Arc::new(server) })
    }

    async fn of_the_tutorial() -> Result<Self> {
        let database = Self::empty().await?;
        database.run(TUTORIAL).await?;
        Ok(database)
    }

    /// A second database on the same server.
    async fn another(&self, name: &str) -> Result<Self> {
        self.run(&format!("CREATE DATABASE {name}")).await?;
        let url = with_database(&self.server.url(), name)?;
        Ok(Self { pool: MySqlPool::connect(&url).await?, server: self.server.clone() })
    }

    async fn run(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.with_context(|| sql.to_owned())?;
        Ok(())
    }

    /// Inserts orders: id, user, voucher, status.
    async fn insert(&self, orders: &[(i64, i64, i64, i64)]) -> Result<()> {
        for (id, user, voucher, status) in orders {
            let values = format!("({id}, {user}, {voucher}, {status}, '2022-02-03 04:05:06')");
            let columns = "id, user_id, voucher_id, status, update_time";
            self.run(&format!("INSERT INTO tb_voucher_order ({columns}) VALUES {values}")).await?;
        }
        Ok(())
    }

    async fn number(&self, sql: &str) -> Result<i64> {
        let sql = format!("SELECT CAST(({sql}) AS SIGNED)");
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?)
    }

    /// The definition and all rows of every table.
    async fn everything(&self) -> Result<Vec<String>> {
        let mut everything = Vec::new();
        let tables = sqlx::query("SHOW TABLES").fetch_all(&self.pool).await?;
        for table in tables {
            let table: String = table.try_get(0)?;
            let show = format!("SHOW CREATE TABLE {table}");
            let row = sqlx::query(AssertSqlSafe(show)).fetch_one(&self.pool).await?;
            everything.push(row.try_get(1)?);
            let checksum = format!("CHECKSUM TABLE {table}");
            let row = sqlx::query(AssertSqlSafe(checksum)).fetch_one(&self.pool).await?;
            everything.push(format!("{table}: {:?}", row.try_get::<Option<i64>, _>(1)?));
        }
        Ok(everything)
    }

    async fn migrate_is_refused(&self) -> Result<(Vec<SchemaProblem>, String)> {
        let before = self.everything().await?;
        let error = schema::migrate(&self.pool).await.err().context("it must be refused")?;
        assert_eq!(self.everything().await?, before, "a refused migration changes nothing");
        let text = error.to_string();
        let MigrateError::Unfit { problems, applied, .. } = error else { anyhow::bail!("{error}") };
        assert!(applied.is_empty());
        Ok((problems, text))
    }
}

fn with_database(url: &str, name: &str) -> Result<String> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (host, _) = address.rsplit_once('/').context("a URL ends with /database")?;
    Ok(format!("{host}/{name}?{query}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_gets_everything_and_a_second_run_does_nothing() -> Result<()> {
    let database = Database::empty().await?;
    let before = schema::check(&database.pool).await?;
    assert!(!before.is_ready() && !before.unique_key);
    // The tables that `migrate` creates already have their defaults.
    let changes = schema::all_steps().filter(|change| !change.what.starts_with("give "));
    assert_eq!(before.missing, changes.collect::<Vec<_>>());

    let report = schema::migrate(&database.pool).await?;
    assert_eq!(report.applied, before.missing);
    let after = schema::check(&database.pool).await?;
    assert!(after.is_ready() && after.unique_key, "{after:?}");
    assert_eq!(database.number("SELECT COUNT(*) FROM tidegate_probe WHERE id = 1").await?, 1);

    let first = database.everything().await?;
    assert_eq!(schema::migrate(&database.pool).await?.applied, []);
    assert_eq!(database.everything().await?, first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_migrations_at_once_do_the_work_once() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    let runs = (0..4).map(|_| {
        tokio::spawn({
            let pool = database.pool.clone();
            async move { schema::migrate(&pool).await }
        })
    });
    let mut applied = 0;
    for run in runs.collect::<Vec<_>>() {
        applied += run.await??.applied.len();
    }
    assert_eq!(applied, schema::all_steps().count() - 4, "each missing step once, over all runs");
    assert!(schema::check(&database.pool).await?.is_ready());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_too_long_says_who_is_in_the_way() -> Result<()> {
    let database = Database::empty().await?;
    let mut holder = database.pool.acquire().await?;
    let name = "CONCAT('tidegate.migrate:', DATABASE())";
    let sql = format!("SELECT CONNECTION_ID(), GET_LOCK({name}, 0)");
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut *holder).await?;
    let connection: u64 =
        row.try_get::<u64, _>(0).or_else(|_| row.try_get::<i64, _>(0).map(|id| id as u64))?;

    let error = schema::migrate_waiting(&database.pool, Duration::from_secs(1)).await.unwrap_err();
    assert!(error.to_string().contains(&format!("connection {connection}")), "{error}");
    assert_eq!(database.everything().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorials_tables_are_taken_over_with_their_rows() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    database.insert(&[(1, 100, 10, 1), (2, 101, 10, 2), (3, 100, 11, 3)]).await?;
    let report = schema::migrate(&database.pool).await?;
    assert!(!report.applied.iter().any(|change| change.what.starts_with("create tb_")), "{report:?}");
    assert!(schema::check(&database.pool).await?.is_ready());

    let rows = "SELECT COUNT(*) FROM tb_voucher_order WHERE quantity = 1 AND slot = 1 AND entry_id IS NULL";
    assert_eq!(database.number(rows).await?, 3);
    let kept = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 10 AND initial_stock IS NULL";
    assert_eq!(database.number(kept).await?, 98);
    // The tutorial's own insert still works, and from now on its second order is refused.
    database.insert(&[(4, 102, 10, 1)]).await?;
    assert!(database.insert(&[(5, 102, 10, 1)]).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_refunded_orders_do_not_stand_in_the_way() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    database.insert(&[(1, 100, 10, 4), (2, 100, 10, 6), (3, 100, 10, 1), (4, 100, 10, 4)]).await?;
    schema::migrate(&database.pool).await?;
    let freed = "SELECT COUNT(*) FROM tb_voucher_order WHERE slot IS NULL AND status IN (4, 6)";
    assert_eq!(database.number(freed).await?, 3);
    let untouched = "SELECT COUNT(*) FROM tb_voucher_order WHERE update_time = '2022-02-03 04:05:06'";
    assert_eq!(database.number(untouched).await?, 4, "nothing has happened to these orders");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn live_duplicates_stop_it_with_a_list_and_nothing_is_changed() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    database.insert(&[(1, 100, 10, 1), (2, 100, 10, 2), (3, 100, 10, 4), (4, 7, 10, 1)]).await?;
    let many: Vec<_> = (0..60)
        .flat_map(|user| [(1000 + user, 500 + user, 20, 1), (2000 + user, 500 + user, 20, 5)])
        .collect();
    database.insert(&many).await?;

    let state = schema::check(&database.pool).await?;
    let (problems, text) = database.migrate_is_refused().await?;
    assert_eq!(state.problems, problems);
    let [SchemaProblem::Duplicates(duplicates)] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!((duplicates.slots, duplicates.orders, duplicates.listed.len()), (61, 122, 50));
    assert_eq!(duplicates.listed[0].order_ids, ["1", "2"]);
    assert!(text.contains("voucher 10 user 100: orders 1, 2\n"), "{text}");
    assert!(text.contains("and 11 more slots"), "{text}");

    database.run("UPDATE tb_voucher_order SET status = 4 WHERE id = 2 OR id BETWEEN 2000 AND 2999").await?;
    schema::migrate(&database.pool).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_died_at_any_step_is_finished_by_the_next() -> Result<()> {
    let database = Database::empty().await?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
    let changes = schema::check(&database.pool).await?.missing;
    for died_after in 1..changes.len() {
        let half = database.another(&format!("died_after_{died_after}")).await?;
        for change in &changes[..died_after] {
            half.run(&std::fs::read_to_string(format!("{folder}/{}.sql", change.file))?).await?;
        }
        let applied = schema::migrate(&half.pool).await?.applied;
        assert!(applied.ends_with(&changes[died_after..]), "{applied:?}");
        assert!(schema::check(&half.pool).await?.is_ready());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_and_tables_that_mean_something_else_stop_it_all_at_once() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    database
        .run(
            "ALTER TABLE tb_voucher_order ADD COLUMN quantity DECIMAL(10, 2) NULL, ADD COLUMN slot VARCHAR(20) NULL,
               ADD COLUMN order_no VARCHAR(32) NOT NULL, ADD KEY uk_voucher_user_slot (user_id);
             ALTER TABLE tb_seckill_voucher ENGINE = MyISAM, DROP COLUMN end_time,
               DROP PRIMARY KEY, ADD COLUMN id INT NOT NULL PRIMARY KEY;
             CREATE TABLE tidegate_voucher_units (loaded INT NOT NULL);",
        )
        .await?;
    let (_, text) = database.migrate_is_refused().await?;
    for expected in [
        "tb_seckill_voucher is a MyISAM table",
        "tb_seckill_voucher has the primary key (id), but the key must be (voucher_id)",
        "tb_seckill_voucher.end_time is missing",
        "tb_voucher_order.quantity is `decimal(10,2) null`",
        "tb_voucher_order.slot is `varchar(20) null`",
        "tb_voucher_order.order_no is NOT NULL without a default",
        "key uk_voucher_user_slot over (user_id)",
        "tidegate_voucher_units is a base table, but it must be the view of Tidegate's migration",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_unique_keys_are_reported() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    database.run("ALTER TABLE tb_voucher_order ADD UNIQUE KEY uk_user_voucher (user_id, voucher_id)").await?;
    let report = schema::migrate(&database.pool).await?;
    assert_eq!(report.other_unique_keys, ["uk_user_voucher (user_id, voucher_id)"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_is_named_with_what_to_type() -> Result<()> {
    let server = tokio::task::spawn_blocking(MysqlServer::start).await??;
    let url = server.url();
    let pool = MySqlPoolOptions::new().connect_lazy(&with_database(&url, "nowhere")?)?;
    let error = schema::migrate(&pool).await.unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("CREATE DATABASE"), "{error}");
    let pool = MySqlPoolOptions::new().connect_lazy(&with_database(&url, "")?)?;
    let error = schema::migrate(&pool).await.unwrap_err().to_string();
    assert!(error.contains("names no database"), "{error}");
    Ok(())
}

/// Rows as the commonest dump leaves them, which relaxes sql_mode: unset times are zeros.
const ZERO_DATES: &str = "SET SESSION sql_mode = '';
    ALTER TABLE tb_seckill_voucher ALTER COLUMN begin_time SET DEFAULT '0000-00-00 00:00:00',
        ALTER COLUMN end_time SET DEFAULT '0000-00-00 00:00:00';
    ALTER TABLE tb_voucher_order MODIFY COLUMN pay_time TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00';
    INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (11, 5);
    INSERT INTO tb_voucher_order (id, user_id, voucher_id, status, update_time)
        VALUES (1, 100, 11, 4, '0000-00-00 00:00:00'), (2, 100, 11, 1, '0000-00-00 00:00:00');
    SET SESSION sql_mode = DEFAULT;";

#[tokio::test(flavor = "multi_thread")]
async fn tables_with_zeros_for_moments_are_taken_over_by_a_server_that_takes_none() -> Result<()> {
    let database = Database::with_args(["--sql-mode=TRADITIONAL"]).await?;
    database.run(TUTORIAL).await?;
    database.run(ZERO_DATES).await?;
    let planned = schema::check(&database.pool).await?;
    assert_eq!(planned.problems, []);
    assert_eq!(schema::migrate(&database.pool).await?.applied, planned.missing);
    let zeros = "SELECT COUNT(*) FROM tb_voucher_order WHERE CAST(update_time AS CHAR) LIKE '0000-00-00%'";
    assert_eq!(database.number(zeros).await?, 2, "rows are as they were");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_has_a_status_and_a_time_although_the_tables_had_no_defaults_for_them() -> Result<()> {
    for null in ["NULL", "NOT NULL"] {
        let database = Database::of_the_tutorial().await?;
        let columns = format!(
            "ALTER TABLE tb_voucher_order MODIFY COLUMN status TINYINT {null}, MODIFY COLUMN create_time DATETIME {null};
             INSERT INTO tb_voucher_order (id, user_id, voucher_id, status, create_time)
             VALUES (1, 100, 10, 2, '2022-02-03 04:05:06')"
        );
        database.run(&columns).await?;
        let planned = schema::check(&database.pool).await?;
        assert_eq!(planned.problems, [], "{null}");
        let applied = schema::migrate(&database.pool).await?.applied;
        let given: Vec<_> = applied.iter().filter(|change| change.what.starts_with("give ")).collect();
        assert_eq!(given.len(), 2, "{applied:?}");
        database.run("INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (2, 101, 10)").await?;
        let unpaid = "SELECT COUNT(*) FROM tb_voucher_order WHERE id = 2 AND status = 1 \
                      AND create_time > NOW() - INTERVAL 1 HOUR";
        assert_eq!(database.number(unpaid).await?, 1, "{null}");
        let kept = "SELECT COUNT(*) FROM tb_voucher_order WHERE id = 1 AND status = 2 \
                    AND create_time = '2022-02-03 04:05:06'";
        assert_eq!(database.number(kept).await?, 1, "{null}");
        assert_eq!(schema::migrate(&database.pool).await?.applied, []);
    }
    Ok(())
}

/// The statement of `migrations/README.md` with which a service cancels, for this order.
fn cancel(order: i64) -> Result<String> {
    let readme = include_str!("../../../../migrations/README.md");
    let (_, block) = readme.split_once("```sql\n").context("a block of SQL")?;
    let (statement, _) = block.split_once("```").context("its end")?;
    assert!(statement.contains("658234985123840001"));
    Ok(statement.replace("658234985123840001", &order.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_cancel_gives_units_back_once_and_never_those_of_a_paid_order() -> Result<()> {
    let database = Database::of_the_tutorial().await?;
    schema::migrate(&database.pool).await?;
    let stock = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 10";
    let rows = |condition: &str| format!("SELECT COUNT(*) FROM tb_voucher_order WHERE {condition}");

    // The cancellation comes before its order has a row. Then the row comes.
    database.run(&cancel(1)?).await?;
    assert_eq!(database.number(stock).await?, 98);
    database.insert(&[(1, 100, 10, 1), (2, 101, 10, 2), (3, 102, 10, 5), (4, 103, 11, 1)]).await?;
    database.run("UPDATE tb_voucher_order SET quantity = 3").await?;
    assert_eq!(database.number(&rows("id = 1 AND status = 1 AND slot = 1")).await?, 1);
    for _ in 0..2 {
        database.run(&cancel(1)?).await?;
        assert_eq!(database.number(stock).await?, 101, "its three units, once");
        assert_eq!(database.number(&rows("id = 1 AND status = 4 AND slot IS NULL")).await?, 1);
    }
    for order in [2, 3] {
        database.run(&cancel(order)?).await?;
    }
    assert_eq!(database.number(&rows("id IN (2, 3) AND status IN (2, 5) AND slot = 1")).await?, 2);
    assert_eq!(database.number(stock).await?, 101, "paid, or being refunded");
    // An order of a voucher without a row.
    database.run(&cancel(4)?).await?;
    assert_eq!(database.number(&rows("id = 4 AND status = 4 AND slot IS NULL")).await?, 1);
    // The user may order again.
    database.insert(&[(5, 100, 10, 1)]).await?;
    Ok(())
}

//! Tests of `tidegate migrate`: its output. `schema.rs` tests its changes of the tables.

use std::process::Output;

use serde_json::Value;
use sqlx::MySqlPool;
use tidegate_lab::{MysqlServer, RedisServer};

use crate::fixture::{program, until};

const TUTORIAL: &str = concat!(
    include_str!("../tutorial/tables.sql"),
    "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (9007199254740993, 5, 10), (2, 5, 10), (3, 6, 10);"
);

fn migrate(url: &str, args: &[&str]) -> Output {
    program()
        .env("TIDEGATE_MYSQL_URL", url)
        // No server listens there: the log line must not reach another Redis on this machine.
        .env("TIDEGATE_REDIS_URL", "redis://127.0.0.1:1")
        .arg("migrate")
        .args(args)
        .output()
        .expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_a_run_says_what_it_did_and_the_next_that_there_is_nothing_to_do() {
    let mysql = MysqlServer::shared().expect("a database");
    let dry = migrate(&mysql.url(), &["--dry-run"]);
    assert!(dry.status.success(), "{dry:?}");
    let steps = tidegate_orders::schema::all_steps().filter(|change| !change.what.starts_with("give "));
    assert!(stdout(&dry).contains(&format!("{} steps to do", steps.count())), "{dry:?}");
    assert!(stdout(&dry).contains("Nothing was changed (dry run)"), "{dry:?}");
    let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
    let tables = sqlx::query("SHOW TABLES").fetch_all(&pool).await.expect("MySQL answers");
    assert!(tables.is_empty());

    let first = migrate(&mysql.url(), &[]);
    assert!(first.status.success() && stdout(&first).contains("create tb_voucher_order"), "{first:?}");
    let again = migrate(&mysql.url(), &["--json"]);
    let json: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!((again.status.code(), &json["applied"]), (Some(0), &Value::Array(Vec::new())));
    assert!(stdout(&migrate(&mysql.url(), &[])).contains("nothing to do"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_at_work_is_waited_for_and_its_half_tables_are_no_fault() {
    let mysql = MysqlServer::start().expect("a MySQL");
    let url = mysql.url();
    let pool = MySqlPool::connect(&url).await.expect("MySQL answers");
    let mut other = pool.acquire().await.expect("a connection");
    let lock = "SELECT CAST(GET_LOCK(CONCAT('tidegate.migrate:', DATABASE()), 0) AS SIGNED)";
    let locked: i64 = sqlx::query_scalar(lock).fetch_one(&mut *other).await.expect("MySQL answers");
    assert_eq!(locked, 1);
    let half = "CREATE TABLE tb_voucher_order (half INT)";
    sqlx::query(half).execute(&mut *other).await.expect("a table");
    let second = tokio::task::spawn_blocking(move || migrate(&url, &["--yes"]));
    until("it waits", || async {
        let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%GET_LOCK%' AND \
                   id <> CONNECTION_ID()";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&pool).await.expect("MySQL answers") == 1
    })
    .await;
    sqlx::query("DROP TABLE tb_voucher_order").execute(&mut *other).await.expect("it is gone");
    sqlx::query("DO RELEASE_ALL_LOCKS()").execute(&mut *other).await.expect("MySQL answers");
    let output = second.await.expect("it ends");
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_listed_with_ids_that_lose_no_digit_and_the_exit_code_is_1() {
    let mysql = MysqlServer::shared().expect("a database");
    let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
    sqlx::raw_sql(TUTORIAL).execute(&pool).await.expect("the tables are made");
    let refused = migrate(&mysql.url(), &[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let text = stdout(&refused);
    assert!(text.contains("2 live orders share one slot"), "{text}");
    assert!(text.contains("raise `stock` by the cancelled units (docs/takeover.md, step 3)"), "{text}");
    assert!(text.contains("voucher 10 user 5: orders 2, 9007199254740993"), "{text}");
    let refused = migrate(&mysql.url(), &["--json"]);
    let json: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert_eq!(json["problems"][0]["listed"][0]["order_ids"][1], "9007199254740993", "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_is_named_with_what_to_type() {
    let mysql = MysqlServer::shared().expect("a database");
    let url = mysql.url();
    let (address, query) = url.split_once('?').unwrap_or((&url, ""));
    let url = format!("{address}_nowhere?{query}");
    let failed = migrate(&url, &[]);
    let error = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    assert!(error.contains("_nowhere") && error.contains("CREATE DATABASE"), "{error}");
}

/// Runs the program on these servers to its end.
fn tidegate(redis: &str, mysql: &str, args: &[&str]) -> Output {
    let mut command = program();
    command.env("TIDEGATE_REDIS_URL", redis).env("TIDEGATE_MYSQL_URL", mysql);
    command.args(args).output().expect("the program runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reported_as_done_is_there_although_the_server_commits_nothing_by_itself() {
    let args = ["--autocommit=0", "--completion-type=CHAIN"];
    let mysql = MysqlServer::options().args(args).start().expect("a MySQL");
    let redis = RedisServer::start().expect("a Redis");
    let migrated = tidegate(&redis.url(), &mysql.url(), &["migrate"]);
    assert!(migrated.status.success(), "{migrated:?}");
    let loaded =
        tidegate(&redis.url(), &mysql.url(), &["voucher", "load", "--voucher", "7", "--stock", "100"]);
    assert!(loaded.status.success(), "{loaded:?}");
    let pool = MySqlPool::connect(&mysql.url()).await.expect("MySQL answers");
    let rows = "SELECT (SELECT COUNT(*) FROM tidegate_probe), (SELECT COUNT(*) FROM tb_seckill_voucher)";
    let rows: (i64, i64) = sqlx::query_as(rows).fetch_one(&pool).await.expect("MySQL answers");
    assert_eq!(rows, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_are_reached_by_their_ipv6_addresses() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let mysql = MysqlServer::options().args(["--bind-address=*"]).start().expect("a MySQL");
    let redis = RedisServer::options().args(["--bind", "127.0.0.1", "::1"]).start().expect("a Redis");
    let by_ipv6 = |url: String| url.replace("127.0.0.1", "[::1]");
    let (redis, mysql) = (by_ipv6(redis.url()), by_ipv6(mysql.url()));
    let migrated = tidegate(&redis, &mysql, &["migrate"]);
    assert!(migrated.status.success(), "{migrated:?}");
    let loaded = tidegate(&redis, &mysql, &["voucher", "load", "--voucher", "7", "--stock", "100"]);
    assert!(loaded.status.success(), "{loaded:?}");
}

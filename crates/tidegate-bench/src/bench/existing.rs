//! The orders of earlier sales, loaded fast: millions of rows in seconds.

use anyhow::Result;
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::{
    fixture::{Fixture, Tables},
    orders::{FIRST_ID, FIRST_NEW, SPREAD, USERS},
};

const PART: u64 = 1_000_000;

/// Creates the grown tables again, with `count` orders of voucher 1, whose users lie between those of new orders.
pub async fn load(fixture: &mut Fixture, count: u64) -> Result<()> {
    assert!(count < FIRST_NEW as u64, "the numbers above are those of new orders");
    let mut session = fixture.connect(Tables::Grown).await?;
    let name: String = sqlx::query_scalar("SELECT DATABASE()").fetch_one(&mut session).await?;
    let anew = format!("DROP DATABASE {name}; CREATE DATABASE {name} CHARACTER SET utf8mb4; USE {name}");
    sqlx::raw_sql(AssertSqlSafe(anew)).execute(&mut session).await?;
    for sql in super::fixture::TUTORIAL_TABLES[..2].iter().chain(&[
        "SET SESSION sql_log_bin = 0",
        "CREATE TABLE digit (d BIGINT NOT NULL)",
        "INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    ]) {
        sqlx::raw_sql(*sql).execute(&mut session).await?;
    }
    for begin in (0..count).step_by(PART as usize) {
        load_part(&mut session, begin, count).await?;
    }
    sqlx::raw_sql("DROP TABLE digit").execute(&mut session).await?;

    // The unique key is built last, from sorted rows, which is fast. Its pages are left as full as after single
    // inserts; full pages would have to be split by the next orders.
    sqlx::raw_sql("SET GLOBAL innodb_fill_factor = 70").execute(&mut session).await?;
    fixture.migrate(Tables::Grown)?;
    sqlx::raw_sql("SET GLOBAL innodb_fill_factor = 100").execute(&mut session).await?;
    Ok(())
}

async fn load_part(session: &mut MySqlConnection, begin: u64, count: u64) -> Result<()> {
    let sql = format!(
        "INSERT INTO tb_voucher_order (id, user_id, voucher_id) \
         SELECT {FIRST_ID} + n, 1 + (n * {SPREAD}) % {USERS}, 1 FROM ( \
           SELECT {begin} + 1 + a.d * 100000 + b.d * 10000 + c.d * 1000 + e.d * 100 + f.d * 10 + g.d AS n \
           FROM digit a, digit b, digit c, digit e, digit f, digit g) numbers \
         WHERE n <= {count} ORDER BY n"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(session).await?;
    Ok(())
}

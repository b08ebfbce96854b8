//! Orders that are not paid in time: how fast they expire, and what that costs other orders.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection};
use tidegate_orders::Partition;
use tokio::time::sleep;

use crate::bench::{
    fixture::{Fixture, STOCK, Tables},
    orders::{FIRST_ID, FIRST_NEW, Orders},
    results::trouble::Expirations,
    workers::{Shape, Workers},
};

const PER_SECOND: usize = 5_000;
const VOUCHER: i64 = 2;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time by which due orders have begun to expire.
const FIRST_WITHIN: Duration = Duration::from_secs(2);
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Limits the time to pay for orders of a voucher, from now on.
pub async fn limit(fixture: &Fixture, voucher: i64, seconds: u32) -> Result<()> {
    let sql = format!("UPDATE tb_seckill_voucher SET pay_within = {seconds} WHERE voucher_id = {voucher}");
    run(fixture, sql).await
}

/// Adds unpaid orders of voucher 2. From now on, 5,000 of them are due each second.
pub async fn until_they_expire(fixture: &mut Fixture, orders: usize) -> Result<()> {
    add_unpaid(fixture, orders, &format!("FLOOR(seq / {PER_SECOND} * 1000)")).await
}

/// Measures orders that are all due at once.
pub async fn measure(fixture: &mut Fixture, orders: usize) -> Result<Expirations> {
    fixture.clear_tables(Tables::Fresh, VOUCHER).await?;
    fixture.clear_redis().await?;
    let (redis, mysql) = (fixture.redis_server.url(), [fixture.url(Tables::Fresh)]);
    let workers = Workers::start(&fixture.program, Shape::DEFAULT, &redis, &mysql).await?;
    add_unpaid(fixture, orders, "0").await?;
    let (began, mut moved) = (Instant::now(), (Instant::now(), i64::MAX));
    loop {
        let left = count(fixture, "SELECT COUNT(*) FROM tidegate_unpaid_order").await?;
        if left == 0 {
            break;
        }
        if left < moved.1 {
            moved = (Instant::now(), left);
        }
        ensure!(moved.0.elapsed() < STALLED_AFTER, "{left} orders do not expire: {}", workers.logs());
        sleep(LOOK_EVERY).await;
    }
    let per_s = orders as f64 / began.elapsed().as_secs_f64();
    let cancelled = count(fixture, "SELECT COUNT(*) FROM tb_voucher_order WHERE status = 4").await?;
    ensure!(cancelled == orders as i64, "{cancelled} of {orders} are cancelled: {}", workers.logs());
    workers.stop().await?;
    Ok(Expirations { orders, per_s })
}

/// Waits until this many units of voucher 1 are taken from its stock, because counting rows would cost more than
/// writing them. Meanwhile, the other orders must expire, if there is time for it.
pub async fn until_written(fixture: &Fixture, orders: &Orders) -> Result<()> {
    let began = Instant::now();
    let left = "SELECT CAST(stock AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = 1";
    while count(fixture, left).await? > STOCK - orders.len() as i64 {
        ensure!(began.elapsed() < STALLED_AFTER, "The workers stand still");
        sleep(LOOK_EVERY).await;
    }
    let expired = "SELECT COUNT(*) FROM tb_voucher_order WHERE status = 4";
    ensure!(began.elapsed() < FIRST_WITHIN || count(fixture, expired).await? > 0, "No order expires");
    Ok(())
}

/// Adds orders of voucher 2 with their rows. Each is due this many milliseconds from now, by its number.
async fn add_unpaid(fixture: &Fixture, orders: usize, due_in_ms: &str) -> Result<()> {
    // Orders of a measurement have larger ids.
    ensure!((orders as i64) < FIRST_NEW, "Too many orders");
    let numbers = format!(
        "WITH RECURSIVE n (seq) AS (SELECT 0 UNION ALL SELECT seq + 1 FROM n WHERE seq + 1 < {orders})"
    );
    let settings = "SET SESSION max_recursive_iterations = 100000000";
    // This is the name of the setting in MySQL.
    let other = "SET SESSION cte_max_recursion_depth = 100000000";
    let mut session = fixture.connect(Tables::Fresh).await?;
    if sqlx::raw_sql(settings).execute(&mut session).await.is_err() {
        sqlx::raw_sql(other).execute(&mut session).await.context("Failed to allow long series")?;
    }
    let rows = format!(
        "INSERT INTO tb_voucher_order (id, user_id, voucher_id) {numbers} \
         SELECT {FIRST_ID} + seq, 1 + seq, {VOUCHER} FROM n"
    );
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut session).await?;
    let due = format!(
        "INSERT INTO tidegate_unpaid_order (order_id, user_id, voucher_id, due_ms, ask_ms, partition_code) {numbers} \
         SELECT {FIRST_ID} + seq, 1 + seq, {VOUCHER}, @now + {due_in_ms}, @now + {due_in_ms}, {} FROM n",
        Partition::default().code()
    );
    sqlx::raw_sql("SET @now = FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000)").execute(&mut session).await?;
    sqlx::raw_sql(AssertSqlSafe(due)).execute(&mut session).await?;
    Ok(session.close().await?)
}

async fn run(fixture: &Fixture, sql: String) -> Result<()> {
    let mut session = fixture.connect(Tables::Fresh).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
    Ok(session.close().await?)
}

async fn count(fixture: &Fixture, sql: &'static str) -> Result<i64> {
    let mut session = fixture.connect(Tables::Fresh).await?;
    Ok(sqlx::query_scalar(sql).fetch_one(&mut session).await?)
}

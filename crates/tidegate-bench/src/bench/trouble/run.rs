//! One repetition of one case: from a full stream until everything is settled, as in a drain.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection};

use super::{
    case::Case,
    expiring,
    load::{self, Entry, Load},
};
use crate::bench::{
    drain::{FILLED, until_settled},
    fixture::{Fixture, GROUP, STREAM, Tables},
    meter::Reading,
    orders::Orders,
    results::cost::Cost,
    workers::{Shape, Workers},
};

/// A stream with the same entries again, under the same ids.
const SPARE: &str = "stream.spare";
/// One order expires for each of this many entries: at 5,000 a second, that lasts longer than the entries take.
const EXPIRE_OF: usize = 4;
/// The time of a lock, longer than any measurement.
const LOCKED_MS: &str = "3600000";

/// The result of one repetition.
#[derive(Clone, Debug)]
pub struct Run {
    /// The entries per second; those that wait for the lock of another program do not count.
    pub per_s: f64,
    pub cost: Cost,
}

pub async fn measure(fixture: &mut Fixture, case: Case, entries: usize) -> Result<Run> {
    let workers = prepare(fixture, case, entries).await?;
    let orders = fixture.numbers.take(entries, case.vouchers());
    let load = Load::of(case, &orders);
    let last = fill(fixture, case, &load, &workers).await?;

    let before = Reading::take(fixture, workers.cpu_s()).await?;
    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    match case {
        // Their entries come after the last entry of the case.
        Case::Expiring => expiring::until_written(fixture, &orders).await,
        _ => until_settled(&mut fixture.redis, &last, load.locked.len()).await,
    }
    .with_context(|| workers.logs())?;
    let took = began.elapsed().as_secs_f64();
    let cost = Reading::take(fixture, workers.cpu_s()).await?.since(&before, entries);

    unlock(fixture, &load.locked).await?;
    if case != Case::Expiring {
        until_settled(&mut fixture.redis, &last, 0).await.with_context(|| workers.logs())?;
    }
    check(fixture, &orders, load.rows, &workers).await.with_context(|| format!("{case:?}"))?;
    workers.stop().await?;
    let done = entries - load.locked.len();
    Ok(Run { per_s: done as f64 / took, cost })
}

/// Prepares empty stores with the vouchers on sale, and workers that wait.
async fn prepare(fixture: &mut Fixture, case: Case, entries: usize) -> Result<Workers> {
    fixture.clear_tables(Tables::Fresh, case.vouchers()).await?;
    if let Some(stock) = case.mysql_stock(entries) {
        let mut session = fixture.connect(Tables::Fresh).await?;
        let sql = format!("UPDATE tb_seckill_voucher SET stock = {stock}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
        session.close().await?;
    }
    fixture.clear_redis().await?;
    for voucher in 1..=case.vouchers() {
        fixture.redis.call(&["SET", &format!("seckill:stock:{voucher}"), "0"]).await?;
    }
    if case == Case::PayWithin {
        expiring::limit(fixture, 1, 3_600).await?;
    }
    let settings: &[(&str, &str)] = match case {
        Case::Published => &[("TIDEGATE_RESULTS_PUBLISH", "all")],
        Case::RedissonLocks => &[("TIDEGATE_LOCK_LAYOUT", "redisson")],
        _ => &[],
    };
    let (redis, mysql) = (fixture.redis_server.url(), [fixture.url(Tables::Fresh)]);
    let workers = Workers::start_with(&fixture.program, Shape::DEFAULT, &redis, &mysql, settings).await?;
    if case == Case::Expiring {
        expiring::until_they_expire(fixture, entries / EXPIRE_OF).await?;
    }
    Ok(workers)
}

/// Fills the stream under another name, and prepares the earlier events that the case needs.
async fn fill(fixture: &mut Fixture, case: Case, load: &Load, workers: &Workers) -> Result<String> {
    for user in &load.locked {
        fixture.redis.call(&["SET", &lock_of(*user), "somebody-else", "PX", LOCKED_MS]).await?;
    }
    if case == Case::RefusedLongAgo {
        refuse_one(fixture).await.with_context(|| workers.logs())?;
    }
    fixture.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
    let last = load::fill(&mut fixture.redis, FILLED, &load.entries).await?;
    if case == Case::ThereAlready {
        fixture.redis.call(&["COPY", FILLED, SPARE]).await?;
        fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
        until_settled(&mut fixture.redis, &last, 0).await.with_context(|| workers.logs())?;
        fixture.redis.call(&["RENAME", SPARE, FILLED]).await?;
    }
    Ok(last)
}

/// Writes two orders of one user: the second is refused.
async fn refuse_one(fixture: &mut Fixture) -> Result<()> {
    let [first, second] = [fixture.numbers.take(1, 1), fixture.numbers.take(1, 1)];
    let user = first.iter().next().context("An order")?.user;
    let entries: Vec<Entry> = [first, second]
        .iter()
        .flat_map(Orders::iter)
        .map(|order| Entry {
            id: Some(order.id),
            event: None,
            user,
            voucher: 1,
            quantity: 1,
            is_traced: false,
        })
        .collect();
    let last = load::fill(&mut fixture.redis, STREAM, &entries).await?;
    until_settled(&mut fixture.redis, &last, 0).await
}

async fn unlock(fixture: &mut Fixture, users: &[i64]) -> Result<()> {
    for user in users {
        fixture.redis.call(&["DEL", &lock_of(*user)]).await?;
    }
    Ok(())
}

fn lock_of(user: i64) -> String {
    format!("lock:order:{user}")
}

/// Checks that this many of the orders are rows.
pub async fn check(fixture: &Fixture, orders: &Orders, rows: usize, workers: &Workers) -> Result<()> {
    let written = fixture.count_written(Tables::Fresh, orders).await?;
    ensure!(written == rows as i64, "{rows} rows expected, {written} written: {}", workers.logs());
    Ok(())
}

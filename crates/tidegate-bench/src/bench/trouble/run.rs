//! One repetition of one case: from a full stream to everything settled, as in a drain.

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
    meter::Reading,
    orders::Orders,
    results::cost::Cost,
    site::{GROUP, STREAM, Site, Tables},
    workers::{Shape, Workers},
};

/// The same entries once more, under the same ids.
const SPARE: &str = "stream.spare";
/// One order expires for so many entries: at 5,000 a second, that lasts for longer than the entries take.
const EXPIRE_OF: usize = 4;
/// Longer than any measurement.
const LOCKED_MS: &str = "3600000";

/// One repetition.
#[derive(Clone, Debug)]
pub struct Run {
    /// Entries a second; those that wait for somebody else's lock do not count.
    pub per_s: f64,
    pub cost: Cost,
}

pub async fn measure(site: &mut Site, case: Case, entries: usize) -> Result<Run> {
    let workers = prepare(site, case, entries).await?;
    let orders = site.numbers.take(entries, case.vouchers());
    let load = Load::of(case, &orders);
    let last = fill(site, case, &load, &workers).await?;

    let before = Reading::take(site, workers.cpu_s()).await?;
    let began = Instant::now();
    site.redis.call(&["RENAME", FILLED, STREAM]).await?;
    match case {
        // Theirs come behind the last entry.
        Case::Expiring => expiring::until_written(site, &orders).await,
        _ => until_settled(&mut site.redis, &last, load.locked.len()).await,
    }
    .with_context(|| workers.logs())?;
    let took = began.elapsed().as_secs_f64();
    let cost = Reading::take(site, workers.cpu_s()).await?.since(&before, entries);

    unlock(site, &load.locked).await?;
    if case != Case::Expiring {
        until_settled(&mut site.redis, &last, 0).await.with_context(|| workers.logs())?;
    }
    check(site, &orders, load.rows, &workers).await.with_context(|| format!("{case:?}"))?;
    workers.stop().await?;
    let done = entries - load.locked.len();
    Ok(Run { per_s: done as f64 / took, cost })
}

/// Empty stores with the vouchers on sale, and workers that wait.
async fn prepare(site: &mut Site, case: Case, entries: usize) -> Result<Workers> {
    site.clear_tables(Tables::Fresh, case.vouchers()).await?;
    if let Some(stock) = case.mysql_stock(entries) {
        let mut session = site.connect(Tables::Fresh).await?;
        let sql = format!("UPDATE tb_seckill_voucher SET stock = {stock}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
        session.close().await?;
    }
    site.clear_redis().await?;
    for voucher in 1..=case.vouchers() {
        site.redis.call(&["SET", &format!("seckill:stock:{voucher}"), "0"]).await?;
    }
    if case == Case::PayWithin {
        expiring::limit(site, 1, 3_600).await?;
    }
    let settings: &[(&str, &str)] = match case {
        Case::Published => &[("TIDEGATE_RESULTS_ANNOUNCE", "all")],
        _ => &[],
    };
    let (redis, mysql) = (site.redis_server.url(), [site.url(Tables::Fresh)]);
    let workers = Workers::start_with(&site.program, Shape::DEFAULT, &redis, &mysql, settings).await?;
    if case == Case::Expiring {
        expiring::until_they_expire(site, entries / EXPIRE_OF).await?;
    }
    Ok(workers)
}

/// Puts the entries under another name, and does what the case wants to have happened before them.
async fn fill(site: &mut Site, case: Case, load: &Load, workers: &Workers) -> Result<String> {
    for user in &load.locked {
        site.redis.call(&["SET", &lock_of(*user), "somebody-else", "PX", LOCKED_MS]).await?;
    }
    if case == Case::RefusedLongAgo {
        refuse_one(site).await.with_context(|| workers.logs())?;
    }
    site.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
    let last = load::fill(&mut site.redis, FILLED, &load.entries).await?;
    if case == Case::ThereAlready {
        site.redis.call(&["COPY", FILLED, SPARE]).await?;
        site.redis.call(&["RENAME", FILLED, STREAM]).await?;
        until_settled(&mut site.redis, &last, 0).await.with_context(|| workers.logs())?;
        site.redis.call(&["RENAME", SPARE, FILLED]).await?;
    }
    Ok(last)
}

/// One user's two orders: the second is refused.
async fn refuse_one(site: &mut Site) -> Result<()> {
    let [first, second] = [site.numbers.take(1, 1), site.numbers.take(1, 1)];
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
    let last = load::fill(&mut site.redis, STREAM, &entries).await?;
    until_settled(&mut site.redis, &last, 0).await
}

async fn unlock(site: &mut Site, users: &[i64]) -> Result<()> {
    for user in users {
        site.redis.call(&["DEL", &lock_of(*user)]).await?;
    }
    Ok(())
}

fn lock_of(user: i64) -> String {
    format!("lock:order:{user}")
}

/// That so many of these orders are rows.
pub async fn check(site: &Site, orders: &Orders, rows: usize, workers: &Workers) -> Result<()> {
    let written = site.count_written(Tables::Fresh, orders).await?;
    ensure!(written == rows as i64, "{rows} rows expected, {written} written: {}", workers.logs());
    Ok(())
}

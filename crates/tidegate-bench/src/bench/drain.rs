//! Draining: from a full stream to committed, acknowledged rows.
//!
//! The stream is filled under another name, with its consumer group, while the workers wait at the empty one. One
//! RENAME puts it in place, and starts the clock. The clock stops when the last entry is delivered and nothing is
//! pending, which is checked every few milliseconds: by then, every order is committed *and* acknowledged.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::time::sleep;

use super::{
    fixture::{Fixture, GROUP, STREAM, Tables},
    meter::Reading,
    orders,
    resp::{Reply, Resp},
    results::{Drain, Rate, cost::Cost},
    workers::{Shape, Workers},
};

/// The name of the stream until the clock starts.
pub const FILLED: &str = "stream.filled";
const LOOK_EVERY: Duration = Duration::from_millis(5);
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// A plan of a drain: the entries, the tables, and the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub shape: Shape,
    pub vouchers: i64,
    pub tables: Tables,
    pub orders: usize,
}

/// The result of one repetition.
#[derive(Clone, Debug)]
pub struct Run {
    pub orders_per_s: f64,
    pub cost: Cost,
    pub worker_peak_kib: u64,
}

pub async fn measure(fixture: &mut Fixture, plan: Plan) -> Result<Run> {
    fixture.clear_tables(plan.tables, plan.vouchers).await?;
    fixture.clear_redis().await?;
    let workers = Workers::start(
        &fixture.program,
        plan.shape,
        &fixture.redis_server.url(),
        &[fixture.url(plan.tables)],
    )
    .await?;
    let orders = fixture.numbers.take(plan.orders, plan.vouchers);
    fixture.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
    let last = orders::fill(&mut fixture.redis, FILLED, &orders).await?;

    let before = Reading::take(fixture, workers.cpu_s()).await?;
    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    until_settled(&mut fixture.redis, &last, 0).await.with_context(|| workers.logs())?;
    let took = began.elapsed();
    let after = Reading::take(fixture, workers.cpu_s()).await?;

    let worker_peak_kib = workers.peak_kib();
    let written = fixture.count_written(plan.tables, &orders).await?;
    ensure!(written == orders.len() as i64, "{} orders, {written} written: {}", orders.len(), workers.logs());
    workers.stop().await?;
    Ok(Run {
        orders_per_s: orders.len() as f64 / took.as_secs_f64(),
        cost: after.since(&before, orders.len()),
        worker_peak_kib,
    })
}

/// Waits until all entries up to this one are delivered, and at most `left` of them are not acknowledged.
pub async fn until_settled(redis: &mut Resp, last: &str, left: usize) -> Result<()> {
    let mut moved = (Instant::now(), Reply::Nil);
    loop {
        let groups = redis.call(&["XINFO", "GROUPS", STREAM]).await?;
        let group = groups.items().first().context("The group is gone")?;
        let delivered = group.field("last-delivered-id").context("No last-delivered-id")?;
        let Some(Reply::Int(pending)) = group.field("pending") else { bail!("No pending: {group:?}") };
        if delivered.text() == last && *pending <= i64::try_from(left)? {
            return Ok(());
        }
        if moved.1 != *group {
            moved = (Instant::now(), group.clone());
        }
        if moved.0.elapsed() > STALLED_AFTER {
            bail!("The workers stand still: {group:?}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The results of all repetitions of one plan.
pub fn conclude(plan: Plan, existing: u64, runs: &[Run]) -> Drain {
    let orders_per_s = Rate::of(runs.iter().map(|run| run.orders_per_s).collect());
    let distance = |run: &&Run| (run.orders_per_s - orders_per_s.median).abs();
    let middle = runs.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Shape { processes, lanes, batch } = plan.shape;
    Drain {
        processes,
        lanes,
        batch,
        vouchers: plan.vouchers,
        existing: if plan.tables == Tables::Grown { existing } else { 0 },
        orders: plan.orders,
        cost: middle.map(|run| run.cost.clone()).unwrap_or_default(),
        worker_peak_kib: runs.iter().map(|run| run.worker_peak_kib).max().unwrap_or_default(),
        orders_per_s,
    }
}

//! What a plain order costs, beside the least that any writer pays: one connection's bare inserts.
//!
//! Times move with the machine; how many bare inserts an order costs moves much less.

use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;

use super::{
    drain::{self, Plan},
    meter::{Cost, Reading},
    orders::Orders,
    proc,
    results::Rate,
    site::{Site, Tables},
    workers::Shape,
    writers::tell,
};

const ROWS: usize = 1_000;

/// Two ways to write the same number of orders, in turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CostResults {
    pub orders: usize,
    /// One connection's inserts of 1000 rows into the tutorial's table; its "worker" is who sends them.
    pub bare_insert: CostOf,
    /// A drain with default settings.
    pub ours: CostOf,
    /// Processor time of all processes of a drain, in processor times that a bare insert takes MySQL.
    pub multiple: Rate,
}

/// Per order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CostOf {
    pub orders_per_s: Rate,
    pub mysql_cpu_us: Rate,
    pub redis_cpu_us: Rate,
    pub worker_cpu_us: Rate,
    pub all_cpu_us: Rate,
    pub redo_log_bytes: Rate,
    pub binary_log_bytes: Rate,
}

impl CostOf {
    fn of(runs: &[(f64, Cost)]) -> Self {
        let rate = |value: fn(&Cost) -> f64| Rate::of(runs.iter().map(|(_, cost)| value(cost)).collect());
        Self {
            orders_per_s: Rate::of(runs.iter().map(|(per_s, _)| *per_s).collect()),
            mysql_cpu_us: rate(|cost| cost.mysql_cpu_us),
            redis_cpu_us: rate(|cost| cost.redis_cpu_us),
            worker_cpu_us: rate(|cost| cost.worker_cpu_us),
            all_cpu_us: rate(Cost::all_cpu_us),
            redo_log_bytes: rate(|cost| cost.redo_log_bytes),
            binary_log_bytes: rate(|cost| cost.binary_log_bytes),
        }
    }
}

/// Bare inserts and drains in turn. Redis writes its file to the disk with every command meanwhile.
pub async fn measure(site: &mut Site, orders: usize, rounds: usize) -> Result<CostResults> {
    let usual = site.redis.call(&["CONFIG", "GET", "appendfsync"]).await?;
    site.redis.call(&["CONFIG", "SET", "appendfsync", "always"]).await?;
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        tell(&format!("cost: round {round} of {rounds}"));
        bare.push(bare_inserts(site, orders).await?);
        let plan = Plan { shape: Shape::DEFAULT, vouchers: 1, tables: Tables::Fresh, orders };
        let run = drain::measure(site, plan).await?;
        ours.push((run.orders_per_s, run.cost));
    }
    let usual = usual.field("appendfsync").map_or("everysec", |usual| usual.text());
    site.redis.call(&["CONFIG", "SET", "appendfsync", usual]).await?;
    let multiples =
        ours.iter().zip(&bare).map(|((_, ours), (_, bare))| ours.all_cpu_us() / bare.mysql_cpu_us);
    // Too few orders for the kernel's clock say nothing.
    let multiple = Rate::of(multiples.filter(|multiple| multiple.is_finite()).collect());
    Ok(CostResults { orders, bare_insert: CostOf::of(&bare), ours: CostOf::of(&ours), multiple })
}

/// One connection, 1000 rows a statement, each statement a transaction, in the order of ids. Rows a second, and the cost
/// of one.
async fn bare_inserts(site: &mut Site, orders: usize) -> Result<(f64, Cost)> {
    site.clear_tables(Tables::Tutorial, 1).await?;
    let orders = site.numbers.take(orders.next_multiple_of(ROWS), 1);
    let statements: Vec<String> = orders.chunks(ROWS).iter().map(insert).collect();
    let mut session = site.connect(Tables::Tutorial).await?;
    let own_cpu_s = || proc::cpu_s(std::process::id());
    let before = Reading::take(site, own_cpu_s()).await?;
    let began = Instant::now();
    for sql in statements {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
    }
    let took = began.elapsed().as_secs_f64();
    let mut cost = Reading::take(site, own_cpu_s()).await?.since(&before, orders.len());
    // Redis only waits meanwhile; its clockwork is no part of an insert.
    cost.redis_cpu_us = 0.0;
    Ok((orders.len() as f64 / took, cost))
}

fn insert(orders: &Orders) -> String {
    let rows: Vec<String> =
        orders.iter().map(|order| format!("({},{},{})", order.id, order.user, order.voucher)).collect();
    format!("INSERT INTO tb_voucher_order (id,user_id,voucher_id) VALUES {}", rows.join(","))
}

//! What a plain order costs, beside the least that any writer pays: one connection's bare inserts.
//!
//! Times move with the machine; how many bare inserts an order costs moves much less.

use std::time::Instant;

use anyhow::Result;
use sqlx::AssertSqlSafe;

use super::{
    drain::{self, Plan},
    meter::Reading,
    orders::Orders,
    proc,
    results::{
        Rate,
        cost::{Cost, CostOf, CostResults},
    },
    site::{Site, Tables},
    workers::Shape,
    writers::tell,
};

const ROWS: usize = 1_000;

/// Bare inserts and a drain, one after the other: of each, orders a second and the cost of one.
pub struct Round {
    bare: (f64, Cost),
    ours: (f64, Cost),
}

/// Measures what an order costs, in so many rounds.
pub async fn measure(site: &mut Site, orders: usize, rounds: usize) -> Result<CostResults> {
    let mut found = Vec::new();
    for number in 1..=rounds {
        tell(&format!("cost: round {number} of {rounds}"));
        found.push(round(site, orders).await?);
    }
    Ok(conclude(orders, &found))
}

/// Measures one round. Redis writes its file to the disk with every command meanwhile.
pub async fn round(site: &mut Site, orders: usize) -> Result<Round> {
    let usual = site.redis.call(&["CONFIG", "GET", "appendfsync"]).await?;
    site.redis.call(&["CONFIG", "SET", "appendfsync", "always"]).await?;
    let bare = bare_inserts(site, orders).await?;
    let plan = Plan { shape: Shape::DEFAULT, vouchers: 1, tables: Tables::Fresh, orders };
    let run = drain::measure(site, plan).await?;
    let usual = usual.field("appendfsync").map_or("everysec", |usual| usual.text());
    site.redis.call(&["CONFIG", "SET", "appendfsync", usual]).await?;
    Ok(Round { bare, ours: (run.orders_per_s, run.cost) })
}

impl Round {
    /// Orders a second of the drain.
    pub fn orders_per_s(&self) -> f64 {
        self.ours.0
    }
}

pub fn conclude(orders: usize, rounds: &[Round]) -> CostResults {
    let multiples = rounds.iter().map(|round| round.ours.1.all_cpu_us() / round.bare.1.mysql_cpu_us);
    // Too few orders for the kernel's clock say nothing.
    let multiple = Rate::of(multiples.filter(|multiple| multiple.is_finite()).collect());
    let bare: Vec<_> = rounds.iter().map(|round| round.bare.clone()).collect();
    let ours: Vec<_> = rounds.iter().map(|round| round.ours.clone()).collect();
    CostResults { orders, bare_insert: CostOf::of(&bare), ours: CostOf::of(&ours), multiple }
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

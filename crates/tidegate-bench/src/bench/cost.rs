//! The cost of a plain order, compared with the least that any writer needs: the bare inserts of one connection.
//!
//! Times depend on the machine; the ratio of an order's cost to a bare insert depends on it much less.

use std::time::Instant;

use anyhow::Result;
use sqlx::AssertSqlSafe;

use super::{
    drain::{self, Plan},
    fixture::{Fixture, Tables},
    meter::Reading,
    orders::Orders,
    proc,
    results::{
        Rate,
        cost::{Cost, CostOf, CostResults},
    },
    workers::Shape,
    writers::tell,
};

const ROWS: usize = 1_000;

/// Bare inserts and drains, in turn, with the orders per second and the cost of one order.
#[derive(Default)]
pub struct Rounds {
    bare: Vec<(f64, Cost)>,
    ours: Vec<(f64, Cost)>,
}

impl Rounds {
    /// Measures one more round. Meanwhile, Redis writes its file to disk with every command.
    pub async fn measure(&mut self, fixture: &mut Fixture, orders: usize) -> Result<()> {
        let usual = fixture.redis.call(&["CONFIG", "GET", "appendfsync"]).await?;
        fixture.redis.call(&["CONFIG", "SET", "appendfsync", "always"]).await?;
        self.bare.push(bare_inserts(fixture, orders).await?);
        let plan = Plan { shape: Shape::DEFAULT, vouchers: 1, tables: Tables::Fresh, orders };
        let run = drain::measure(fixture, plan).await?;
        self.ours.push((run.orders_per_s, run.cost));
        let usual = usual.field("appendfsync").map_or("everysec", |usual| usual.text());
        fixture.redis.call(&["CONFIG", "SET", "appendfsync", usual]).await?;
        Ok(())
    }

    /// The results of all rounds, with this many orders each.
    pub fn conclude(&self, orders: usize) -> CostResults {
        let pairs = self.ours.iter().zip(&self.bare);
        let multiples = pairs.map(|((_, ours), (_, bare))| ours.all_cpu_us() / bare.mysql_cpu_us);
        // If there are too few orders for the resolution of the kernel's clock, the round has no result.
        let multiple = Rate::of(multiples.filter(|multiple| multiple.is_finite()).collect());
        let (bare_insert, ours) = (CostOf::of(&self.bare), CostOf::of(&self.ours));
        CostResults { orders, bare_insert, ours, multiple }
    }
}

/// Measures the cost of an order, in this many rounds.
pub async fn measure(fixture: &mut Fixture, orders: usize, rounds: usize) -> Result<CostResults> {
    let mut found = Rounds::default();
    for round in 1..=rounds {
        tell(&format!("cost: round {round} of {rounds}"));
        found.measure(fixture, orders).await?;
    }
    Ok(found.conclude(orders))
}

/// Inserts with one connection, 1000 rows a statement, each statement a transaction, in the order of ids. Returns the
/// rows per second, and the cost of one row.
async fn bare_inserts(fixture: &mut Fixture, orders: usize) -> Result<(f64, Cost)> {
    fixture.clear_tables(Tables::Tutorial, 1).await?;
    let orders = fixture.numbers.take(orders.next_multiple_of(ROWS), 1);
    let statements: Vec<String> = orders.chunks(ROWS).iter().map(insert).collect();
    let mut session = fixture.connect(Tables::Tutorial).await?;
    let own_cpu_s = || proc::cpu_s(std::process::id());
    let before = Reading::take(fixture, own_cpu_s()).await?;
    let began = Instant::now();
    for sql in statements {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
    }
    let took = began.elapsed().as_secs_f64();
    let mut cost = Reading::take(fixture, own_cpu_s()).await?.since(&before, orders.len());
    // Redis only waits meanwhile; its background work is no part of an insert.
    cost.redis_cpu_us = 0.0;
    Ok((orders.len() as f64 / took, cost))
}

fn insert(orders: &Orders) -> String {
    let rows: Vec<String> =
        orders.iter().map(|order| format!("({},{},{})", order.id, order.user, order.voucher)).collect();
    format!("INSERT INTO tb_voucher_order (id,user_id,voucher_id) VALUES {}", rows.join(","))
}

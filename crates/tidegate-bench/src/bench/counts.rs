//! The counted costs of an order. They do not depend on the machine, so a test can compare a small run with a large
//! one.

use super::results::cost::Cost;

/// A count for each order, by its name in the report.
pub type Count = (&'static str, fn(&Cost) -> f64);

/// All counts of the report.
pub const COUNTS: [Count; 10] = [
    ("Redis commands, those within scripts included", |cost| cost.redis_commands),
    ("MySQL statements, BEGIN and COMMIT included", |cost| cost.mysql_statements),
    ("MySQL commits", |cost| cost.mysql_commits),
    ("bytes to Redis", |cost| cost.redis_bytes_in),
    ("bytes from Redis", |cost| cost.redis_bytes_out),
    ("bytes to MySQL", |cost| cost.mysql_bytes_in),
    ("bytes from MySQL", |cost| cost.mysql_bytes_out),
    ("bytes of MySQL's redo log", |cost| cost.redo_log_bytes),
    ("bytes of MySQL's binary log", |cost| cost.binary_log_bytes),
    ("bytes of Redis' append-only file", |cost| cost.append_only_bytes),
];

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use anyhow::{Context, Result};
    use tidegate_lab::MysqlFlavour;

    use super::*;
    use crate::bench::{
        drain::{self, Plan},
        fixture::{Fixture, Tables},
        results::Results,
        workers::Shape,
    };

    /// The number of orders, large enough that queries after the start of the worker do not matter.
    const ORDERS: usize = 100_000;
    const WITHIN: f64 = 0.1;
    /// This count varies by a quarter of a byte an order, because background tasks contribute to it.
    const UNSTEADY: &str = "bytes from MySQL";

    /// If a count was meant to change, `just bench` writes the new one.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_order_costs_the_counts_of_the_benchmark_page() -> Result<()> {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/results.json");
        let results: Results = serde_json::from_str(&fs::read_to_string(results)?)?;
        let server = results.servers.iter().find(|server| server.kind() == "MariaDB");
        let page = &server.and_then(|server| server.drains.first()).context("no drain")?.cost;

        let here = env::current_exe()?;
        let program = here.parent().and_then(Path::parent).context("no folder")?.join("tidegate");
        let mut fixture = Fixture::open(MysqlFlavour::MariaDb, program).await?;
        let plan = Plan { shape: Shape::DEFAULT, vouchers: 1, tables: Tables::Fresh, orders: ORDERS };
        let found = drain::measure(&mut fixture, plan).await?.cost;

        let counts = COUNTS.iter().filter(|(name, _)| *name != UNSTEADY);
        let pairs = counts.map(|(name, of)| (*name, of(page), of(&found)));
        // A value of 0 means that there is no such log, or that the run did not count it.
        let wrong = pairs.filter(|(_, page, found)| *page > 0.0 && (found / page - 1.0).abs() > WITHIN);
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "count, on the page, today: {wrong:?}; all of today: {found:?}");
        Ok(())
    }
}

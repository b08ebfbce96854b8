//! The cost of a piece of work for each process that took part in it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use sqlx::{MySqlConnection, Row};

use super::{fixture::Fixture, proc, resp::Resp, results::cost::Cost};

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    redis: RedisReading,
    mysql_cpu_s: f64,
    mysql: BTreeMap<String, f64>,
    worker_cpu_s: f64,
}

/// Redis' counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct RedisReading {
    pub cpu_s: f64,
    bytes_in: f64,
    bytes_out: f64,
    append_only_bytes: f64,
    commands: BTreeMap<String, f64>,
}

impl Reading {
    pub async fn take(fixture: &mut Fixture, worker_cpu_s: f64) -> Result<Self> {
        Ok(Self {
            redis: RedisReading::take(&mut fixture.redis).await?,
            mysql_cpu_s: proc::cpu_s(fixture.mysql_pid),
            mysql: status(&mut fixture.mysql).await?,
            worker_cpu_s,
        })
    }

    /// The cost of each of `orders` between `before` and this reading.
    pub fn since(&self, before: &Self, orders: usize) -> Cost {
        let orders = orders.max(1) as f64;
        let mysql = |name: &str| {
            (self.mysql.get(name).unwrap_or(&0.0) - before.mysql.get(name).unwrap_or(&0.0)) / orders
        };
        let commands = self.redis.commands.iter().filter_map(|(name, calls)| {
            let calls = calls - before.redis.commands.get(name).unwrap_or(&0.0);
            (calls > 0.0 && !is_ours(name)).then(|| (name.clone(), calls / orders))
        });
        let redis_commands_by_name: BTreeMap<String, f64> = commands.collect();
        Cost {
            redis_cpu_us: (self.redis.cpu_s - before.redis.cpu_s) * 1e6 / orders,
            mysql_cpu_us: (self.mysql_cpu_s - before.mysql_cpu_s) * 1e6 / orders,
            worker_cpu_us: (self.worker_cpu_s - before.worker_cpu_s) * 1e6 / orders,
            redis_commands: redis_commands_by_name.values().sum(),
            mysql_statements: mysql("Questions"),
            redis_bytes_in: (self.redis.bytes_in - before.redis.bytes_in) / orders,
            redis_bytes_out: (self.redis.bytes_out - before.redis.bytes_out) / orders,
            mysql_bytes_in: mysql("Bytes_received"),
            mysql_bytes_out: mysql("Bytes_sent"),
            mysql_commits: mysql("Com_commit"),
            redo_log_bytes: mysql("Innodb_os_log_written"),
            binary_log_bytes: mysql(BINARY_LOG),
            append_only_bytes: (self.redis.append_only_bytes - before.redis.append_only_bytes) / orders,
            redis_commands_by_name,
        }
    }
}

/// Whether the measurement itself sends this command.
fn is_ours(command: &str) -> bool {
    matches!(command, "info" | "rename" | "xinfo|groups" | "xinfo")
}

impl RedisReading {
    pub async fn take(redis: &mut Resp) -> Result<Self> {
        let reply = redis.call(&["INFO", "everything"]).await?;
        let lines: BTreeMap<&str, &str> =
            reply.text().lines().filter_map(|line| line.split_once(':')).collect();
        let number = |name: &str| -> Result<f64> {
            lines.get(name).and_then(|value| value.trim().parse().ok()).with_context(|| format!("No {name}"))
        };
        let calls = |value: &str| value.split_once("calls=")?.1.split(',').next()?.parse().ok();
        Ok(Self {
            cpu_s: number("used_cpu_sys")? + number("used_cpu_user")?,
            bytes_in: number("total_net_input_bytes")?,
            bytes_out: number("total_net_output_bytes")?,
            // The field is missing without such a file.
            append_only_bytes: number("aof_current_size").unwrap_or_default(),
            commands: lines
                .iter()
                .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?.to_owned(), calls(value)?)))
                .collect(),
        })
    }
}

/// The name for the size of the binary log, as if it were one of the server's counters.
const BINARY_LOG: &str = "binary log";

async fn binary_log_bytes(mysql: &mut MySqlConnection) -> Result<f64> {
    let is_on: bool = sqlx::query_scalar("SELECT @@log_bin = 1").fetch_one(&mut *mysql).await?;
    if !is_on {
        return Ok(0.0);
    }
    let rows = sqlx::raw_sql("SHOW BINARY LOGS").fetch_all(mysql).await?;
    let sizes: Result<Vec<u64>, sqlx::Error> = rows.iter().map(|row| row.try_get_unchecked(1)).collect();
    Ok(sizes?.iter().sum::<u64>() as f64)
}

async fn status(mysql: &mut MySqlConnection) -> Result<BTreeMap<String, f64>> {
    let rows = sqlx::raw_sql(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Bytes_received', 'Bytes_sent', 'Com_commit', \
         'Innodb_os_log_written')",
    )
    .fetch_all(&mut *mysql)
    .await
    .context("Failed to read MySQL's counters")?;
    let mut counters = BTreeMap::new();
    for row in rows {
        let (name, value): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        counters.insert(name, value.parse()?);
    }
    counters.insert(BINARY_LOG.to_owned(), binary_log_bytes(mysql).await?);
    Ok(counters)
}

//! Three workers on three nodes of a cluster of MySQL, all with one hot voucher, compared with one worker on one node.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool};
use tidegate_lab::{ClusterKind, MysqlCluster, MysqlFlavour};
use tidegate_orders::schema::{self, MigrateError};
use tokio::time::sleep;

use super::{
    case::Case,
    load::{self, Load},
};
use crate::bench::{
    drain::{FILLED, until_settled},
    fixture::{Fixture, GROUP, STOCK, STREAM},
    orders::Orders,
    results::trouble::ClusterResult,
    workers::{Shape, Workers},
    writers::tell,
};

/// The time within which a node applies the commits of the others.
const APPLIED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Measures Galera if the server is MariaDB, and group replication with several primaries if it is MySQL. None if no
/// cluster can be started: earlier results must not be lost because of that.
pub async fn measure(
    fixture: &mut Fixture,
    flavour: MysqlFlavour,
    entries: usize,
) -> Result<Option<ClusterResult>> {
    let (kind, name) = match flavour {
        MysqlFlavour::MariaDb | MysqlFlavour::MariaDb11 => (ClusterKind::Galera, "Galera"),
        MysqlFlavour::Mysql => (ClusterKind::MultiPrimary, "group replication"),
    };
    let cluster = match tokio::task::spawn_blocking(move || MysqlCluster::start(kind)).await? {
        Ok(cluster) => cluster,
        Err(error) => {
            tell(&format!("NOTE: no cluster: {error:#}"));
            return Ok(None);
        }
    };
    let urls: Vec<String> = cluster.nodes().iter().map(|node| node.url()).collect();
    migrate(&urls).await?;
    let one = drain(fixture, &urls, 1, entries).await.context("One worker on one node")?;
    let three = drain(fixture, &urls, urls.len(), entries).await.context("A worker on each node")?;
    Ok(Some(ClusterResult {
        kind: name.to_owned(),
        entries,
        one_worker_per_s: one.per_s,
        three_workers_per_s: three.per_s,
        lost: one.lost + three.lost,
    }))
}

/// Migrates at the node that accepts it: in a replication group, only one member does.
async fn migrate(urls: &[String]) -> Result<()> {
    for url in urls {
        let pool = MySqlPool::connect(url).await?;
        let migrated = schema::migrate(&pool).await;
        pool.close().await;
        match migrated {
            Err(MigrateError::AnotherMember { .. }) => {}
            migrated => return migrated.map(drop).context("Failed to make the tables"),
        }
    }
    anyhow::bail!("Failed to make the tables: each node names another one")
}

struct Drained {
    per_s: f64,
    /// The orders that were acknowledged and are missing on any node.
    lost: usize,
}

/// Drains with a worker on each of the first nodes.
async fn drain(fixture: &mut Fixture, urls: &[String], workers: usize, entries: usize) -> Result<Drained> {
    clear(&urls[0]).await?;
    fixture.clear_redis().await?;
    let nodes: Vec<&str> = urls[..workers].iter().map(String::as_str).collect();
    let shape = Shape { processes: workers, ..Shape::DEFAULT };
    let workers = Workers::start(&fixture.program, shape, &fixture.redis_server.url(), &nodes).await?;
    let orders = fixture.numbers.take(entries, 1);
    fixture.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
    let load = Load::of(Case::Plain, &orders);
    let last = load::fill(&mut fixture.redis, FILLED, &load.entries).await?;

    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    until_settled(&mut fixture.redis, &last, 0).await.with_context(|| workers.logs())?;
    let per_s = entries as f64 / began.elapsed().as_secs_f64();
    workers.stop().await?;
    let mut lost = 0;
    for url in urls {
        lost = lost.max(missing(url, &orders).await?);
    }
    Ok(Drained { per_s, lost })
}

/// Empties the tables, with the voucher on sale; the node replicates that to the others.
async fn clear(url: &str) -> Result<()> {
    let mut session = MySqlConnection::connect(url).await?;
    for table in ["tb_seckill_voucher", "tb_voucher_order", "tidegate_refusal"] {
        sqlx::raw_sql(AssertSqlSafe(format!("TRUNCATE TABLE {table}"))).execute(&mut session).await?;
    }
    let sql = format!("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (1, {STOCK})");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
    Ok(session.close().await?)
}

/// The number of orders that a node lacks, once it had time to apply the commits of the others.
async fn missing(url: &str, orders: &Orders) -> Result<usize> {
    let began = Instant::now();
    let (first, last) = orders.ids();
    let mut session = MySqlConnection::connect(url).await?;
    loop {
        let sql = "SELECT COUNT(*) FROM tb_voucher_order WHERE id BETWEEN ? AND ?";
        let rows: i64 = sqlx::query_scalar(sql).bind(first).bind(last).fetch_one(&mut session).await?;
        let missing = orders.len().saturating_sub(usize::try_from(rows)?);
        if missing == 0 || began.elapsed() > APPLIED_WITHIN {
            return Ok(missing);
        }
        sleep(LOOK_EVERY).await;
    }
}

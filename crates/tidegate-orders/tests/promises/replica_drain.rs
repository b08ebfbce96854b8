//! What one WAIT a batch costs a lane that writes orders: the same lane, the same stores and the same replica, with and without.

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use fred::{interfaces::StreamsInterface, types::Value};
use sqlx::{Executor, MySqlPool, mysql::MySqlPoolOptions};
use tidegate_lab::{MysqlServer, RedisServer};
use tidegate_orders::{Gate, Ledger, OrderCounters, OrderHandler, UserLocks, schema};
use tidegate_stream::{
    Breaker, Confirmation, ConfirmedIn, Counters, Failover, Lane, LaneSettings, Leases, Reader,
    RedisSettings, Stream, StreamInspector, StreamNames, connect_reader,
};
use tokio_util::sync::CancellationToken;

use crate::ground::{Ground, STREAM};

const ORDERS: i64 = 20_000;
const ROUNDS: usize = 5;
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

struct Drain {
    ground: Ground,
    _replica: RedisServer,
    _mysql: MysqlServer,
    pool: MySqlPool,
    /// The last order that there was.
    last: i64,
}

impl Drain {
    async fn open() -> Result<Self> {
        let ground = Ground::new().await?;
        let port = ground.redis.port().to_string();
        let replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start()?;
        ground.typed("SET seckill:stock:7 1").await?;
        ensure!(ground.typed("WAIT 1 30000").await?.as_i64() == Some(1), "the replica is there");
        ground.typed(&format!("XGROUP CREATE {STREAM} g1 0 MKSTREAM")).await?;
        let mysql = tokio::task::spawn_blocking(MysqlServer::start).await??;
        let options = MySqlPoolOptions::new().max_connections(4).after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
                Ok(())
            })
        });
        let pool = options.connect(&mysql.url()).await?;
        schema::migrate(&pool).await?;
        sqlx::raw_sql("INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (7, 99999999)")
            .execute(&pool)
            .await?;
        Ok(Self { ground, _replica: replica, _mysql: mysql, pool, last: 0 })
    }

    /// Fills the stream, then lets a lane write and acknowledge all of it. Orders a second.
    async fn rate(&mut self, batch: usize, replicas: Option<Confirmation>) -> Result<f64> {
        let lua = "for id = ARGV[1], ARGV[2] do \
                   redis.call('XADD', KEYS[1], '*', 'id', id, 'userId', id, 'voucherId', 7) end";
        let (first, last) = (self.last + 1, self.last + ORDERS);
        for first in (first..last).step_by(1_000) {
            let (first, last) = (first.to_string(), (first + 999).to_string());
            self.ground.words(&["EVAL", lua, "1", STREAM, &first, &last]).await?;
        }
        self.last = last;
        ensure!(self.ground.typed("WAIT 1 30000").await?.as_i64() == Some(1), "the replica has them");

        let names =
            StreamNames { stream: STREAM.into(), dead: "stream.orders.dead".into(), group: "g1".into() };
        let (pool, keys) = (self.ground.pool.clone(), self.ground.keys.clone());
        let ledger = Ledger::new(self.pool.clone(), Duration::from_secs(20));
        let counters = Arc::new(Counters::default());
        let handler = OrderHandler::new(
            Gate::new(pool.clone(), keys.clone(), STREAM),
            UserLocks::new(Leases::new(pool.clone()), keys, Duration::from_secs(10)),
            ledger.clone(),
            Arc::new(OrderCounters::default()),
            StreamInspector::new(pool.clone(), names.clone()),
        );
        let connection = connect_reader(&RedisSettings::new(self.ground.redis.url())).await?;
        let lane = Lane::new(
            Reader::new(connection, names.clone(), "w-0".into()),
            Stream::new(pool, names),
            Arc::new(handler),
            Arc::new(Breaker::default()),
            Arc::clone(&counters),
            LaneSettings { batch, failover: Failover::Possible, replicas, ..LaneSettings::default() },
        );
        let stop = CancellationToken::new();
        let began = Instant::now();
        let running = tokio::spawn(lane.run(stop.clone()));
        while counters.counts().done < ORDERS as u64 {
            ensure!(began.elapsed() < SETTLED_WITHIN, "the lane stands still: {:?}", counters.counts());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = began.elapsed();
        stop.cancel();
        running.await?;
        let rows: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM tb_voucher_order").fetch_one(&self.pool).await?;
        ensure!(rows == self.last, "each order has a row");
        let pending: Value = self.ground.pool.xpending(STREAM, "g1", ()).await?;
        let pending = pending.into_array().first().and_then(Value::as_i64);
        ensure!(pending == Some(0), "all are acknowledged: {pending:?}");
        Ok(ORDERS as f64 / took.as_secs_f64())
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute, and its figures need a release build: `just failovers`"]
async fn what_a_wait_a_batch_costs_a_drain() -> Result<()> {
    let within = Duration::from_secs(5);
    let wanted = Confirmation { replicas: NonZeroU32::MIN, within, place: ConfirmedIn::Memory };
    let mut drain = Drain::open().await?;
    for batch in [1_000, 100, 10] {
        // The first one opens sessions and tables.
        drain.rate(batch, None).await?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(drain.rate(batch, None).await?);
            with.push(drain.rate(batch, Some(wanted)).await?);
        }
        let waits = drain.ground.typed("INFO commandstats").await?.as_string().unwrap_or_default();
        let wait = waits.lines().find(|line| line.starts_with("cmdstat_wait:")).context("nobody waited")?;
        println!(
            "batches of {batch}: {:.0} orders/s without, {:.0} with one replica ({without:.0?}, {with:.0?}); {wait}",
            median(without.clone()),
            median(with.clone())
        );
    }
    Ok(())
}

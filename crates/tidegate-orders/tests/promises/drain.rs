//! A lane in this process that writes the orders of a stream to MySQL.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use fred::{interfaces::StreamsInterface, types::Value};
use sqlx::{Executor, MySqlPool, mysql::MySqlPoolOptions};
use tidegate_lab::{MysqlServer, RedisServer};
use tidegate_orders::{Ledger, LockLayout, OrderCounters, OrderHandler, UserLocks, schema};
use tidegate_stream::{
    Breaker, Confirmation, Counters, Failover, Lane, LaneSettings, Reader, RedisConnectionSettings, Stream,
    StreamNames, connect_reader,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, STREAM};

const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// A stream, and the stores to which a lane writes its orders.
pub struct Drain {
    pub fixture: Fixture,
    replica: Option<RedisServer>,
    _mysql: MysqlServer,
    pool: MySqlPool,
    /// The last order that was added.
    last: i64,
}

impl Drain {
    pub async fn open() -> Result<Self> {
        let fixture = Fixture::new().await?;
        fixture.typed(&format!("XGROUP CREATE {STREAM} g1 0 MKSTREAM")).await?;
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
        Ok(Self { fixture, replica: None, _mysql: mysql, pool, last: 0 })
    }

    /// Opens the same stores, and a replica of Redis.
    pub async fn open_with_replica() -> Result<Self> {
        let drain = Self::open().await?;
        let port = drain.fixture.redis.port().to_string();
        let replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start()?;
        drain.until_replicated().await?;
        Ok(Self { replica: Some(replica), ..drain })
    }

    async fn until_replicated(&self) -> Result<()> {
        self.fixture.typed("SET seckill:stock:7 1").await?;
        ensure!(self.fixture.typed("WAIT 1 30000").await?.as_i64() == Some(1), "the replica has all");
        Ok(())
    }

    /// Adds this many orders to the stream, a thousand at a time.
    pub async fn fill(&mut self, orders: i64) -> Result<()> {
        let lua = "for id = ARGV[1], ARGV[2] do \
                   redis.call('XADD', KEYS[1], '*', 'id', id, 'userId', id, 'voucherId', 7) end";
        let (first, last) = (self.last + 1, self.last + orders);
        for first in (first..last).step_by(1_000) {
            let (first, last) = (first.to_string(), (first + 999).to_string());
            self.fixture.words(&["EVAL", lua, "1", STREAM, &first, &last]).await?;
        }
        self.last = last;
        if self.replica.is_some() {
            self.until_replicated().await?;
        }
        Ok(())
    }

    /// Lets a lane write and acknowledge all these orders, and returns how long that took. The stream must hold no
    /// others.
    pub async fn run(&self, orders: i64, batch: usize, replicas: Option<Confirmation>) -> Result<Duration> {
        let names =
            StreamNames { stream: STREAM.into(), dead: "stream.orders.dead".into(), group: "g1".into() };
        let redis = &self.fixture.store;
        let ledger = Ledger::new(self.pool.clone(), Duration::from_secs(20));
        let counters = Arc::new(Counters::default());
        let handler = OrderHandler::new(
            redis.clone(),
            UserLocks::new(redis.clone(), Duration::from_secs(10), LockLayout::default()),
            ledger.clone(),
            Arc::new(OrderCounters::default()),
        );
        let connection = connect_reader(&RedisConnectionSettings::new(self.fixture.redis.url())).await?;
        let lane = Lane::new(
            Reader::new(connection, names.clone(), "w-0".into()),
            Stream::new(redis, names),
            Arc::new(handler),
            Arc::new(Breaker::default()),
            Arc::clone(&counters),
            LaneSettings { batch, failover: Failover::Possible, replicas, ..LaneSettings::default() },
        );
        let stop = CancellationToken::new();
        let began = Instant::now();
        let running = tokio::spawn(lane.run(stop.clone()));
        while counters.counts().done < orders.cast_unsigned() {
            ensure!(began.elapsed() < SETTLED_WITHIN, "the lane stands still: {:?}", counters.counts());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = began.elapsed();
        stop.cancel();
        running.await?;
        let rows: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM tb_voucher_order").fetch_one(&self.pool).await?;
        ensure!(rows == self.last, "each order has a row");
        let pending: Value = self.fixture.pool.xpending(STREAM, "g1", ()).await?;
        let pending = pending.into_array().first().and_then(Value::as_i64);
        ensure!(pending == Some(0), "all are acknowledged: {pending:?}");
        Ok(took)
    }
}

//! The rate of other vouchers while another session locks rows of some vouchers.
//!
//! The measurement reads the stocks of the vouchers, a few rows, because counting orders would cost more than writing
//! them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::time::sleep;

use super::{
    http,
    load::{self, Entry},
    run::check,
};
use crate::bench::{
    drain::{FILLED, until_settled},
    fixture::{Fixture, GROUP, STOCK, STREAM, Tables},
    orders::Orders,
    results::trouble::{HeldVoucher, LongHold},
    workers::{Shape, Workers},
};

const LOOK_EVERY: Duration = Duration::from_millis(10);
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// The factor by which the others may take longer than without a lock, and the least time that they may take; then they
/// are counted.
const PATIENCE: (u32, Duration) = (10, Duration::from_secs(10));

/// A stream with vouchers that can be locked, and its workers.
struct Scene {
    workers: Workers,
    orders: Orders,
    last: String,
    /// The number of locked vouchers: 1 ..= `held` of `vouchers`; every second entry is for one of them.
    held: i64,
    vouchers: i64,
    others: usize,
}

impl Scene {
    async fn open(fixture: &mut Fixture, entries: usize, held: i64, vouchers: i64) -> Result<Self> {
        fixture.clear_tables(Tables::Fresh, vouchers).await?;
        fixture.clear_redis().await?;
        let (redis, mysql) = (fixture.redis_server.url(), fixture.url(Tables::Fresh));
        let workers = Workers::start(&fixture.program, Shape::DEFAULT, &redis, &[mysql]).await?;
        let orders = fixture.numbers.take(entries, vouchers);
        let entries = orders.iter().enumerate().map(|(at, order)| {
            let turn = at as i64 / 2;
            let voucher = if at % 2 == 0 { 1 + turn % held } else { held + 1 + turn % (vouchers - held) };
            Entry {
                id: Some(order.id),
                event: None,
                user: order.user,
                voucher,
                quantity: 1,
                is_traced: false,
            }
        });
        let entries: Vec<Entry> = entries.collect();
        fixture.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
        let last = load::fill(&mut fixture.redis, FILLED, &entries).await?;
        let others = entries.iter().filter(|entry| entry.voucher > held).count();
        Ok(Self { workers, orders, last, held, vouchers, others })
    }

    /// Opens a session that locks the rows until it rolls back.
    async fn hold(&self, fixture: &Fixture) -> Result<MySqlConnection> {
        let mut holder = fixture.connect(Tables::Fresh).await?;
        let held = self.held;
        let sql = format!(
            "START TRANSACTION; SELECT stock FROM tb_seckill_voucher WHERE voucher_id <= {held} FOR UPDATE"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut holder).await?;
        Ok(holder)
    }

    /// The number of written orders of the other vouchers.
    async fn written(&self, watcher: &mut MySqlConnection) -> Result<usize> {
        let sql = "SELECT CAST(SUM(stock) AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id > ?";
        let left: i64 = sqlx::query_scalar(sql).bind(self.held).fetch_one(watcher).await?;
        Ok(usize::try_from((self.vouchers - self.held) * STOCK - left)?)
    }

    /// Waits until all orders of the other vouchers are written, or until the time is over.
    async fn until_others(&self, fixture: &Fixture, began: Instant, longest: Duration) -> Result<Others> {
        let mut watcher = fixture.connect(Tables::Fresh).await?;
        let mut first = None;
        loop {
            let written = self.written(&mut watcher).await?;
            let took = began.elapsed();
            if written > 0 {
                first.get_or_insert(took);
            }
            if written == self.others || took > longest {
                return Ok(Others { written, took, first: first.unwrap_or(took) });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until everything is acknowledged, and checks that all of it is written.
    async fn close(self, fixture: &mut Fixture) -> Result<()> {
        until_settled(&mut fixture.redis, &self.last, 0).await.with_context(|| self.workers.logs())?;
        check(fixture, &self.orders, self.orders.len(), &self.workers).await?;
        self.workers.stop().await
    }
}

/// The progress of orders for vouchers that are not locked.
struct Others {
    written: usize,
    took: Duration,
    /// The time until the first of them was written.
    first: Duration,
}

/// Measures with a lock on one of ten vouchers, which every second entry is for.
pub async fn one_voucher(fixture: &mut Fixture, entries: usize) -> Result<HeldVoucher> {
    let scene = Scene::open(fixture, entries, 1, 10).await?;
    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    let plain = scene.until_others(fixture, began, Duration::MAX).await?;
    scene.close(fixture).await?;

    let scene = Scene::open(fixture, entries, 1, 10).await?;
    let mut holder = scene.hold(fixture).await?;
    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    let longest = PATIENCE.1.max(plain.took * PATIENCE.0);
    let others = scene.until_others(fixture, began, longest).await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await?;
    holder.close().await?;
    scene.close(fixture).await?;
    Ok(HeldVoucher {
        entries,
        plain_per_s: plain.written as f64 / plain.took.as_secs_f64(),
        held_per_s: others.written as f64 / others.took.as_secs_f64(),
        paused_s: others.first.as_secs_f64(),
        written: others.written,
    })
}

/// Measures with a long lock on 20 of 40 vouchers, while a probe checks whether the worker is alive.
pub async fn half_of_them(fixture: &mut Fixture, entries: usize, hold: Duration) -> Result<LongHold> {
    let scene = Scene::open(fixture, entries, 20, 40).await?;
    let address = scene.workers.admin_address(0)?;
    let mut holder = scene.hold(fixture).await?;
    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    let probes = tokio::spawn(async move {
        let (mut asked, mut refused) = (0, 0);
        while began.elapsed() < hold {
            asked += 1;
            refused += usize::from(!http::is_ok(address, "/livez").await);
            sleep(PROBE_EVERY).await;
        }
        (asked, refused)
    });
    let others = scene.until_others(fixture, began, hold).await?;
    let others_after_s = (others.written == scene.others).then_some(others.took.as_secs_f64());
    let (livez_asked, livez_refused) = probes.await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await?;
    holder.close().await?;
    let released = Instant::now();
    scene.close(fixture).await?;
    let all_after_s = released.elapsed().as_secs_f64();
    let held_s = hold.as_secs_f64();
    Ok(LongHold { entries, held_s, others_after_s, livez_asked, livez_refused, all_after_s })
}

//! The section "Books": the time to compare both stores, the time to fill an empty Redis, and the effect on a sale.
//!
//! Orders are rows of one voucher, as earlier sales would have left them; `tidegate rebuild` fills Redis with them, and
//! `tidegate reconcile` compares the two stores. During a sale, orders come through the real script, so that their
//! notes are in the journal.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection};
use tokio::time::sleep;

use super::{
    drain::{FILLED, until_settled},
    fixture::{Fixture, GROUP, STOCK, STREAM, Tables},
    orders::{FIRST_ID, FIRST_NEW, Orders, USERS},
    proc,
    resp::Resp,
    results::{
        Rate,
        books::{AtSize, BesideASale, Books},
    },
    sizes::BooksSizes,
    workers::{Shape, Workers},
    writers::tell,
};

const ADMIT: &str = include_str!("../../../../lua/admit.lua");
/// The rows of one INSERT: a larger transaction would only wait for the disk.
const ROWS: usize = 1_000_000;
const PIPELINE: usize = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LEASE: &str = "tidegate:reconciler";
const LOOKS_WITHIN: Duration = Duration::from_secs(30);

/// The work that runs while orders drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// The worker compares both stores, one second after the last comparison.
    Task,
    /// A command compares both stores, without waiting between pages.
    Command,
}

/// Measures all sizes.
pub async fn measure(fixture: &mut Fixture, sizes: &BooksSizes) -> Result<Books> {
    let mut books = Books::default();
    for &orders in &sizes.orders {
        books.sizes.push(at_size(fixture, orders).await?);
    }
    if sizes.beside > 0 {
        books.beside_a_sale = Some(beside_a_sale(fixture, sizes).await?);
    }
    Ok(books)
}

async fn at_size(fixture: &mut Fixture, orders: usize) -> Result<AtSize> {
    tell(&format!("books: {orders} orders"));
    prepare(fixture, orders).await?;
    let (rebuild_s, rebuild_peak_kib) = rebuild(fixture).await?;
    let (look_s, look_peak_kib) = run(fixture, &["reconcile"]).await?;
    Ok(AtSize { orders, rebuild_s, rebuild_peak_kib, look_s, look_peak_kib })
}

async fn rebuild(fixture: &Fixture) -> Result<(f64, u64)> {
    run(fixture, &["rebuild", "--all", "--yes"]).await
}

/// Prepares an empty Redis, and a voucher with this many paid orders in MySQL.
async fn prepare(fixture: &mut Fixture, orders: usize) -> Result<()> {
    ensure!((orders as i64) < FIRST_NEW, "Too many orders");
    fixture.clear_tables(Tables::Fresh, 1).await?;
    fixture.clear_redis().await?;
    let mut session = fixture.connect(Tables::Fresh).await?;
    let numbers: Vec<usize> = (0..orders).step_by(ROWS).collect();
    for first in numbers {
        let end = (first + ROWS).min(orders);
        let digits = "SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 \
                      UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9";
        let series = "a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d";
        let tables: Vec<String> =
            ["a", "b", "c", "d", "e", "f"].iter().map(|name| format!("({digits}) {name}")).collect();
        let sql = format!(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id, status) \
             SELECT {FIRST_ID} + seq, {USERS} + 1 + seq, 1, 2 FROM (SELECT {first} + {series} AS seq FROM {}) n \
             WHERE seq < {end}",
            tables.join(", ")
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
    }
    let sql = format!(
        "UPDATE tb_seckill_voucher SET stock = {}, initial_stock = {STOCK}, \
         begin_time = NOW() - INTERVAL 1 HOUR, end_time = '2037-12-31 23:59:59'",
        STOCK - orders as i64
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session).await?;
    Ok(session.close().await?)
}

/// Runs a command that must find nothing wrong. Returns its duration in seconds, and its peak memory in KiB.
async fn run(fixture: &Fixture, args: &[&str]) -> Result<(f64, u64)> {
    let output = tempfile::tempfile()?;
    let began = Instant::now();
    let mut child = fixture
        .command(Tables::Fresh, args)
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()?;
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak_kib.max(proc::peak_kib(child.id()));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(LOOK_EVERY).await;
    };
    let took = began.elapsed().as_secs_f64();
    ensure!(status.success(), "`tidegate {}` ended with {status}: {}", args.join(" "), said(output)?);
    Ok((took, peak_kib))
}

fn said(mut output: std::fs::File) -> Result<String> {
    use std::io::{Read, Seek};
    let mut text = String::new();
    output.rewind()?;
    output.read_to_string(&mut text)?;
    Ok(text)
}

async fn beside_a_sale(fixture: &mut Fixture, sizes: &BooksSizes) -> Result<BesideASale> {
    let mut found = BesideASale { existing: sizes.existing, orders: sizes.beside, ..Default::default() };
    prepare(fixture, sizes.existing).await?;
    rebuild(fixture).await?;
    let (mut alone, mut task, mut typed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=sizes.rounds {
        tell(&format!("books: a sale beside a comparison, round {round} of {}", sizes.rounds));
        let plain = drain(fixture, sizes.beside, Beside::Nothing).await?;
        task.push(drain(fixture, sizes.beside, Beside::Task).await? / plain);
        typed.push(drain(fixture, sizes.beside, Beside::Command).await? / plain);
        alone.push(plain);
    }
    (found.alone_per_s, found.task_share, found.command_share) =
        (Rate::of(alone), Rate::of(task), Rate::of(typed));
    Ok(found)
}

/// Returns the orders per second, from a full stream until everything is settled.
async fn drain(fixture: &mut Fixture, count: usize, beside: Beside) -> Result<f64> {
    let orders = fixture.numbers.take(count, 1);
    fixture.redis.call(&["DEL", STREAM, LEASE, "tidegate:reconciled"]).await?;
    fixture.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
    let last = admit(&mut fixture.redis, &orders).await?;
    let every = if beside == Beside::Task { "1" } else { "0" };
    let (redis, mysql) = (fixture.redis_server.url(), [fixture.url(Tables::Fresh)]);
    let settings = [("TIDEGATE_RECONCILE_EVERY_S", every)];
    let workers = Workers::start_with(&fixture.program, Shape::DEFAULT, &redis, &mysql, &settings).await?;
    let mut typed = match beside {
        Beside::Command => Some(Typed::start(fixture)?),
        Beside::Nothing | Beside::Task => None,
    };
    if beside != Beside::Nothing {
        until_it_compares(fixture).await.with_context(|| workers.logs())?;
    }

    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    until_settled(&mut fixture.redis, &last, 0).await.with_context(|| workers.logs())?;
    let took = began.elapsed().as_secs_f64();

    if let Some(typed) = &mut typed {
        ensure!(typed.0.try_wait()?.is_none(), "The comparison was over before the orders were");
    }
    drop(typed);
    workers.stop().await?;
    let written = fixture.count_written(Tables::Fresh, &orders).await?;
    ensure!(written == count as i64, "{count} orders, {written} written");
    Ok(count as f64 / took)
}

/// Admits orders by the real script, into the stream that waits under another name.
async fn admit(redis: &mut Resp, orders: &Orders) -> Result<String> {
    let sha = redis.call(&["SCRIPT", "LOAD", ADMIT]).await?.text().to_owned();
    let keys = ["seckill:stock:1", "seckill:order:1", "seckill:voucher:1", "seckill:journal:1", FILLED];
    for part in orders.chunks(PIPELINE) {
        for order in part.iter() {
            let [id, user] = [order.id, order.user].map(|number| number.to_string());
            let [stock, buyers, voucher, journal, stream] = keys;
            let arguments = [&id, &user, "1", "1", ""];
            let mut words = vec!["EVALSHA", &sha, "5", stock, buyers, voucher, journal, stream];
            words.extend(arguments);
            redis.queue(&words);
        }
        redis.flush().await?;
        for _ in 0..part.len() {
            let reply = redis.receive().await?;
            ensure!(reply == super::resp::Reply::Int(0), "An order is not admitted: {reply:?}");
        }
    }
    let info = redis.call(&["XINFO", "STREAM", FILLED]).await?;
    Ok(info.field("last-generated-id").context("No last-generated-id")?.text().to_owned())
}

/// Waits for the comparison, which holds the lease.
async fn until_it_compares(fixture: &mut Fixture) -> Result<()> {
    let began = Instant::now();
    while fixture.redis.call(&["EXISTS", LEASE]).await? != super::resp::Reply::Int(1) {
        ensure!(began.elapsed() < LOOKS_WITHIN, "Nobody compares");
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// A running `tidegate reconcile`, which is killed when dropped.
struct Typed(Child);

impl Typed {
    fn start(fixture: &Fixture) -> Result<Self> {
        let mut command = fixture.command(Tables::Fresh, &["reconcile"]);
        Ok(Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

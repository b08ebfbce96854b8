//! The memory that a sale of a week takes in Redis, with and without compaction. The test writes the orders of each day
//! to both stores as scripts and workers leave them, and sets the clock so that the days pass.

use std::{fmt::Write, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use fred::{
    clients::Pool,
    interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface},
    types::{ClusterHash, CustomCommand, InfoKind, Value},
};
use sqlx::{AssertSqlSafe, MySqlPool};
use tidegate_compare::{Comparison, ComparisonRequest, Pace};
use tidegate_lab::{Clock, MysqlServer, RedisServer};
use tidegate_orders::{
    KeyTemplates, RedisStore, Sum, schema,
    scripts::{SaleWindow, SumCheck},
};
use tidegate_reconcile::compact::Compactor;
use tidegate_stream::{RedisConnectionSettings, connect_pool};

use crate::fixture::{job, voucher};

const DAYS: i64 = 7;
const DAY_S: i64 = 24 * 3600;
/// The number of orders that are written at once.
const PIECE: i64 = 500;
/// An order id of the first day, as `icr:order` gives it out, and a user id.
const FIRST_ORDER: i64 = 600_000_000_000_000_000;
const FIRST_USER: i64 = 1_000_000_000;

/// How an order ended, by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Refused,
    Cancelled,
    Used,
    Paid,
}

impl End {
    /// Of twenty orders, two are refused, five cancelled, eleven used, and two still live.
    const fn of(nth: i64) -> Self {
        match nth % 20 {
            0..2 => Self::Refused,
            2..7 => Self::Cancelled,
            7..18 => Self::Used,
            _ => Self::Paid,
        }
    }

    const fn is_buyer(self) -> bool {
        matches!(self, Self::Used | Self::Paid)
    }
}

/// A Redis with the sale.
struct Shop {
    redis: Pool,
    store: RedisStore,
    _server: RedisServer,
}

impl Shop {
    async fn open(clock: &Clock, units: i64) -> Result<Self> {
        // This test does not need persistence.
        let options = RedisServer::options().clock(clock).args(["--appendonly", "no", "--save", ""]);
        let server = tokio::task::spawn_blocking(move || options.start()).await??;
        let settings = RedisConnectionSettings {
            master: None,
            sentinels: None,
            url: server.url(),
            connections: 2,
            command_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
        };
        let redis: Pool = connect_pool(&settings).await?.into();
        let store = RedisStore::with_default_names(redis.clone(), KeyTemplates::default());
        let group: Vec<Value> =
            ["CREATE", "stream.orders", "g1", "0", "MKSTREAM"].map(Value::from).into_iter().collect();
        let command = CustomCommand::new_static("XGROUP", ClusterHash::FirstKey, false);
        redis.next().custom::<(), _>(command, group).await?;
        let shop = Self { redis, store, _server: server };
        shop.store.sales().load(voucher(), units.unsigned_abs(), SaleWindow::default()).await?;
        Ok(shop)
    }

    async fn write(&self, notes: &[(String, String)], buyers: &[String], stock: i64) -> Result<()> {
        self.redis.hset::<(), _, _>(self.store.keys().journal(voucher()), notes.to_vec()).await?;
        self.redis.sadd::<(), _, _>(self.store.keys().buyers(voucher()), buyers.to_vec()).await?;
        Ok(self.redis.set(self.store.keys().stock(voucher()), stock, None, None, false).await?)
    }

    async fn used_memory(&self) -> Result<u64> {
        let info: String = self.redis.info(Some(InfoKind::Memory)).await?;
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).context("used_memory")?;
        Ok(line.trim().parse()?)
    }

    async fn fields(&self) -> Result<i64> {
        Ok(self.redis.hlen(self.store.keys().journal(voucher())).await?)
    }

    async fn expect_sum(&self) -> Result<()> {
        let sum = self.store.journals().check_sum(voucher(), u64::MAX).await?;
        ensure!(matches!(sum, SumCheck::Checked(_, Sum::Holds)), "{sum:?}");
        Ok(())
    }
}

fn notes(orders: std::ops::Range<i64>, units: i64, at_ms: i64) -> Vec<(String, String)> {
    let note = |nth: i64| {
        let (user, from) = (FIRST_USER + nth, units - nth);
        let to = from - 1;
        let by = match End::of(nth) {
            End::Refused => "worker:out_of_stock",
            End::Cancelled => "worker:cancelled",
            End::Used | End::Paid => {
                return format!(
                    r#"{{"action":"admit","from":{from},"to":{to},"change":-1,"by":"{user}","timestamp":{at_ms}}}"#
                );
            }
        };
        format!(
            r#"{{"action":"release","from":{to},"to":{from},"change":1,"by":"{by}","timestamp":{at_ms},"admitted":{{"user":"{user}","change":-1,"timestamp":{at_ms},"from":{from}}}}}"#
        )
    };
    orders.map(|nth| ((FIRST_ORDER + nth).to_string(), note(nth))).collect()
}

/// Rows, refusals and events, as workers write them.
async fn write_rows(mysql: &MySqlPool, orders: std::ops::Range<i64>, at_ms: i64) -> Result<()> {
    let (mut rows, mut refusals, mut events) = (String::new(), String::new(), String::new());
    for nth in orders {
        let (order, user, entry) = (FIRST_ORDER + nth, FIRST_USER + nth, format!("{at_ms}-{nth}"));
        let end = End::of(nth);
        let (status, slot, event) = match end {
            End::Refused => {
                write!(refusals, ",({order},{user},10,1,'out_of_stock','{entry}')")?;
                continue;
            }
            End::Cancelled => (4, "NULL", "cancelled"),
            End::Used => (3, "1", "used"),
            End::Paid => (2, "1", "paid"),
        };
        write!(rows, ",({order},{user},10,1,{status},{slot},'{entry}')")?;
        let released = i64::from(end == End::Cancelled);
        write!(events, ",({order},1,'{event}','applied',{user},10,{status},{released},'{entry}')")?;
    }
    let statements = [
        ("tb_voucher_order (id, user_id, voucher_id, quantity, status, slot, entry_id)", rows),
        (
            "tidegate_event (order_id, step, event, outcome, user_id, voucher_id, to_status, released, entry_id)",
            events,
        ),
        ("tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id)", refusals),
    ];
    let inserts = statements.iter().filter(|(_, values)| !values.is_empty());
    let inserts = inserts.map(|(table, values)| format!("INSERT INTO {table} VALUES {}", &values[1..]));
    let packet = format!("BEGIN; {}; COMMIT", inserts.collect::<Vec<_>>().join("; "));
    sqlx::raw_sql(AssertSqlSafe(packet)).execute(mysql).await?;
    Ok(())
}

/// The test has time for few orders; `just memory-curve` sets more.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_a_sale_is_bounded_by_its_buyers_and_live_orders() -> Result<()> {
    let orders: i64 = match std::env::var("TIDEGATE_MEMORY_ORDERS") {
        Ok(orders) => orders.parse().context("TIDEGATE_MEMORY_ORDERS is a number")?,
        Err(_) => 20_000,
    };
    let clock = Arc::new(tokio::task::spawn_blocking(Clock::start).await??);
    let (compacted, kept) = (Shop::open(&clock, orders).await?, Shop::open(&clock, orders).await?);
    let server = tokio::task::spawn_blocking(MysqlServer::shared).await??;
    let mysql = MySqlPool::connect(&server.url()).await?;
    schema::migrate(&mysql).await?;
    let row =
        format!("INSERT INTO tb_seckill_voucher (voucher_id, stock, initial_stock) VALUES (10, 0, {orders})");
    sqlx::raw_sql(AssertSqlSafe(row)).execute(&mysql).await?;
    let stores = (compacted.store.clone(), mysql.clone());
    // A day is the retention, and the age at which orders are compacted.
    let age = Duration::from_secs(DAY_S.unsigned_abs());
    let compactor = Compactor::new(stores.clone(), (age, Pace::Full));
    let store = compacted.store.clone();

    let empty = compacted.used_memory().await?;
    println!(
        "day  orders     | MiB before the compact, after, fields | not compacted: MiB, fields | compact took"
    );
    let (mut written, mut buyers, mut live) = (0, 0, 0);
    for day in 1..=DAYS + 2 {
        let until = if day <= DAYS { orders * day / DAYS } else { written };
        let at_ms = store.journals().clock_ms().await?;
        while written < until {
            let piece = written..(written + PIECE).min(until);
            written = piece.end;
            let notes = notes(piece.clone(), orders, at_ms);
            let new: Vec<i64> = piece.clone().filter(|nth| End::of(*nth).is_buyer()).collect();
            buyers += new.len() as i64;
            live += new.iter().filter(|nth| End::of(**nth) == End::Paid).count() as i64;
            let users: Vec<String> = new.iter().map(|nth| (FIRST_USER + nth).to_string()).collect();
            let stock = orders - buyers;
            tokio::try_join!(
                compacted.write(&notes, &users, stock),
                kept.write(&notes, &users, stock),
                write_rows(&mysql, piece, at_ms),
            )?;
        }
        clock.set_ahead_by(day * DAY_S)?;
        let before = compacted.used_memory().await?;
        let began = std::time::Instant::now();
        let report = compactor.compact(&[voucher()], compactor.cut_off_ms().await?, &job()).await?;
        let took = began.elapsed();
        let mib = |bytes: u64| (bytes - empty.min(bytes)) / 1024 / 1024;
        println!(
            "{day:>3}  {written:>10} | {:>19} {:>6} {:>7} | {:>15} {:>8} | {:.1} s, {} notes",
            mib(before),
            mib(compacted.used_memory().await?),
            compacted.fields().await?,
            mib(kept.used_memory().await?),
            kept.fields().await?,
            took.as_secs_f64(),
            report.released + report.used
        );
    }
    compacted.expect_sum().await?;
    ensure!(
        compacted.fields().await? == live + 3,
        "live orders, the load, what was compacted, and that it is complete"
    );
    let (left, all) = (compacted.used_memory().await? - empty, kept.used_memory().await? - empty);
    println!("{buyers} buyers, {live} live orders: {left} bytes; not compacted: {all} bytes");
    let bound = 120 * buyers + 300 * live + 1024 * 1024;
    ensure!(i64::try_from(left)? < bound, "{left} bytes, and {bound} are allowed");
    ensure!(left * 2 < all, "{left} of {all} bytes are left");

    let stock = format!("UPDATE tb_seckill_voucher SET stock = {}", orders - buyers);
    sqlx::raw_sql(AssertSqlSafe(stock)).execute(&mysql).await?;
    let request = ComparisonRequest { vouchers: vec![voucher()], since_ms: None, pace: Pace::Full };
    let look = Comparison::new(stores, request).run(&job(), |_| {}).await?;
    ensure!(look.is_clean() && look.passes == 1, "{look:#?}");
    Ok(())
}

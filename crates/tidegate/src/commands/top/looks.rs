//! Looks at the stores and at the worker, again and again, each at its own pace: one that is away holds up no other.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context;
use fred::clients::Pool;
use futures_util::future::pending;
use sqlx::MySqlPool;
use tidegate_orders::{Gate, Keys, VoucherId, gate::Pause, sale, vouchers::VoucherRow};
use tidegate_stream::{EntryId, Letter, Survey, age_ms, server_time_ms};
use tokio::{
    sync::mpsc::Sender,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    facts::{Letters, Look, RedisFacts, Sale, Told},
    worker_page::{self, WorkerPage},
};
use crate::{
    beside,
    config::Settings,
    connect,
    fleet_pause::FleetPause,
    roster::seconds,
    status::{in_time, read_stream, voucher_rows},
};

/// A store that needs longer to answer is away.
const PATIENCE: Duration = Duration::from_secs(3);
/// A worker asks the stores before it answers, and may wait for them.
const WORKER_PATIENCE: Duration = Duration::from_secs(8);
/// Vouchers that are asked for.
pub const VOUCHERS: u32 = 30;
/// Dead letters whose reasons are read: each may be large.
const LETTERS: u16 = 20;

/// What came of a look.
#[derive(Debug)]
pub enum News {
    /// At Redis.
    Redis(Box<Look<RedisFacts>>),
    /// At MySQL.
    MySql(Look<Vec<VoucherRow>>),
    /// At the worker on this machine.
    Worker(Look<WorkerPage>),
}

/// Looks, `every` so often, until nobody hears the news.
pub async fn go_on(settings: &Settings, every: Duration, news: Sender<News>) {
    // MySQL knows which vouchers there are; Redis is asked for these.
    let on_sale = RefCell::new(Vec::new());
    let redis = async {
        let mut redis = Redis { settings, keys: Keys::new(settings.keys.clone()), pool: None };
        repeat(
            every,
            &news,
            |look| News::Redis(Box::new(look)),
            async || {
                let vouchers = on_sale.borrow().clone();
                redis.look(&vouchers).await
            },
        )
        .await;
    };
    let mysql = async {
        let mut mysql = MySql { settings, pool: None };
        repeat(every, &news, News::MySql, async || {
            let rows = mysql.look().await?;
            on_sale.replace(rows.iter().map(|row| row.voucher).collect());
            Ok(told_now(rows))
        })
        .await;
    };
    let worker = async {
        let Ok(address) = beside::address(&settings.admin) else { return pending().await };
        repeat(every, &news, News::Worker, async || {
            let page = worker_page::read(address, &settings.admin);
            let page = timeout(WORKER_PATIENCE, page).await.context("no answer in time").flatten();
            page.map(told_now).with_context(|| format!("no worker answers at {address}"))
        })
        .await;
    };
    tokio::join!(redis, mysql, worker);
}

fn told_now<T>(what: T) -> Told<T> {
    Told { at: Instant::now(), what }
}

async fn repeat<T>(
    every: Duration,
    news: &Sender<News>,
    tell: fn(Look<T>) -> News,
    mut look: impl AsyncFnMut() -> anyhow::Result<Told<T>>,
) {
    // Looks go on to begin together: stocks of one moment can be compared. A store that was slow is left out.
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        clock.tick().await;
        let began = Instant::now();
        let told = look().await.map_err(|error| format!("{error:#}"));
        if news.send(tell(Look { began, told })).await.is_err() {
            return;
        }
        if began.elapsed() >= every {
            // That tick is long past.
            clock.tick().await;
        }
    }
}

struct Redis<'a> {
    settings: &'a Settings,
    keys: Keys,
    pool: Option<Pool>,
}

impl Redis<'_> {
    async fn look(&mut self, vouchers: &[VoucherId]) -> anyhow::Result<Told<RedisFacts>> {
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            // From then on it reconnects by itself.
            None => {
                self.pool.insert(in_time("Redis", PATIENCE, connect::redis(self.settings)).await?).clone()
            }
        };
        let at = Instant::now();
        let what = in_time("Redis", PATIENCE, self.read(&pool, vouchers)).await?;
        Ok(Told { at, what })
    }

    async fn read(&self, pool: &Pool, vouchers: &[VoucherId]) -> anyhow::Result<RedisFacts> {
        let stream = read_stream(pool, self.settings, &self.keys).await?;
        let letters = async {
            if stream.dead_letters == 0 { Ok(Letters::default()) } else { self.letters(pool).await }
        };
        let pause = async { Ok(FleetPause::read(pool, &self.keys).await?) };
        let (letters, pause, sales) = tokio::try_join!(letters, pause, self.sales(pool, vouchers))?;
        Ok(RedisFacts { stream, pause, letters, sales })
    }

    async fn letters(&self, pool: &Pool) -> anyhow::Result<Letters> {
        let survey = Survey::new(pool.clone(), self.settings.stream_names());
        let all = (EntryId::MIN, EntryId::MAX);
        let newest = survey.page_back(&self.settings.stream.dead, all, LETTERS).await?;
        let now_ms = server_time_ms(pool).await?;
        let age_ms = newest.first().map(|letter| age_ms(now_ms, letter.id));
        let mut reasons = BTreeMap::new();
        for letter in newest.into_iter().map(Letter::parse) {
            let reason = letter.burial.map_or_else(|| "unknown".to_owned(), |burial| burial.reason);
            *reasons.entry(reason).or_default() += 1;
        }
        Ok(Letters { newest_s: age_ms.map(seconds), reasons })
    }

    async fn sales(&self, pool: &Pool, vouchers: &[VoucherId]) -> anyhow::Result<BTreeMap<VoucherId, Sale>> {
        let gate = Gate::new(pool.clone(), self.keys.clone(), self.settings.stream.name.as_str());
        let stocks = async { Ok(sale::read_stocks(pool, &self.keys, vouchers).await?) };
        let pauses = async { anyhow::Ok(gate.read_pauses(vouchers).await) };
        let (stocks, pauses) = tokio::try_join!(stocks, pauses)?;
        let sales = vouchers.iter().zip(stocks.into_iter().zip(pauses));
        // A key that cannot be understood stops no sale.
        let sale =
            |stock, pause: Result<Pause, _>| Sale { stock, is_paused: pause.is_ok_and(Pause::is_paused) };
        Ok(sales.map(|(voucher, (stock, pause))| (*voucher, sale(stock, pause))).collect())
    }
}

struct MySql<'a> {
    settings: &'a Settings,
    pool: Option<MySqlPool>,
}

impl MySql<'_> {
    async fn look(&mut self) -> anyhow::Result<Vec<VoucherRow>> {
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            None => self.pool.insert(connect::mysql(self.settings).await?).clone(),
        };
        let rows = voucher_rows(&pool, VOUCHERS, PATIENCE).await;
        if rows.is_err() {
            // A pool only says that it timed out; the next attempt to connect says why.
            self.pool = None;
        }
        rows
    }
}

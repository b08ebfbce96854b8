//! Polls the stores and the worker of this machine, each on its own: one that is away delays no other.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::future::pending;
use tidegate_operations::watch::{MySqlWatch, Reading, RedisWatch};
use tidegate_worker::admin_client;
use tokio::{
    sync::mpsc::Sender,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    observations::{Poll, PollOf},
    worker_page,
};
use crate::config::Settings;

/// A worker asks the stores before it answers, and may wait for them.
const WORKER_TIMEOUT: Duration = Duration::from_secs(8);
/// Vouchers that are asked for.
pub const VOUCHERS: u32 = 30;

/// Polls, `every` so often, until nobody receives the results.
pub async fn poll_all(settings: &Settings, every: Duration, results: Sender<PollOf>) {
    // MySQL knows which vouchers there are; Redis is asked for these.
    let on_sale = RefCell::new(Vec::new());
    let redis = async {
        let mut redis = RedisWatch::new(settings.system.common());
        let wrap = |poll| PollOf::Redis(Box::new(poll));
        repeat(every, &results, wrap, async || {
            let vouchers = on_sale.borrow().clone();
            redis.read(&vouchers).await
        })
        .await;
    };
    let mysql = async {
        let mut mysql = MySqlWatch::new(settings.system.common());
        repeat(every, &results, PollOf::MySql, async || {
            let rows = mysql.read(VOUCHERS).await?;
            on_sale.replace(rows.value.iter().map(|row| row.voucher).collect());
            Ok(rows)
        })
        .await;
    };
    let worker = async {
        let Ok(address) = admin_client::address(&settings.admin) else { return pending().await };
        repeat(every, &results, PollOf::Worker, async || {
            let page = worker_page::read(address, &settings.admin);
            let page = timeout(WORKER_TIMEOUT, page).await.context("no answer in time").flatten();
            page.map(Reading::now).with_context(|| format!("no worker answers at {address}"))
        })
        .await;
    };
    tokio::join!(redis, mysql, worker);
}

async fn repeat<T>(
    every: Duration,
    results: &Sender<PollOf>,
    wrap: fn(Poll<T>) -> PollOf,
    mut read: impl AsyncFnMut() -> anyhow::Result<Reading<T>>,
) {
    // All sources are polled at the same moments, so that their stocks can be compared. One that is slow skips a moment.
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        clock.tick().await;
        let began = Instant::now();
        let result = read().await.map_err(|error| format!("{error:#}"));
        if results.send(wrap(Poll { began, result })).await.is_err() {
            return;
        }
        if began.elapsed() >= every {
            // That tick is long past.
            clock.tick().await;
        }
    }
}

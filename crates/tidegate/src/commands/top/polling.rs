//! Polling of the stores and of the worker of this machine. Each source is polled separately, so that a slow source
//! does not delay the others.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::future::{join_all, pending};
use secrecy::SecretString;
use tidegate_http::admin_client;
use tidegate_operations::{
    SystemSettings,
    watch::{MySqlWatch, Reading, RedisWatch},
};
use tokio::{
    sync::mpsc::Sender,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    observations::{Poll, PollOf},
    worker_page::{self, WorkerPages},
};
use crate::config::Settings;

/// The timeout for a worker, which queries the stores before it answers, and may wait for them.
const WORKER_TIMEOUT: Duration = Duration::from_secs(8);
/// The highest number of vouchers that one poll of MySQL reads.
pub const VOUCHERS: u32 = 30;

/// The result of a poll, and the position of its partition in the list of partitions.
pub type PollOfPartition = (usize, PollOf);

/// Polls the stores and workers of all partitions at the interval `every`, until the receiver of the results is
/// dropped. The worker of this machine gets the token, if there is one.
pub async fn poll_all(
    settings: &Settings,
    (every, token): (Duration, Option<SecretString>),
    results: Sender<PollOfPartition>,
) {
    let partitions = settings.system.partitions();
    let stores = partitions.iter().enumerate().map(|(at, system)| poll_stores((at, system), every, &results));
    let worker = async {
        let Ok(address) = admin_client::address(&settings.admin) else { return pending().await };
        repeat(every, async |began| {
            let pages = worker_page::read(address, token.as_ref());
            let pages =
                timeout(WORKER_TIMEOUT, pages).await.context("the worker did not answer in time").flatten();
            let pages = pages.with_context(|| format!("no worker answers at {address}"));
            let pages = pages.map_err(|error| format!("{error:#}"));
            for (at, system) in partitions.iter().enumerate() {
                let own = |pages: &WorkerPages| pages.of(system.partition().tag()).map(Reading::now);
                let own = pages.as_ref().map_err(String::clone).and_then(|pages| {
                    own(pages).ok_or_else(|| format!("the worker at {address} belongs to another system"))
                });
                results.send((at, PollOf::Worker(Poll { began, result: own }))).await.ok()?;
            }
            Some(())
        })
        .await;
    };
    tokio::join!(join_all(stores), worker);
}

async fn poll_stores(
    (at, system): (usize, &SystemSettings),
    every: Duration,
    results: &Sender<PollOfPartition>,
) {
    // MySQL knows which vouchers exist; Redis is queried for these.
    let on_sale = RefCell::new(Vec::new());
    let redis = async {
        let mut redis = RedisWatch::new(system);
        repeat(every, async |began| {
            let vouchers = on_sale.borrow().clone();
            let result = redis.read(&vouchers).await.map_err(|error| format!("{error:#}"));
            results.send((at, PollOf::Redis(Box::new(Poll { began, result })))).await.ok()
        })
        .await;
    };
    let mysql = async {
        let mut mysql = MySqlWatch::new(system);
        repeat(every, async |began| {
            let result = mysql.read(VOUCHERS).await.map_err(|error| format!("{error:#}"));
            if let Ok(rows) = &result {
                on_sale.replace(rows.value.iter().map(|row| row.voucher).collect());
            }
            results.send((at, PollOf::MySql(Poll { began, result }))).await.ok()
        })
        .await;
    };
    tokio::join!(redis, mysql);
}

/// Calls `poll` with the time of each tick, until it returns None.
async fn repeat(every: Duration, mut poll: impl AsyncFnMut(Instant) -> Option<()>) {
    // All sources are polled at the same times, so that their stocks can be compared. A slow source skips a tick.
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        clock.tick().await;
        let began = Instant::now();
        if poll(began).await.is_none() {
            return;
        }
        if began.elapsed() >= every {
            // This tick passed long ago.
            clock.tick().await;
        }
    }
}

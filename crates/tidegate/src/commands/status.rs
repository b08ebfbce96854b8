//! `tidegate status`: how far the stream is behind, who works on it, and the stocks of both sides.

mod text;

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use serde::Serialize;
use tidegate_orders::{Keys, VoucherId, keys::process_of, sale, vouchers};
use tidegate_stream::{EntryId, GroupStatus, StreamStatus, Undelivered, age_ms, beating, inspect};

use crate::{config::Settings, connect, exit::Exit, output::OutputArgs};

/// Vouchers that are shown at most; the newest ids first.
const VOUCHER_LIMIT: u32 = 50;

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status --json | jq .stream.oldest_pending_s

The age of the oldest undelivered and of the oldest pending entry is what to alarm on: counts depend on how busy
the sale is, an age of a minute never is good. Exits with 3 where a store is away, after showing what it can.";

/// What `tidegate status` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Everything that `tidegate status` shows.
#[derive(Debug, Default, Serialize)]
struct Status {
    /// None while Redis is away.
    stream: Option<StreamView>,
    /// None while MySQL is away.
    vouchers: Option<Vec<Stocks>>,
    /// There are more vouchers than are shown.
    more_vouchers: bool,
    /// What could not be read.
    errors: Vec<String>,
}

/// The stream and its group.
#[derive(Debug, Serialize)]
struct StreamView {
    name: String,
    group: String,
    /// `none`, `stream` or what else the key holds.
    kind: String,
    group_exists: bool,
    length: u64,
    undelivered: u64,
    /// The server could not tell, and counting was stopped: there are more.
    undelivered_is_at_least: bool,
    oldest_undelivered_s: Option<f64>,
    pending: u64,
    oldest_pending_s: Option<f64>,
    dead_letters: u64,
    consumers: Vec<Consumer>,
}

/// A consumer of the group.
#[derive(Debug, Serialize)]
struct Consumer {
    name: String,
    pending: u64,
    idle_s: f64,
    /// Its process has a heartbeat.
    alive: bool,
}

/// A voucher's stock on both sides.
#[derive(Debug, Serialize)]
struct Stocks {
    voucher: VoucherId,
    mysql: i64,
    /// None: none is loaded, or Redis is away.
    redis: Option<i64>,
}

/// Shows what can be seen.
///
/// # Errors
/// When stdout cannot be written to.
pub async fn run(settings: &Settings, args: &StatusArgs) -> anyhow::Result<Exit> {
    let keys = Keys::new(settings.keys.clone());
    let mut status = Status::default();
    let (redis, rows) = tokio::join!(connect::redis(settings), voucher_rows(settings));
    let redis = status.keep(redis);
    if let Some(redis) = &redis {
        let view = read_stream(redis, settings, &keys).await;
        status.stream = status.keep(view.context("Failed to read the stream"));
    }
    if let Some(rows) = status.keep(rows) {
        status.add_vouchers(rows, redis.as_ref(), &keys).await;
    }
    args.output.print(&status, text::render)?;
    Ok(if status.errors.is_empty() { Exit::Ok } else { Exit::Failed })
}

impl Status {
    fn keep<T>(&mut self, read: anyhow::Result<T>) -> Option<T> {
        read.map_err(|error| self.errors.push(format!("{error:#}"))).ok()
    }

    async fn add_vouchers(&mut self, mut rows: Vec<vouchers::VoucherRow>, redis: Option<&Pool>, keys: &Keys) {
        self.more_vouchers = rows.len() > VOUCHER_LIMIT as usize;
        rows.truncate(VOUCHER_LIMIT as usize);
        let ids: Vec<VoucherId> = rows.iter().map(|row| row.voucher).collect();
        let mut stocks = vec![None; ids.len()];
        if let Some(redis) = redis {
            let read =
                sale::read_stocks(redis, keys, &ids).await.context("Failed to read the stocks in Redis");
            stocks = self.keep(read).unwrap_or(stocks);
        }
        let both = rows.iter().zip(stocks);
        let both = both.map(|(row, redis)| Stocks { voucher: row.voucher, mysql: row.stock, redis });
        self.vouchers = Some(both.collect());
    }
}

async fn voucher_rows(settings: &Settings) -> anyhow::Result<Vec<vouchers::VoucherRow>> {
    let mysql = connect::mysql(settings).await?;
    // One more than is shown tells whether there are more.
    let rows =
        tokio::time::timeout(settings.mysql.statement_timeout, vouchers::latest(&mysql, VOUCHER_LIMIT + 1));
    rows.await.context("MySQL did not answer in time")?.context("Failed to read the vouchers")
}

async fn read_stream(redis: &Pool, settings: &Settings, keys: &Keys) -> anyhow::Result<StreamView> {
    let status = inspect(redis, &settings.stream_names()).await?;
    let consumers = consumers(redis, keys, status.group.as_ref()).await?;
    Ok(view(settings, &status, consumers))
}

async fn consumers(redis: &Pool, keys: &Keys, group: Option<&GroupStatus>) -> anyhow::Result<Vec<Consumer>> {
    let consumers = group.map_or(&[][..], |group| &group.consumers);
    let processes: BTreeSet<&str> = consumers.iter().map(|consumer| process_of(&consumer.name)).collect();
    let beats = beating(redis, processes.iter().map(|process| keys.heartbeat(process)).collect()).await?;
    let living: BTreeSet<&str> =
        processes.into_iter().zip(beats).filter(|(_, beats)| *beats).map(|(process, _)| process).collect();
    let seen = consumers.iter().map(|consumer| Consumer {
        name: consumer.name.clone(),
        pending: consumer.pending,
        idle_s: seconds(consumer.idle_ms),
        alive: living.contains(process_of(&consumer.name)),
    });
    Ok(seen.collect())
}

fn view(settings: &Settings, status: &StreamStatus, consumers: Vec<Consumer>) -> StreamView {
    let group = status.group.as_ref();
    let age = |id: Option<EntryId>| id.map(|id| seconds(age_ms(status.now_ms, id)));
    let undelivered = group.map(|group| group.undelivered);
    StreamView {
        name: settings.stream.name.clone(),
        group: settings.stream.group.clone(),
        kind: status.kind.to_string(),
        group_exists: group.is_some(),
        length: status.length,
        undelivered: undelivered.map_or(status.length, Undelivered::number),
        undelivered_is_at_least: matches!(undelivered, Some(Undelivered::AtLeast(_))),
        oldest_undelivered_s: age(group.and_then(|group| group.oldest_undelivered)),
        pending: group.map_or(0, |group| group.pending),
        oldest_pending_s: age(group.and_then(|group| group.oldest_pending)),
        dead_letters: status.dead,
        consumers,
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

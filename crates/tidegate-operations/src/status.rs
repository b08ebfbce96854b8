//! The state of a system: the backlog of the stream, its consumers, and the stocks in both stores.

pub mod no_worker;
mod sale_state;

use std::{future::Future, time::Duration};

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use sqlx::{MySqlConnection, MySqlPool};
use tidegate_compare::{
    reconciled::Reconciled,
    text::{WRONG_TYPE, error_chain, seconds},
};
use tidegate_orders::{
    Partition, RedisStore, VoucherId,
    records::vouchers::{self, VoucherRow},
};
use tidegate_stream::{
    EntryId, KeyKind, SetAsideNote, SetAsideNotes, StreamStatus, Undelivered, age_ms, inspect,
};
use tokio::time::Instant;

pub use self::sale_state::{SaleInRedis, SaleState};
use crate::{
    consumers::{Consumer, Consumers},
    expirations::ExpirationsView,
    finding::Finding,
    fleet_pause::FleetPause,
    settings::SystemSettings,
    within::{in_session, in_time, until},
};

/// The vouchers that are shown at most: those with the highest ids, ascending.
const VOUCHER_LIMIT: u32 = 50;

/// The summary of a system that `tidegate status` shows.
#[derive(Debug, Default, Serialize)]
pub struct Status {
    /// The stream with its consumer group; None: Redis is unavailable.
    pub stream: Option<StreamView>,
    /// The stocks of the vouchers; None: MySQL is unavailable.
    pub vouchers: Option<Vec<VoucherStocks>>,
    /// Whether there are more vouchers than `vouchers` contains.
    pub more_vouchers: bool,
    /// The number of limit counters of the shown vouchers and of their campaigns; empty while Redis is unavailable.
    pub limit_counters: Vec<LimitCounters>,
    /// The warning or the error that no worker is alive; None: a worker is alive, or Redis is unavailable.
    pub no_worker: Option<Finding>,
    /// The pause of all workers; None: the workers are not paused, or Redis is unavailable.
    pub workers_paused: Option<FleetPause>,
    /// The unpaid orders with a time limit for the payment; None: a store is unavailable.
    pub expirations: Option<ExpirationsView>,
    /// The result of the last comparison of Redis and MySQL; None: there was no comparison yet, or Redis is
    /// unavailable.
    pub reconciled: Option<Reconciled>,
    /// The errors of the reads that failed.
    pub errors: Vec<String>,
}

/// The stream of orders with its consumer group and its consumers.
#[derive(Debug, Serialize)]
pub struct StreamView {
    /// The key of the stream.
    pub name: String,
    /// The name of the consumer group.
    pub group: String,
    /// The type of the stream's key in Redis: `none`, `stream` or another type.
    pub kind: String,
    /// Whether the consumer group exists.
    pub group_exists: bool,
    /// The number of entries in the stream, including acknowledged entries.
    pub length: u64,
    /// The number of entries that were ever added to the stream; None: Redis is older than version 7.
    pub entries_added: Option<u64>,
    /// The entries that are undelivered or pending in the consumer group.
    #[serde(flatten)]
    pub backlog: BacklogView,
    /// The number of dead letters (entries that workers could not write).
    pub dead_letters: u64,
    /// The number of pending entries that living workers put off to a later try, by cause.
    pub set_aside: SetAsideNote,
    /// The error of reading why workers put entries off to a later try; None: the read succeeded.
    #[serde(skip)]
    pub set_aside_error: Option<String>,
    /// The keys that should hold streams, but have another type.
    #[serde(skip)]
    pub wrong_keys: Vec<String>,
    /// The consumers of the group.
    pub consumers: Vec<Consumer>,
}

/// The numbers and ages of the entries that are undelivered or pending in a consumer group.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogView {
    /// The number of entries that no consumer of the group has read yet.
    pub undelivered: u64,
    /// Whether there may be more undelivered entries than `undelivered`, because counting was stopped early.
    pub undelivered_is_at_least: bool,
    /// The age of the oldest undelivered entry, in seconds; None: all entries are delivered.
    pub oldest_undelivered_s: Option<f64>,
    /// The number of entries that a consumer has read, but that are not acknowledged.
    pub pending: u64,
    /// The age of the oldest pending entry, in seconds; None: no entry is pending.
    pub oldest_pending_s: Option<f64>,
    /// The number of entries that were ever read and acknowledged; None: Redis cannot count these entries.
    pub entries_settled: Option<u64>,
}

/// The stock of a voucher in Redis and in MySQL.
#[derive(Debug, Serialize)]
pub struct VoucherStocks {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The number of units left in MySQL.
    pub mysql: i64,
    /// The number of units left in Redis; None: Redis has no stock of the voucher, or is unavailable.
    pub redis: Option<i64>,
    /// The number of units that Redis has sold, but that MySQL has not deducted yet: see [`units_to_deduct`].
    pub to_deduct: Option<i64>,
    /// Whether the sale of the voucher is paused; None: Redis is unavailable.
    pub paused: Option<bool>,
    /// Whether the sale of the voucher was ended permanently.
    pub delisted: bool,
    /// The state of the voucher's sale.
    pub sale: SaleState,
}

/// The number of limit counters that Redis holds for a voucher or a campaign.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LimitCounters {
    /// The voucher or the campaign whose orders the counters count, such as `voucher:7` or `campaign:5`.
    pub owner: String,
    /// The number of counters in Redis. Each counter belongs to a person, device or address whose orders a limit
    /// counts, or to a user with several orders for one voucher.
    pub counters: u64,
}

/// Returns the number of units that MySQL still has to deduct for orders that Redis admitted: unwritten orders, dead
/// letters and lost orders. A negative number means that Redis offers more units than MySQL has. The stocks are read
/// one after the other, so orders between the two reads make the number inexact.
#[must_use]
pub const fn units_to_deduct(mysql: i64, redis: i64) -> i64 {
    mysql.saturating_sub(redis)
}

impl Status {
    /// Reads as much of the summary as possible. [`Status::errors`] contains the errors of the failed reads. After both
    /// connections have succeeded or failed, the reads take at most `within`.
    pub async fn read(
        settings: &SystemSettings,
        redis: impl Future<Output = anyhow::Result<RedisStore>>,
        mysql: impl Future<Output = anyhow::Result<MySqlPool>>,
        within: Duration,
    ) -> Self {
        let mut status = Self::default();
        let (redis, mysql) = tokio::join!(redis, mysql);
        let end = Instant::now() + within;
        // One voucher more than is shown reveals whether there are more.
        let rows = async {
            let mysql = mysql?;
            let rows = voucher_rows(&mysql, settings.partition(), VOUCHER_LIMIT + 1, within).await?;
            anyhow::Ok((rows, mysql))
        };
        let stream = async {
            let redis = redis?;
            let view = in_time("Redis", until(end), read_stream(&redis, settings)).await;
            let view = view.context("Failed to read the stream");
            let pause = async { Ok(FleetPause::read(&redis).await?) };
            let pause = in_time("Redis", until(end), pause).await;
            let pause = pause.context("Failed to read whether the workers are paused");
            let reconciled = async { Ok(Reconciled::read(&redis).await?) };
            let reconciled = in_time("Redis", until(end), reconciled).await;
            let reconciled = reconciled.context("Failed to read the last comparison of Redis and MySQL");
            anyhow::Ok((redis, view, pause, reconciled))
        };
        let (stream, rows) = tokio::join!(stream, rows);
        let redis = status.value_or_note(stream).and_then(|(redis, view, pause, reconciled)| {
            status.stream = status.value_or_note(view);
            let unknown = status.stream.as_mut().and_then(|stream| stream.set_aside_error.take());
            status.errors.extend(unknown);
            let wrong_keys = status.stream.as_mut().map(|stream| std::mem::take(&mut stream.wrong_keys));
            status.errors.extend(wrong_keys.unwrap_or_default());
            status.workers_paused = status.value_or_note(pause).flatten();
            status.reconciled = status.value_or_note(reconciled).flatten();
            status.stream.is_some().then_some(redis)
        });
        let rows = status.value_or_note(rows);
        if let (Some(redis), Some(stream)) = (&redis, &status.stream) {
            let mysql = rows.as_ref().map(|(_, mysql)| mysql);
            let found =
                in_time("Redis", until(end), no_worker::check(settings, (redis, mysql), stream, until(end)))
                    .await;
            status.no_worker = status.value_or_note(found).flatten();
        }
        if let Some((rows, mysql)) = rows {
            if let Some(redis) = &redis {
                let read = ExpirationsView::read(settings, redis, &mysql, until(end)).await;
                status.expirations = status.value_or_note(read);
            }
            status.add_vouchers(rows, redis.as_ref(), end).await;
        }
        status
    }

    /// Returns the value that was read, or adds the error to [`Status::errors`].
    fn value_or_note<T>(&mut self, read: anyhow::Result<T>) -> Option<T> {
        read.map_err(|error| self.errors.push(error_chain(&error))).ok()
    }

    async fn add_vouchers(&mut self, mut rows: Vec<VoucherRow>, redis: Option<&RedisStore>, end: Instant) {
        self.more_vouchers = rows.len() > VOUCHER_LIMIT as usize;
        rows.truncate(VOUCHER_LIMIT as usize);
        rows.reverse();
        let ids: Vec<VoucherId> = rows.iter().map(|row| row.voucher).collect();
        let mut sales = vec![None; ids.len()];
        if let Some(redis) = redis {
            let read = in_time("Redis", until(end), SaleInRedis::read(redis, &ids)).await;
            let read = self.value_or_note(read.context("Failed to read the sales in Redis"));
            sales = read.map_or(sales, |read| read.into_iter().map(Some).collect());
            let read = async { Ok(redis.limits().count_uses(&ids).await?) };
            let read = in_time("Redis", until(end), read).await;
            let read = read.context("Failed to count the limit counters in Redis");
            let counters = self.value_or_note(read).into_iter().flatten();
            let counters =
                counters.map(|(owner, counters)| LimitCounters { owner: owner.to_string(), counters });
            self.limit_counters = counters.collect();
        }
        let now_ms = Timestamp::now().as_millisecond();
        let both = rows.iter().zip(sales).map(|(row, sale)| VoucherStocks {
            voucher: row.voucher,
            mysql: row.stock,
            redis: sale.and_then(|sale| sale.stock),
            to_deduct: sale.and_then(|sale| sale.stock).map(|stock| units_to_deduct(row.stock, stock)),
            paused: sale.and_then(|sale| sale.is_paused),
            delisted: row.delisted_ms.is_some(),
            sale: SaleState::of(row, sale, now_ms),
        });
        self.vouchers = Some(both.collect());
    }
}

/// Reads from MySQL at most `limit` vouchers of a partition, those with the highest ids.
///
/// # Errors
/// If MySQL does not answer in time, or its tables are not ready.
pub async fn voucher_rows(
    mysql: &MySqlPool,
    partition: &Partition,
    limit: u32,
    within: Duration,
) -> anyhow::Result<Vec<VoucherRow>> {
    let latest = async |session: &mut MySqlConnection| Ok(vouchers::latest(session, partition, limit).await?);
    let rows = in_session(mysql, within, latest).await;
    rows.context("Failed to read the vouchers")
}

/// Reads the stream with its consumer group and its consumers.
///
/// # Errors
/// If Redis does not answer.
pub async fn read_stream(redis: &RedisStore, settings: &SystemSettings) -> anyhow::Result<StreamView> {
    let status = inspect(redis, &settings.stream_names()).await?;
    let consumers = status.group.as_ref().map_or_else(Vec::new, |group| group.consumers.clone());
    let consumers = Consumers::of(redis, consumers).await?;
    let set_aside_notes = SetAsideNotes::new(redis, redis.inspector().names());
    let set_aside = match set_aside_notes.read(consumers.processes()).await {
        Err(error) if error.is_refusal() => Err(error),
        read => Ok(read.context("Failed to read the entries that are set aside")?),
    };
    let mut view = view(settings, &status, SetAsideNote::default(), consumers.all);
    match set_aside {
        Ok(note) => view.set_aside = note,
        Err(error) => {
            let hash = settings.stream_names().set_aside();
            let why = error.details();
            view.set_aside_error =
                Some(format!("Failed to read entries that are set aside from {hash}: {why}"));
        }
    }
    Ok(view)
}

fn view(
    settings: &SystemSettings,
    status: &StreamStatus,
    set_aside: SetAsideNote,
    consumers: Vec<Consumer>,
) -> StreamView {
    let group = status.group.as_ref();
    let age = |id: Option<EntryId>| id.map(|id| seconds(age_ms(status.now_ms, id)));
    let undelivered = group.map(|group| group.undelivered);
    StreamView {
        name: settings.stream.name.clone(),
        group: settings.stream.group.clone(),
        kind: status.kind.to_string(),
        group_exists: group.is_some(),
        length: status.length,
        entries_added: status.entries_added,
        backlog: BacklogView {
            undelivered: undelivered.map_or(status.length, Undelivered::number),
            undelivered_is_at_least: matches!(undelivered, Some(Undelivered::AtLeast(_))),
            oldest_undelivered_s: age(group.and_then(|group| group.oldest_undelivered)),
            pending: group.map_or(0, |group| group.pending),
            oldest_pending_s: age(group.and_then(|group| group.oldest_pending)),
            entries_settled: group.and_then(|group| group.settled),
        },
        dead_letters: status.dead,
        set_aside,
        set_aside_error: None,
        wrong_keys: wrong_keys(settings, status),
        consumers,
    }
}

fn wrong_keys(settings: &SystemSettings, status: &StreamStatus) -> Vec<String> {
    let keys = [(&settings.stream.name, &status.kind), (&settings.stream.dead, &status.dead_kind)];
    let wrong = |(name, kind): (&String, &KeyKind)| match kind {
        KeyKind::Other(kind) => Some(format!("{name} is a {kind}, not a stream; see {WRONG_TYPE}")),
        KeyKind::Missing | KeyKind::Stream => None,
    };
    keys.into_iter().filter_map(wrong).collect()
}

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

/// The state of a system at a glance.
#[derive(Debug, Default, Serialize)]
pub struct Status {
    /// The stream and its group; None while Redis is unavailable.
    pub stream: Option<StreamView>,
    /// The stocks of the vouchers; None while MySQL is unavailable.
    pub vouchers: Option<Vec<VoucherStocks>>,
    /// Whether there are more vouchers than are shown.
    pub more_vouchers: bool,
    /// The counters for the limits of these vouchers and of their campaigns; empty while Redis is unavailable.
    pub limit_counters: Vec<LimitCounters>,
    /// The finding that no worker is alive; None: one is alive, or Redis is unavailable.
    pub no_worker: Option<Finding>,
    /// The pause of all workers; None: they are not paused, or Redis is unavailable.
    pub workers_paused: Option<FleetPause>,
    /// The orders that have to be paid in time; None while a store is unavailable.
    pub expirations: Option<ExpirationsView>,
    /// The result of the last comparison of both stores; None: there was none yet, or Redis is unavailable.
    pub reconciled: Option<Reconciled>,
    /// The errors of what could not be read.
    pub errors: Vec<String>,
}

/// The stream, its group and its consumers.
#[derive(Debug, Serialize)]
pub struct StreamView {
    /// The key of the stream.
    pub name: String,
    /// The name of the consumer group.
    pub group: String,
    /// The type of the key: `none`, `stream` or another type.
    pub kind: String,
    /// Whether the consumer group exists.
    pub group_exists: bool,
    /// The number of entries in the stream, including acknowledged ones.
    pub length: u64,
    /// The number of entries that were ever added; None before Redis 7.
    pub entries_added: Option<u64>,
    /// The entries that the group has not handled yet.
    #[serde(flatten)]
    pub backlog: BacklogView,
    /// The number of entries in the stream of dead letters.
    pub dead_letters: u64,
    /// The pending entries that living workers have set aside, with the causes.
    pub set_aside: SetAsideNote,
    /// The error if the entries that were set aside could not be read.
    #[serde(skip)]
    pub set_aside_error: Option<String>,
    /// The keys that should be streams and are not.
    #[serde(skip)]
    pub wrong_keys: Vec<String>,
    /// The consumers of the group.
    pub consumers: Vec<Consumer>,
}

/// The entries that a group has not read or not acknowledged, with their ages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogView {
    /// The number of entries that no consumer has read yet.
    pub undelivered: u64,
    /// Whether there are more undelivered entries: the server could not count them, and counting was stopped.
    pub undelivered_is_at_least: bool,
    /// The age of the oldest undelivered entry, in seconds.
    pub oldest_undelivered_s: Option<f64>,
    /// The number of entries that were read and are not acknowledged.
    pub pending: u64,
    /// The age of the oldest pending entry, in seconds.
    pub oldest_pending_s: Option<f64>,
    /// The number of entries that were ever read and acknowledged, whatever their outcome; None if Redis cannot count
    /// them.
    pub entries_settled: Option<u64>,
}

/// The stock of a voucher in both stores.
#[derive(Debug, Serialize)]
pub struct VoucherStocks {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The units left in MySQL.
    pub mysql: i64,
    /// The units left in Redis; None: no stock is loaded, or Redis is unavailable.
    pub redis: Option<i64>,
    /// The units that were taken in Redis and are not in an order of MySQL yet: see [`units_to_deduct`].
    pub to_deduct: Option<i64>,
    /// Whether the sale is paused; None: Redis is unavailable.
    pub paused: Option<bool>,
    /// Whether the voucher is delisted, so that its sale is over for good.
    pub delisted: bool,
    /// The state of the sale.
    pub sale: SaleState,
}

/// The number of limit counters that Redis holds for a voucher or a campaign.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LimitCounters {
    /// The voucher or the campaign, such as `voucher:7` or `campaign:5`.
    pub owner: String,
    /// The number of counters: one for each subject of each limit, and one for each user with slots.
    pub counters: u64,
}

/// Returns the units that still have to be deducted in MySQL: those of orders in flight, of dead letters, of lost
/// orders, and of releases that only MySQL has yet. A negative value means that Redis offers more than MySQL has. The
/// two stocks are read one after the other, so in a rush the value differs by what changed in between.
#[must_use]
pub const fn units_to_deduct(mysql: i64, redis: i64) -> i64 {
    mysql.saturating_sub(redis)
}

impl Status {
    /// Reads everything that it can; [`Status::errors`] has the reasons for the rest. The reads take no longer than
    /// `within`, counted from when both `redis` and `mysql` have connected or failed to.
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
            let reconciled = reconciled.context("Failed to read the last comparison of both stores");
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

/// Reads the vouchers of a partition with the highest ids, up to `limit`.
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

/// Reads the stream, its group and its consumers.
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
        read => Ok(read.context("Failed to read what is set aside")?),
    };
    let mut view = view(settings, &status, SetAsideNote::default(), consumers.all);
    match set_aside {
        Ok(note) => view.set_aside = note,
        Err(error) => {
            let hash = settings.stream_names().set_aside();
            let why = error.details();
            view.set_aside_error = Some(format!("Failed to read what is set aside, from {hash}: {why}"));
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

//! How far the stream is behind, who works on it, and the stocks on both sides.

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

/// Vouchers that are shown at most: those with the highest ids, ascending.
const VOUCHER_LIMIT: u32 = 50;

/// Everything that there is to know at a glance.
#[derive(Debug, Default, Serialize)]
pub struct Status {
    /// None while Redis is away.
    pub stream: Option<StreamView>,
    /// None while MySQL is away.
    pub vouchers: Option<Vec<VoucherStocks>>,
    /// There are more vouchers than are shown.
    pub more_vouchers: bool,
    /// What is counted for the limits of these vouchers, and of their campaigns; of none while Redis is away.
    pub limit_counters: Vec<LimitCounters>,
    /// No worker is alive, and how grave that is; None: one is alive, or Redis is away.
    pub no_worker: Option<Finding>,
    /// None: the workers are not paused, or Redis is away.
    pub workers_paused: Option<FleetPause>,
    /// Orders that have to be paid in time; None while a store is away.
    pub expirations: Option<ExpirationsView>,
    /// What the last comparison of both stores found; None: there was none yet, or Redis is away.
    pub reconciled: Option<Reconciled>,
    /// What could not be read.
    pub errors: Vec<String>,
}

/// The stream and its group.
#[derive(Debug, Serialize)]
pub struct StreamView {
    /// Key of the stream.
    pub name: String,
    /// Name of the group.
    pub group: String,
    /// `none`, `stream` or what else the key holds.
    pub kind: String,
    /// The group is there.
    pub group_exists: bool,
    /// Entries in the stream, acknowledged ones included.
    pub length: u64,
    /// Entries that were ever added; None before Redis 7.
    pub entries_added: Option<u64>,
    /// What the group has not done yet.
    #[serde(flatten)]
    pub backlog: BacklogView,
    /// Entries in the stream of dead letters.
    pub dead_letters: u64,
    /// What living workers have set aside of these, and what for.
    pub set_aside: SetAsideNote,
    /// Why that is not known.
    #[serde(skip)]
    pub set_aside_error: Option<String>,
    /// Keys that should be streams and are not.
    #[serde(skip)]
    pub wrong_keys: Vec<String>,
    /// Who reads.
    pub consumers: Vec<Consumer>,
}

/// The entries that a group has not read or not acknowledged, with their ages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogView {
    /// Entries that no consumer has read yet.
    pub undelivered: u64,
    /// The server could not tell, and counting was stopped: there are more.
    pub undelivered_is_at_least: bool,
    /// Age of the first of them.
    pub oldest_undelivered_s: Option<f64>,
    /// Entries that were read and are not acknowledged.
    pub pending: u64,
    /// Age of the first of them.
    pub oldest_pending_s: Option<f64>,
    /// Entries that were ever read and acknowledged, whatever came of them; None where Redis cannot tell.
    pub entries_settled: Option<u64>,
}

/// A voucher's stock on both sides.
#[derive(Debug, Serialize)]
pub struct VoucherStocks {
    /// The voucher.
    pub voucher: VoucherId,
    /// Units left in MySQL.
    pub mysql: i64,
    /// None: none is loaded, or Redis is away.
    pub redis: Option<i64>,
    /// Units that were taken in Redis and are in no order of MySQL yet: see [`units_to_deduct`].
    pub to_deduct: Option<i64>,
    /// Its sale is paused; None: Redis is away.
    pub paused: Option<bool>,
    /// Its sale is over for good.
    pub delisted: bool,
    /// How its sale stands.
    pub sale: SaleState,
}

/// How much Redis counts for the limits of a voucher or a campaign.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LimitCounters {
    /// `voucher:7`, `campaign:5`.
    pub owner: String,
    /// One for each subject of each limit, and one for each user with slots.
    pub counters: u64,
}

/// Units that are still to be deducted in MySQL, of these stocks: those of orders in flight, of dead letters and of lost
/// orders, and of releases that only MySQL has yet. Below 0: Redis offers more than MySQL has. The two stocks are read one
/// after the other, so in a rush it differs by what moved in between.
#[must_use]
pub const fn units_to_deduct(mysql: i64, redis: i64) -> i64 {
    mysql.saturating_sub(redis)
}

impl Status {
    /// Reads what it can; why it could not read the rest is in [`Status::errors`]. The reads take no longer than `within`,
    /// counted from when both `redis` and `mysql` have connected or failed to.
    pub async fn read(
        settings: &SystemSettings,
        redis: impl Future<Output = anyhow::Result<RedisStore>>,
        mysql: impl Future<Output = anyhow::Result<MySqlPool>>,
        within: Duration,
    ) -> Self {
        let mut status = Self::default();
        let (redis, mysql) = tokio::join!(redis, mysql);
        let end = Instant::now() + within;
        // One more than is shown tells whether there are more.
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
            let pause = pause.context("Failed to look whether the workers are paused");
            let reconciled = async { Ok(Reconciled::read(&redis).await?) };
            let reconciled = in_time("Redis", until(end), reconciled).await;
            let reconciled =
                reconciled.context("Failed to read what the last comparison of both stores found");
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

    /// What was read. An error is added to [`Status::errors`].
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
            let read = read.context("Failed to count what is counted for limits in Redis");
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

/// The vouchers of a partition with the highest ids, up to `limit`.
///
/// # Errors
/// When MySQL does not answer in time, or its tables are not ready.
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

/// The stream, its group and its consumers.
///
/// # Errors
/// When Redis does not answer.
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

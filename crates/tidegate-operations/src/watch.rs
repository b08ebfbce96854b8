//! Reads both stores again and again, for whoever watches a sale live. Each store has a connection of its own, opened at
//! the first read: one that is away does not delay the other.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tidegate_compare::{reconciled::Reconciled, text::seconds};
use tidegate_orders::{RedisStore, VoucherId, records::vouchers::VoucherRow};
use tidegate_stream::{EntryId, Letter, age_ms, server_time_ms};

use crate::{
    Stores,
    fleet_pause::FleetPause,
    settings::SystemSettings,
    status::{SaleInRedis, StreamView, no_worker, read_stream, voucher_rows},
    within::in_time,
};

/// A store that needs longer to answer is away.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Between two looks at all keys for a worker that is alive and has read nothing yet.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Dead letters whose reasons are read: each may be large.
const LETTERS: u16 = 20;

/// What a source answered.
#[derive(Clone, Copy, Debug)]
pub struct Reading<T> {
    /// When its counters were read. A connection that was opened before, or more that was read after, may have taken as
    /// long as the interval over which a rate is calculated.
    pub at: Instant,
    /// The answer.
    pub value: T,
}

impl<T> Reading<T> {
    /// Of this moment.
    pub fn now(value: T) -> Self {
        Self { at: Instant::now(), value }
    }
}

/// What Redis holds.
#[derive(Debug)]
pub struct RedisOverview {
    /// The stream, its group and its consumers.
    pub stream: StreamView,
    /// The pause of all workers.
    pub pause: Option<FleetPause>,
    /// The newest dead letters.
    pub letters: NewestLetters,
    /// What the last comparison of both stores found, where one was made.
    pub reconciled: Option<Reconciled>,
    /// Of the vouchers that were asked for.
    pub sales: BTreeMap<VoucherId, SaleInRedis>,
    /// A worker is alive; None: that cannot be seen.
    pub has_worker: Option<bool>,
}

/// The newest dead letters.
#[derive(Clone, Debug, Default)]
pub struct NewestLetters {
    /// Age of the newest.
    pub newest_s: Option<f64>,
    /// How many of them have which reason.
    pub reasons: BTreeMap<String, u64>,
}

/// Reads Redis again and again.
#[derive(Debug)]
pub struct RedisWatch {
    stores: Stores,
    /// Whether a worker was alive at the last look at all keys, and when that was.
    looked: Option<(Instant, Option<bool>)>,
    /// No consumer has been alive since.
    none_since: Option<Instant>,
}

impl RedisWatch {
    /// Connects at the first read.
    #[must_use]
    pub fn new(settings: &SystemSettings) -> Self {
        Self { stores: Stores::new(settings), looked: None, none_since: None }
    }

    /// Reads everything, with the sales of these vouchers.
    ///
    /// # Errors
    /// When Redis does not answer in time, or the key holds no stream.
    pub async fn read(&mut self, vouchers: &[VoucherId]) -> anyhow::Result<Reading<RedisOverview>> {
        // Once connected, it reconnects by itself.
        let pool = in_time("Redis", TIMEOUT, self.stores.redis()).await?.clone();
        let at = Instant::now();
        let mut value = in_time("Redis", TIMEOUT, self.overview(&pool, vouchers)).await?;
        value.has_worker = self.look_for_worker(&pool, &value.stream).await;
        Ok(Reading { at, value })
    }

    /// Consumers of the group tell at once. Where none is alive, all keys have to be looked at, which is not done at each reading.
    async fn look_for_worker(&mut self, pool: &RedisStore, stream: &StreamView) -> Option<bool> {
        if stream.consumers.iter().any(|consumer| consumer.alive) {
            (self.looked, self.none_since) = (None, None);
            return Some(true);
        }
        // Redis may have lost its signs of life for a moment, by an outage or with its data.
        if self.none_since.get_or_insert_with(Instant::now).elapsed() < LOOK_EVERY {
            return None;
        }
        if let Some((at, found)) = self.looked
            && at.elapsed() < LOOK_EVERY
        {
            return found;
        }
        let look = no_worker::is_any_alive(pool, stream);
        let found = in_time("Redis", TIMEOUT, look).await.ok();
        self.looked = Some((Instant::now(), found));
        found
    }

    async fn overview(&self, pool: &RedisStore, vouchers: &[VoucherId]) -> anyhow::Result<RedisOverview> {
        let stream = read_stream(pool, self.stores.settings()).await?;
        let letters = async {
            if stream.dead_letters == 0 { Ok(NewestLetters::default()) } else { self.letters(pool).await }
        };
        let pause = async { Ok(FleetPause::read(pool).await?) };
        let reconciled = async { Ok(Reconciled::read(pool).await?) };
        let sales = SaleInRedis::read(pool, vouchers);
        let (letters, pause, reconciled, sales) = tokio::try_join!(letters, pause, reconciled, sales)?;
        let sales = vouchers.iter().copied().zip(sales).collect();
        Ok(RedisOverview { stream, pause, letters, reconciled, sales, has_worker: None })
    }

    async fn letters(&self, pool: &RedisStore) -> anyhow::Result<NewestLetters> {
        let inspector = pool.inspector();
        let all = (EntryId::MIN, EntryId::MAX);
        let newest = inspector.page_back(&self.stores.settings().stream.dead, all, LETTERS).await?;
        let now_ms = server_time_ms(pool).await?;
        let age_ms = newest.first().map(|letter| age_ms(now_ms, letter.id));
        let mut reasons = BTreeMap::new();
        for letter in newest.into_iter().map(Letter::parse) {
            let reason = letter.burial.map_or_else(|| "unknown".to_owned(), |burial| burial.reason);
            *reasons.entry(reason).or_default() += 1;
        }
        Ok(NewestLetters { newest_s: age_ms.map(seconds), reasons })
    }
}

/// Reads MySQL again and again.
#[derive(Debug)]
pub struct MySqlWatch {
    stores: Stores,
}

impl MySqlWatch {
    /// Connects at the first read.
    #[must_use]
    pub fn new(settings: &SystemSettings) -> Self {
        Self { stores: Stores::new(settings) }
    }

    /// Reads the vouchers with the highest ids, up to `limit`.
    ///
    /// # Errors
    /// When MySQL does not answer in time, or its tables are not ready.
    pub async fn read(&mut self, limit: u32) -> anyhow::Result<Reading<Vec<VoucherRow>>> {
        let (mysql, settings) = (self.stores.mysql().await?, self.stores.settings());
        let rows = voucher_rows(mysql, settings.partition(), limit, TIMEOUT).await;
        if rows.is_err() {
            // A pool only says that it timed out; the next attempt to connect says why.
            self.stores = Stores::new(settings);
        }
        rows.map(Reading::now)
    }
}

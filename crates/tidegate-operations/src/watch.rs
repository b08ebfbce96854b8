//! Reads both stores repeatedly, for an operator who watches a sale live. Each store has its own connection, opened at
//! the first read, so that an unavailable store does not delay the other one.

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

/// The time after which a store that has not answered counts as unavailable.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The time between two scans of all keys for a living worker that has read nothing yet.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The number of dead letters whose reasons are read, because each letter may be large.
const LETTERS: u16 = 20;

/// A value from a store, with the time at which it was read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<T> {
    /// The time when the value was read. The time to connect is not included, so that rates between two readings
    /// are correct.
    pub at: Instant,
    /// The value that was read from the store.
    pub value: T,
}

impl<T> Reading<T> {
    /// Creates a reading of this value with the current time.
    pub fn now(value: T) -> Self {
        Self { at: Instant::now(), value }
    }
}

/// The values of Redis that one poll of the command `tidegate top` reads.
#[derive(Debug)]
pub struct RedisOverview {
    /// The stream of orders with its consumer group and its consumers.
    pub stream: StreamView,
    /// The pause of all workers; None: the workers are not paused.
    pub pause: Option<FleetPause>,
    /// The age and the reasons of the newest dead letters.
    pub letters: NewestLetters,
    /// The result of the last comparison of Redis and MySQL; None: there was no comparison yet.
    pub reconciled: Option<Reconciled>,
    /// The sales, as Redis stores them, of the vouchers that the caller asked for.
    pub sales: BTreeMap<VoucherId, SaleInRedis>,
    /// Whether any worker is alive; None: the heartbeats cannot be read.
    pub has_worker: Option<bool>,
}

/// The age of the newest dead letter, and the reasons of the newest dead letters.
#[derive(Clone, Debug, Default)]
pub struct NewestLetters {
    /// The age of the newest dead letter, in seconds; None: there is no dead letter.
    pub newest_s: Option<f64>,
    /// The reasons of the newest dead letters, each with the number of letters.
    pub reasons: BTreeMap<String, u64>,
}

/// The reader that polls Redis for the command `tidegate top`.
#[derive(Debug)]
pub struct RedisWatch {
    stores: Stores,
    /// The last scan of all keys for a living worker, and its result.
    looked: Option<(Instant, Option<bool>)>,
    /// The time since when no consumer has been alive.
    none_since: Option<Instant>,
}

impl RedisWatch {
    /// Creates a reader of Redis that connects at its first read.
    #[must_use]
    pub fn new(settings: &SystemSettings) -> Self {
        Self { stores: Stores::new(settings), looked: None, none_since: None }
    }

    /// Reads the values of Redis that `tidegate top` shows, including the sales of these vouchers.
    ///
    /// # Errors
    /// If Redis does not answer in time, or the key holds no stream.
    pub async fn read(&mut self, vouchers: &[VoucherId]) -> anyhow::Result<Reading<RedisOverview>> {
        // After the first connection, the client reconnects without help.
        let pool = in_time("Redis", TIMEOUT, self.stores.redis()).await?.clone();
        let at = Instant::now();
        let mut value = in_time("Redis", TIMEOUT, self.overview(&pool, vouchers)).await?;
        value.has_worker = self.look_for_worker(&pool, &value.stream).await;
        Ok(Reading { at, value })
    }

    /// Returns whether a worker is alive. The consumers of the group show it at once. If none is alive, all keys have
    /// to be scanned, which is not done at each read.
    async fn look_for_worker(&mut self, pool: &RedisStore, stream: &StreamView) -> Option<bool> {
        if stream.consumers.iter().any(|consumer| consumer.alive) {
            (self.looked, self.none_since) = (None, None);
            return Some(true);
        }
        // Redis may have lost the heartbeats for a short time, by an outage or with its data.
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

/// The reader that polls the vouchers in MySQL for the command `tidegate top`.
#[derive(Debug)]
pub struct MySqlWatch {
    stores: Stores,
}

impl MySqlWatch {
    /// Creates a reader of MySQL that connects at its first read.
    #[must_use]
    pub fn new(settings: &SystemSettings) -> Self {
        Self { stores: Stores::new(settings) }
    }

    /// Reads the vouchers with the highest ids from MySQL, at most `limit`.
    ///
    /// # Errors
    /// If MySQL does not answer in time, or its tables are not ready.
    pub async fn read(&mut self, limit: u32) -> anyhow::Result<Reading<Vec<VoucherRow>>> {
        let (mysql, settings) = (self.stores.mysql().await?, self.stores.settings());
        let rows = voucher_rows(mysql, settings.partition(), limit, TIMEOUT).await;
        if rows.is_err() {
            // A pool only reports a timeout; the next attempt to connect reports the cause.
            self.stores = Stores::new(settings);
        }
        rows.map(Reading::now)
    }
}

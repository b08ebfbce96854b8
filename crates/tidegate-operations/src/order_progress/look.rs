//! Reads the progress of several orders together. It is one statement to MySQL for all orders, and a few calls to Redis
//! for each order that MySQL does not know.

mod redis_look;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::Context;
use sqlx::MySqlPool;
use tidegate_orders::{
    OrderId, Records, RecordsError, RedisStore, VoucherId,
    event::History,
    ledger::read_histories,
    records::{DeadLetterRecord, EntryContent, RefusalRow, vouchers},
};
use tidegate_stream::{EntryId, ReadRate};
use tokio::time::timeout;

use self::redis_look::{Open, RedisLook};
use super::{OrderProgress, report::Found};
use crate::{Stores, fleet_pause::FleetPause, order_show::RedisOrders};

/// The number of vouchers whose journals are searched if an order's voucher is not known; those with the highest ids
/// are used.
const VOUCHERS: usize = 16;
/// The time for which the list of these vouchers is reused.
const VOUCHERS_FRESH_FOR: Duration = Duration::from_secs(10);

/// An order that a caller waits for, with the results of earlier reads, so that the next read is cheaper.
#[derive(Clone, Debug)]
pub struct WatchedOrder {
    order: OrderId,
    voucher: Option<VoucherId>,
    /// The entry of the order, with its content.
    entry: Option<(EntryId, EntryContent)>,
    is_searched_beside_journal: bool,
    /// The last undelivered entry that was searched for the order, and whether the search reached the end.
    stream: Option<(EntryId, bool)>,
    /// The last dead letter that was searched for the order, and whether the search reached the end.
    dead: Option<(EntryId, bool)>,
    letter: Option<DeadLetterRecord>,
}

impl WatchedOrder {
    /// Creates a watched order that was not read yet. If `voucher` is given, reads of Redis search only the journal
    /// (the Redis hash of admitted orders) of this voucher.
    #[must_use]
    pub fn new(order: OrderId, voucher: Option<VoucherId>) -> Self {
        Self {
            order,
            voucher,
            entry: None,
            is_searched_beside_journal: false,
            stream: None,
            dead: None,
            letter: None,
        }
    }

    /// Returns the id of the order.
    #[must_use]
    pub fn order(&self) -> OrderId {
        self.order
    }
}

/// The reader of the progress of orders in Redis and MySQL.
#[derive(Debug)]
pub struct OrderLookup {
    redis: RedisStore,
    mysql: MySqlPool,
    /// The timeout for reads of MySQL.
    patience: Duration,
    rate: ReadRate,
    on_sale: Option<(Instant, Vec<VoucherId>)>,
}

impl OrderLookup {
    /// Connects to Redis and MySQL with these settings.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn connect(stores: &Stores) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        Ok(Self::new(redis.clone(), mysql.clone(), stores.settings().mysql.statement_timeout))
    }

    /// Creates a reader of the progress of orders that uses these connections. `patience` is the timeout for MySQL.
    #[must_use]
    pub fn new(redis: RedisStore, mysql: MySqlPool, patience: Duration) -> Self {
        Self { redis, mysql, patience, rate: ReadRate::default(), on_sale: None }
    }

    /// Reads the progress of these orders, and returns one result for each order, in the sequence of the orders.
    ///
    /// # Errors
    /// If MySQL does not answer, or Redis does not answer and MySQL does not know one of the orders.
    pub async fn read(&mut self, orders: &mut [WatchedOrder]) -> anyhow::Result<Vec<OrderProgress>> {
        let ids: Vec<OrderId> = orders.iter().map(|watched| watched.order).collect();
        let mut histories = self.histories(&ids).await?;
        let mut found: Vec<Found> = orders.iter().map(|_| Found::default()).collect();
        let mut open: Vec<Open<'_>> = orders
            .iter_mut()
            .zip(&mut found)
            .filter(|(watched, _)| !histories.get(&watched.order).is_some_and(is_decided))
            .collect();
        if !open.is_empty() {
            self.follow(&mut open).await?;
            // An entry that is no longer in the stream may have been written to MySQL since.
            let moved = open.iter().filter(|(_, found)| found.records.open_entry().is_none());
            let moved: Vec<OrderId> = moved.map(|(watched, _)| watched.order).collect();
            histories.extend(self.histories(&moved).await?);
        }
        let is_refused = |id: &&OrderId| {
            histories.get(id).is_some_and(|history| history.row.is_none() && history.refused.is_some())
        };
        let refused: Vec<OrderId> = ids.iter().filter(is_refused).copied().collect();
        let refusals: HashMap<OrderId, RefusalRow> = self
            .in_time(Records::new(&self.mysql, self.redis.keys().partition()).refusals().by_ids(&refused))
            .await?
            .into_iter()
            .map(|refusal| (refusal.order, refusal))
            .collect();
        let told = orders.iter().zip(found).map(|(watched, found)| {
            let history = histories.get(&watched.order).cloned().unwrap_or_default();
            let refusal = refusals.get(&watched.order).cloned();
            OrderProgress::of(watched, Found { history, refusal, ..found })
        });
        Ok(told.collect())
    }

    async fn histories(&self, ids: &[OrderId]) -> anyhow::Result<HashMap<OrderId, History>> {
        self.in_time(read_histories(&self.mysql, ids)).await
    }

    async fn in_time<T>(&self, read: impl Future<Output = Result<T, RecordsError>>) -> anyhow::Result<T> {
        let read = timeout(self.patience, read).await;
        read.with_context(|| format!("MySQL: no answer within {} ms", self.patience.as_millis()))?
            .context("MySQL")
    }

    /// Searches Redis for orders that MySQL does not know.
    async fn follow(&mut self, open: &mut [Open<'_>]) -> anyhow::Result<()> {
        let backlog = self.redis.inspector().group().backlog().await.context("Redis")?.unwrap_or_default();
        self.rate.note(Instant::now(), &backlog);
        let is_paused = FleetPause::read(&self.redis).await.context("Redis")?.is_some();
        if open.iter().any(|(watched, _)| watched.voucher.is_none()) {
            self.read_on_sale().await?;
        }
        let on_sale = self.on_sale.as_ref().map_or(&[][..], |(_, vouchers)| vouchers);
        let redis = RedisOrders { store: &self.redis };
        let look =
            RedisLook { redis: &redis, backlog: &backlog, on_sale, read_per_s: self.rate.rate(), is_paused };
        look.follow(open).await.context("Redis")
    }

    async fn read_on_sale(&mut self) -> anyhow::Result<()> {
        let is_fresh = |(read, _): &(Instant, _)| read.elapsed() < VOUCHERS_FRESH_FOR;
        if self.on_sale.as_ref().is_some_and(is_fresh) {
            return Ok(());
        }
        // One voucher more than needed shows whether there are more.
        let most = u32::try_from(VOUCHERS).unwrap_or(u32::MAX) + 1;
        let latest = vouchers::latest(&self.mysql, self.redis.keys().partition(), most);
        let rows = self.in_time(latest).await?;
        self.on_sale = Some((Instant::now(), rows.iter().map(|row| row.voucher).collect()));
        Ok(())
    }
}

/// Returns whether MySQL has a row or a refusal of the order.
fn is_decided(history: &History) -> bool {
    history.row.is_some() || history.refused.is_some()
}

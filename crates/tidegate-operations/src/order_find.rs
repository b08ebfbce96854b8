//! Finds the orders of a user or a voucher: undelivered, pending, in dead letters and in MySQL. It changes nothing.

mod rows;

use std::{
    collections::{HashMap, HashSet},
    mem,
    time::Duration,
};

use anyhow::Context;
use serde::{Serialize, Serializer};
use sqlx::MySqlPool;
use tidegate_compare::Progress;
use tidegate_orders::{
    Order, OrderId, OrderState, OrderStatus, Records, RedisStore, UserId, VoucherId, event::History,
    ledger::read_histories, sale, wire::FieldNames,
};
use tidegate_stream::{Entry, EntryId, Letter, PageSize, Read};
use tokio::time::timeout;

use crate::{
    Stores,
    order_show::{RedisOrders, VOUCHER_LIMIT},
};

/// The entries that are read at once, at most.
const PAGE: u16 = 500;

/// The request to find the orders of a user, of a voucher, or of both.
#[derive(Clone, Copy, Debug)]
pub struct OrderFindRequest {
    /// The user of the orders; None: any user.
    pub user: Option<UserId>,
    /// The voucher of the orders; None: any voucher.
    pub voucher: Option<VoucherId>,
    /// Whether to find only orders whose outcome is open: the entry is undelivered, pending or a dead letter.
    pub open: bool,
    /// The highest number of orders to return, latest first.
    pub limit: u16,
    /// The maximum number of entries to read in each group: pending entries, undelivered entries, dead letters.
    pub budget: u64,
}

/// The status of an order that a search found, as one store shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FoundStatus {
    /// The order has this status.
    At(OrderStatus),
    /// The order is cancelled in MySQL, because it was not paid in time.
    Expired,
}

impl FoundStatus {
    /// Returns the word that stands for the order's status in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::At(status) => status.word(),
            Self::Expired => OrderState::Expired.word(),
        }
    }
}

impl Serialize for FoundStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// An order that a search found in one of the stores. Other stores may also have the order.
#[derive(Clone, Debug, Serialize)]
pub struct FoundOrder {
    /// The id of the order.
    pub order: OrderId,
    /// The user of the order as text, because a row of another program may hold a number that is not a valid id.
    pub user: String,
    /// The voucher of the order as text, because a row of another program may hold an invalid id.
    pub voucher: String,
    /// The status of the order according to the store in which the search found the order.
    #[serde(rename = "is")]
    pub status: FoundStatus,
    /// The Unix milliseconds at which the order was written, refused, made a dead letter, or added to the stream.
    pub at_ms: Option<i64>,
    /// The id of the stream entry that holds or held the order.
    pub entry: Option<String>,
    /// The id of the dead letter that holds the order.
    pub letter: Option<EntryId>,
}

/// The result of a search for orders of a user or a voucher.
#[derive(Clone, Debug, Default)]
pub struct FoundOrders {
    /// The found orders, latest first.
    pub orders: Vec<FoundOrder>,
    /// The vouchers for which Redis lists the user as a buyer.
    pub buyer_of: Vec<VoucherId>,
    /// The data in the stores that the search did not read.
    pub unsearched: Vec<SearchGap>,
}

/// Data in the stores that a search did not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchGap {
    /// The orders beyond the requested limit.
    Orders,
    /// The vouchers that have orders in MySQL and no buyers in Redis, except for the [`VOUCHER_LIMIT`] highest ids.
    Vouchers,
    /// The pending entries after this number of entries.
    Pending(u64),
    /// The undelivered entries after this number of entries.
    Unread(u64),
    /// The dead letters that are older than this number of newest letters.
    Letters(u64),
}

/// Finds the orders of a user, of a voucher, or of both, in Redis and MySQL.
///
/// # Errors
/// If a store cannot be reached, or a key has a wrong type.
pub async fn find_orders(
    stores: &Stores,
    request: &OrderFindRequest,
    progress: &dyn Progress,
) -> anyhow::Result<FoundOrders> {
    let (redis, mysql) = stores.both().await?;
    find_orders_in(redis, mysql, stores.settings().mysql.statement_timeout, request, progress).await
}

/// Finds orders as [`find_orders`] does, over these connections. `patience` is the timeout for MySQL.
///
/// # Errors
/// As [`find_orders`].
pub async fn find_orders_in(
    redis: &RedisStore,
    mysql: &MySqlPool,
    patience: Duration,
    request: &OrderFindRequest,
    progress: &dyn Progress,
) -> anyhow::Result<FoundOrders> {
    let records = Records::new(mysql, redis.keys().partition());
    let redis = RedisOrders { store: redis };
    let mut finder = Finder { request, redis, progress, found: FoundOrders::default() };
    let vouchers = match request.voucher {
        Some(voucher) => vec![voucher],
        None => bought(finder.redis.store, progress).await.context("Failed to read Redis")?,
    };
    // In the sequence in which an order moves: otherwise an order that moves meanwhile could be found nowhere.
    finder.in_stream().await.context("Failed to read Redis")?;
    let vouchers = timeout(patience, finder.in_mysql(records, vouchers)).await;
    let vouchers = vouchers.context("MySQL did not answer in time")??;
    finder.among_buyers(&vouchers).await.context("Failed to read Redis")?;
    let mut found = finder.found.latest(usize::from(request.limit));
    let named = timeout(patience, found.name_expired(mysql)).await;
    named
        .context("MySQL did not answer in time")?
        .context("Failed to read the events of cancelled orders")?;
    Ok(found)
}

/// Returns all vouchers that have buyers in Redis, because MySQL may not have them.
async fn bought(redis: &RedisStore, progress: &dyn Progress) -> anyhow::Result<Vec<VoucherId>> {
    progress.expect(sale::count_keys(redis).await?, "keys read");
    Ok(sale::find_bought(redis, |keys| progress.add(keys)).await?)
}

impl FoundOrders {
    /// Marks cancelled orders as expired if their events say so, because the rows do not.
    async fn name_expired(&mut self, mysql: &MySqlPool) -> anyhow::Result<()> {
        let cancelled = |found: &&mut FoundOrder| found.status == FoundStatus::At(OrderStatus::Cancelled);
        let orders: Vec<OrderId> =
            self.orders.iter_mut().filter(cancelled).map(|found| found.order).collect();
        let histories: HashMap<OrderId, History> = read_histories(mysql, &orders).await?;
        for found in self.orders.iter_mut().filter(cancelled) {
            let history = histories.get(&found.order);
            if history.is_some_and(|it| OrderState::of(OrderStatus::Cancelled, it) == OrderState::Expired) {
                found.status = FoundStatus::Expired;
            }
        }
        Ok(())
    }

    fn latest(mut self, limit: usize) -> Self {
        self.orders.sort_by_key(|found| std::cmp::Reverse((found.at_ms, found.order)));
        if self.orders.len() > limit {
            self.orders.truncate(limit);
            self.unsearched.push(SearchGap::Orders);
        }
        self
    }
}

struct Finder<'a> {
    request: &'a OrderFindRequest,
    redis: RedisOrders<'a>,
    progress: &'a dyn Progress,
    found: FoundOrders,
}

impl Finder<'_> {
    /// Reads rows and refusals, unless only open orders are requested. It reads these vouchers and, unless one voucher
    /// is requested, those with orders in MySQL. It returns all vouchers that were searched.
    async fn in_mysql(
        &mut self,
        mysql: Records<'_>,
        mut vouchers: Vec<VoucherId>,
    ) -> anyhow::Result<Vec<VoucherId>> {
        let OrderFindRequest { user, voucher, open, limit, .. } = *self.request;
        if open {
            return Ok(vouchers);
        }
        if voucher.is_none() {
            let most = VOUCHER_LIMIT as usize;
            let ordered = mysql.orders().vouchers(most).await;
            let ordered = ordered.context("Failed to find the vouchers with orders")?;
            if ordered.len() == most {
                self.found.unsearched.push(SearchGap::Vouchers);
            }
            vouchers.extend(ordered);
            vouchers.sort_unstable();
            vouchers.dedup();
        }
        // One more row than the limit shows whether there are more.
        let limit = usize::from(limit) + 1;
        let rows =
            mysql.orders().of_vouchers(user, &vouchers, limit).await.context("Failed to read the orders")?;
        self.found.orders.extend(rows.into_iter().map(FoundOrder::from));
        let refusals = mysql.refusals().of_user_or_voucher((user, voucher), limit).await;
        let refusals = refusals.context("Failed to read the refusals")?;
        self.found.orders.extend(refusals.into_iter().map(FoundOrder::from));
        Ok(vouchers)
    }

    async fn in_stream(&mut self) -> anyhow::Result<()> {
        self.progress.expect(self.request.budget.saturating_mul(3), "entries read");
        self.undelivered().await?;
        let undelivered = mem::take(&mut self.found.orders);
        self.pending().await?;
        let delivered: HashSet<_> = self.found.orders.iter().map(|found| found.entry.clone()).collect();
        let waiting = undelivered.into_iter().filter(|found| !delivered.contains(&found.entry));
        self.found.orders.extend(waiting);
        self.dead().await
    }

    async fn among_buyers(&mut self, vouchers: &[VoucherId]) -> anyhow::Result<()> {
        if let Some(user) = self.request.user {
            self.found.buyer_of = self.redis.bought(vouchers, user).await?;
        }
        Ok(())
    }

    async fn pending(&mut self) -> anyhow::Result<()> {
        let (inspector, budget) = (self.redis.store.inspector(), self.request.budget);
        let (mut after, mut left) = (EntryId::MIN, budget);
        while left > 0 {
            let count = u16::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let ids = inspector.group().pending(after, count).await?;
            let mut entries = inspector.entries(&inspector.names().stream, &ids, Read::Whole);
            while let Some(page) = entries.next().await? {
                self.take(page.iter().flatten(), OrderStatus::Pending);
                self.progress.add(page.len() as u64);
            }
            match ids.last() {
                Some(last) if ids.len() == usize::from(count) => after = *last,
                _ => return Ok(()),
            }
            left -= u64::from(count);
        }
        self.found.unsearched.push(SearchGap::Pending(budget));
        Ok(())
    }

    async fn undelivered(&mut self) -> anyhow::Result<()> {
        let (inspector, budget) = (self.redis.store.inspector(), self.request.budget);
        let mut after = inspector.group().last_delivered().await?.unwrap_or(EntryId::MIN);
        let (mut left, mut size) = (budget, PageSize::new(PAGE));
        while left > 0 {
            let count = size.count(left);
            let page = inspector.page(&inspector.names().stream, (after, EntryId::MAX), count).await?;
            size.learn(page.iter().map(|entry| &entry.fields));
            self.take(page.iter(), OrderStatus::Undelivered);
            self.progress.add(page.len() as u64);
            let Some(last) = page.last() else { return Ok(()) };
            after = last.id;
            left -= page.len() as u64;
        }
        self.found.unsearched.push(SearchGap::Unread(budget));
        Ok(())
    }

    async fn dead(&mut self) -> anyhow::Result<()> {
        let (mut budget, all) = (self.request.budget, (EntryId::MIN, EntryId::MAX));
        let fields = self.redis.store.keys().fields();
        let buried = |entry: &Entry| Letter::parse(entry.clone()).entry();
        let is_meant = |entry: &Entry| self.request.order_in(fields, &buried(entry)).is_some();
        let seen = |entries| self.progress.add(entries);
        let names = self.redis.store.inspector().names();
        let (letters, searched) = self.redis.search(&names.dead, all, &mut budget, is_meant, seen).await?;
        if !searched.complete {
            self.found.unsearched.push(SearchGap::Letters(searched.entries));
        }
        let found = letters.iter().filter_map(|letter| {
            let entry = buried(letter);
            let order = self.request.order_in(fields, &entry)?;
            let found = FoundOrder::in_redis(&order, OrderStatus::Dead, (letter.id, entry.id));
            Some(FoundOrder { letter: Some(letter.id), ..found })
        });
        let found: Vec<FoundOrder> = found.collect();
        self.found.orders.extend(found);
        Ok(())
    }

    fn take<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>, status: OrderStatus) {
        let fields = self.redis.store.keys().fields();
        let found = entries.filter_map(|entry| {
            let order = self.request.order_in(fields, entry)?;
            Some(FoundOrder::in_redis(&order, status, (entry.id, entry.id)))
        });
        self.found.orders.extend(found);
    }
}

impl OrderFindRequest {
    /// Returns the order in an entry, if the request matches it.
    fn order_in(&self, fields: &FieldNames, entry: &Entry) -> Option<Order> {
        let is_meant = |order: &Order| {
            self.user.is_none_or(|user| user == order.user)
                && self.voucher.is_none_or(|voucher| voucher == order.voucher)
        };
        fields.decode(entry).ok().filter(is_meant)
    }
}

impl FoundOrder {
    /// Creates a found order from an entry in Redis. `came` is the time that is shown, `entry` the order's entry.
    fn in_redis(order: &Order, status: OrderStatus, (came, entry): (EntryId, EntryId)) -> Self {
        Self {
            order: order.id,
            user: order.user.to_string(),
            voucher: order.voucher.to_string(),
            status: FoundStatus::At(status),
            at_ms: i64::try_from(came.ms).ok(),
            entry: Some(entry.to_string()),
            letter: None,
        }
    }
}
